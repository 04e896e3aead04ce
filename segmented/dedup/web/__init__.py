"""Idempotent web handlers without a framework: the header `Idempotency-Key` for ASGI and WSGI applications."""

from segmented.dedup.web.asgi import IdempotencyMiddleware
from segmented.dedup.web.guard import WebOptions, all_clients, below_500, every_status, succeeded
from segmented.dedup.web.messages import WebRequest, request_key
from segmented.dedup.web.route import Idempotent, current_run, idempotent
from segmented.dedup.web.wsgi import WsgiIdempotencyMiddleware

__all__ = [
    "IdempotencyMiddleware",
    "Idempotent",
    "WebOptions",
    "WebRequest",
    "WsgiIdempotencyMiddleware",
    "all_clients",
    "below_500",
    "current_run",
    "every_status",
    "idempotent",
    "request_key",
    "succeeded",
]
