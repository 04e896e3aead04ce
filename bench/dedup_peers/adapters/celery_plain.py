"""Celery without a library, and without its own check of redelivered messages."""

from __future__ import annotations

from typing import Any

from bench.dedup_peers import bodies
from bench.dedup_peers.app import make_app
from bench.dedup_peers.settings import CHARGE, GATHER, LABEL, Settings

app = make_app(Settings.from_environment())


@app.task(bind=True, name=CHARGE)
def charge(self: Any, order_id: str, quantity: int = 1) -> dict[str, Any]:  # noqa: ANN401  # the task itself
    """Charge an order."""
    return bodies.charge(self, order_id, quantity)


@app.task(name=LABEL)
def label(a: object, b: object = None) -> str:
    """Take two arguments."""
    return bodies.label(a, b)


@app.task(name=GATHER)
def gather(slots: list[Any]) -> int:
    """Count the slots."""
    return bodies.gather(slots)
