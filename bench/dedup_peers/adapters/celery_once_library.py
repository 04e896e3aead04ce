"""celery-once: `QueueOnce`, keyed by the order; a repeat is an answer (`graceful`), as most of its users have it."""

from __future__ import annotations

from typing import Any, Final

from celery_once import QueueOnce

from bench.dedup_peers import bodies
from bench.dedup_peers.app import make_app
from bench.dedup_peers.settings import CHARGE, GATHER, LABEL, Settings

settings = Settings.from_environment()
app = make_app(settings)
app.conf.ONCE = {"backend": "celery_once.backends.Redis", "settings": {"url": settings.store}}

LEASE: Final = {} if settings.lease_seconds is None else {"timeout": settings.lease_seconds}


@app.task(bind=True, base=QueueOnce, name=CHARGE, once={"graceful": True, "keys": ["order_id"], **LEASE})
def charge(self: Any, order_id: str, quantity: int = 1) -> dict[str, Any]:  # noqa: ANN401  # the task itself
    """Charge an order."""
    return bodies.charge(self, order_id, quantity)


@app.task(base=QueueOnce, name=LABEL, once={"graceful": True})
def label(a: object, b: object = None) -> str:
    """Take two arguments."""
    return bodies.label(a, b)


@app.task(name=GATHER)
def gather(slots: list[Any]) -> int:
    """Count the slots."""
    return bodies.gather(slots)
