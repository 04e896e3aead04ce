"""Ours: `Once`, keyed by the order, whose answer is kept for an hour."""

from __future__ import annotations

from typing import Any, Final

from bench.dedup_peers import bodies
from bench.dedup_peers.app import make_app
from bench.dedup_peers.settings import CHARGE, GATHER, LABEL, Settings
from segmented.dedup.celery import Once, OnceRule

LEASE_SECONDS: Final = 5

settings = Settings.from_environment()
app = make_app(settings)
app.conf.once_url = settings.store
app.conf.once_namespace = "compared"
app.conf.once_when_down = settings.store_down

RULE: Final = OnceRule(
    "{order_id}",
    point="until_executed",
    keep=3600,
    lease=settings.lease_seconds or LEASE_SECONDS,
    resend_after=2,
)


@app.task(bind=True, base=Once, name=CHARGE, once=RULE)
def charge(self: Any, order_id: str, quantity: int = 1) -> dict[str, Any]:  # noqa: ANN401  # the task itself
    """Charge an order."""
    return bodies.charge(self, order_id, quantity)


@app.task(base=Once, name=LABEL, once="{a}:{b}")
def label(a: object, b: object = None) -> str:
    """Take two arguments."""
    return bodies.label(a, b)


@app.task(name=GATHER)
def gather(slots: list[Any]) -> int:
    """Count the slots."""
    return bodies.gather(slots)
