"""The slots of a schedule: the moments at which its entry is due, in milliseconds since 1970.

Slots of an interval form a grid from the first sight of its entry, so a late run moves no later slot. Those of a
crontab and of a solar event are moments of the calendar. All are computed from the last slot alone, without the local
clock: two machines find the same ones.
"""

from __future__ import annotations

from copy import copy
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias

from celery.schedules import crontab, schedule, solar

AnySchedule: TypeAlias = Any
"""One of Celery's schedules; the types of its stubs lack most of their attributes."""

WINDOWS_MS: Final = tuple(timedelta(**each) // timedelta(milliseconds=1) for each in (
    {"minutes": 1}, {"hours": 1}, {"days": 1}, {"days": 32}, {"days": 367}, {"days": 3_000},
))  # fmt: skip
"""How far to look back for the latest slot, the nearest first, so that a long gap is not walked slot by slot."""
SOLAR_STEP_MS: Final = 60_000
"""A search may find the last event again, a moment later: it is exact to milliseconds at best, and to seconds here."""
WALK_MAX: Final = 10_000


def is_known(found: AnySchedule) -> bool:
    """Return whether the slots of this schedule can be computed. Others are asked whether they are due now."""
    kind = type(found)
    if isinstance(found, schedule) and found.seconds <= 0:
        return False
    return any(
        issubclass(kind, base) and kind.is_due is base.is_due and kind.remaining_estimate is base.remaining_estimate
        for base in (schedule, crontab, solar)
    )


def described(found: AnySchedule) -> dict[str, Any]:
    """Return a known schedule as JSON values; two are equal if they have the same slots."""
    if isinstance(found, solar):
        return {"solar": [found.event, found.lat, found.lon]}
    if isinstance(found, crontab):
        fields = found.__reduce__()[1]
        return {"crontab": [_plain(field) for field in fields]}
    return {"every": found.run_every.total_seconds(), "relative": bool(found.relative)}


def _plain(field: Any) -> Any:  # noqa: ANN401  # a number, a text, or numbers
    return field if isinstance(field, int | str) else sorted(field)


def following(found: AnySchedule, after_ms: int) -> int:
    """Return the first slot after a moment, which is itself a slot of an interval."""
    if isinstance(found, schedule) and not found.relative:
        return after_ms + _every_ms(found)
    start_ms = after_ms + (SOLAR_STEP_MS if isinstance(found, solar) else 0)
    still = copy(found)
    still.app = found.app
    moment = datetime.fromtimestamp(start_ms / 1_000, UTC).astimezone(found.tz)
    still.nowfun = lambda: moment
    slot_ms: int = start_ms + round(still.remaining_estimate(moment) / timedelta(milliseconds=1))
    if isinstance(found, solar):
        slot_ms -= slot_ms % 1_000
    return max(slot_ms, after_ms + 1)


def latest(found: AnySchedule, after_ms: int, now_ms: int) -> int | None:
    """Return the latest slot that is after a moment and not in the future, or None."""
    if isinstance(found, schedule):
        every_ms = _every_ms(found)
        if not found.relative:
            count = (now_ms - after_ms) // every_ms
            return after_ms + count * every_ms if count > 0 else None
        return _walked(found, after_ms + max(0, (now_ms - after_ms) // every_ms - 2) * every_ms, now_ms)
    for window_ms in WINDOWS_MS:
        start_ms = max(after_ms, now_ms - window_ms)
        slot_ms = _walked(found, start_ms, now_ms)
        if slot_ms is not None or start_ms == after_ms:
            return slot_ms
    return None


def _walked(found: AnySchedule, start_ms: int, now_ms: int) -> int | None:
    slot_ms = None
    for _ in range(WALK_MAX):
        next_ms = following(found, start_ms if slot_ms is None else slot_ms)
        if next_ms > now_ms:
            break
        slot_ms = next_ms
    return slot_ms


def _every_ms(found: AnySchedule) -> int:
    return max(1, round(float(found.seconds) * 1_000))
