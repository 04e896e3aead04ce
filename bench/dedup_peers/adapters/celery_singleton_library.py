"""celery-singleton: `Singleton`, unique on the order; a repeat gets the first's handle, its default."""

from __future__ import annotations

from typing import Any

from celery_singleton import Singleton

from bench.dedup_peers import bodies
from bench.dedup_peers.app import make_app
from bench.dedup_peers.settings import CHARGE, GATHER, LABEL, Settings

settings = Settings.from_environment()
app = make_app(settings)
app.conf.singleton_backend_url = settings.store


@app.task(bind=True, base=Singleton, name=CHARGE, unique_on="order_id", lock_expiry=settings.lease_seconds)
def charge(self: Any, order_id: str, quantity: int = 1) -> dict[str, Any]:  # noqa: ANN401  # the task itself
    """Charge an order."""
    return bodies.charge(self, order_id, quantity)


@app.task(base=Singleton, name=LABEL)
def label(a: object, b: object = None) -> str:
    """Take two arguments."""
    return bodies.label(a, b)


@app.task(name=GATHER)
def gather(slots: list[Any]) -> int:
    """Count the slots."""
    return bodies.gather(slots)
