"""Idempotent web handlers without a framework: the header `Idempotency-Key` for ASGI and WSGI applications."""

from segmented.dedup.web.asgi import IdempotencyMiddleware
from segmented.dedup.web.guard import (
    Idempotent,
    WebOptions,
    all_clients,
    below_500,
    current_run,
    every_status,
    idempotent,
    succeeded,
)
from segmented.dedup.web.messages import WebRequest, request_key
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
