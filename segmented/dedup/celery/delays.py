"""When a message is due and when it expires, as its publisher says it."""

from __future__ import annotations

from datetime import datetime
from math import isfinite
from typing import TYPE_CHECKING

from segmented.errors import InvalidInput

if TYPE_CHECKING:
    from celery import Celery


def due_in_ms(app: Celery, eta: datetime | str | None, countdown: float | None) -> int:
    """Return the milliseconds until a message is due, 0 for at once; an `eta` takes the place of a `countdown`."""
    if isinstance(eta, str):
        eta = datetime.fromisoformat(eta)
    if eta is not None:
        now = app.now()
        countdown = (eta - (now if eta.tzinfo else now.replace(tzinfo=None))).total_seconds()
    found: object = countdown or 0
    if not isinstance(found, int | float) or not isfinite(found):
        message = f"a countdown of {countdown!r} is no number of seconds"
        raise InvalidInput(message)
    return max(0, round(found * 1000))


def waits_ms(app: Celery, at_most_ms: int, expires: datetime | str | float | None, delay_ms: int) -> int:
    """Return for how long a message keeps its key beyond its delay: one that has expired can give a repeat nothing."""
    if expires is None:
        return at_most_ms
    expires_ms = due_in_ms(app, None, expires) if isinstance(expires, int | float) else due_in_ms(app, expires, None)
    return max(1, min(at_most_ms, expires_ms - delay_ms))
