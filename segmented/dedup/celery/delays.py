"""When a message is due, as its publisher says it."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from celery import Celery


def due_in_ms(app: Celery, eta: datetime | str | None, countdown: float | None) -> int:
    """Return the milliseconds until a message is due, 0 for at once; an `eta` takes the place of a `countdown`."""
    if isinstance(eta, str):
        eta = datetime.fromisoformat(eta)
    if eta is not None:
        now = app.now()
        countdown = (eta - (now if eta.tzinfo else now.replace(tzinfo=None))).total_seconds()
    return max(0, round((countdown or 0) * 1000))
