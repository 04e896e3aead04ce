"""Entries of a schedule: their slots, the state of each, and how those added at runtime are written.

Slots are the moments at which an entry is due, in milliseconds since 1970. Those of an interval form a grid from the
first sight of the entry, so a late run moves no later slot. Those of a crontab and of a solar event are moments of the
calendar. All are computed from the last slot alone, without the local clock: two machines find the same ones.
"""

from __future__ import annotations

import json
from contextlib import suppress
from copy import copy
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from celery.beat import ScheduleEntry
from celery.schedules import crontab, maybe_schedule, schedule, solar
from kombu.utils import json as kombu_json

from segmented.errors import InvalidInput
from segmented.errors.base import FOREIGN
from segmented.locks.durations import checked_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from celery import Celery


AnySchedule: TypeAlias = Any
"""One of Celery's schedules; the types of its stubs lack most of their attributes."""

WINDOWS_MS: Final = tuple(timedelta(**each) // timedelta(milliseconds=1) for each in (
    {"minutes": 1}, {"hours": 1}, {"days": 1}, {"days": 32}, {"days": 367}, {"days": 3_000},
))  # fmt: skip
"""How far to look back for the latest slot, the nearest first, so that a long gap is not walked slot by slot."""
SOLAR_STEP_MS: Final = 60_000
"""A search may find the last event again, a moment later: it is exact to milliseconds at best, and to seconds here."""
WALK_MAX: Final = 10_000
PRINT_LENGTH: Final = 16


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


@dataclass(frozen=True, slots=True)
class EntryState:
    """The last runs of an entry. They are stored under its name, so that they outlive every beat."""

    slot: int
    """The last slot that was sent or is being sent, in milliseconds since 1970; of a new entry, its first sight."""
    of: str
    """Fingerprint of the schedule: one that was changed counts from the moment at which a leader first has it."""
    by: int = 0
    """Fencing token of the leader that wrote this."""
    is_sent: bool = True
    """False while it is being sent: a leader that dies meanwhile leaves the slot to its successor."""
    count: int = 0
    gone: int | None = None
    """When a leader first had no entry of this name."""

    def written(self) -> str:
        """Return it as it is stored."""
        return json.dumps(asdict(self), separators=(",", ":"))


def read_state(text: str) -> EntryState:
    """Read a state. Raises InvalidInput for one that no beat wrote."""
    try:
        found = json.loads(text)
        state = EntryState(**found)
        numbers = (state.slot, state.by, state.count, 0 if state.gone is None else state.gone)
        is_sound = all(type(number) is int for number in numbers) and type(state.is_sent) is bool
        if is_sound and isinstance(state.of, str):
            return state
    except FOREIGN:
        pass
    raise InvalidInput(f"its state is not one: {text[:80]!r}")


def print_of(found: AnySchedule) -> str:
    """Return the fingerprint of a schedule."""
    said = json.dumps(described(found)) if is_known(found) else repr(found)
    return sha256(said.encode()).hexdigest()[:PRINT_LENGTH]


def written_entry(  # of one entry, given by name
    app: Celery,
    name: str,
    *,
    task: str,
    schedule: object,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
) -> str:
    """Return an entry as it is stored. Raises InvalidInput for one that another process could not read."""
    is_schedule = isinstance(schedule, int | float | timedelta) or hasattr(schedule, "is_due")
    found: AnySchedule = None
    with suppress(*FOREIGN):  # such as of a time that no timedelta has
        found = maybe_schedule(cast("Any", schedule), app=app) if is_schedule else None
    if found is None or not is_known(found):
        raise InvalidInput(
            f"entry {name!r} has a schedule of {schedule!r}: give seconds, a timedelta, or Celery's schedule, crontab "
            "or solar; any other kind goes into beat_schedule"
        )
    if not task or not isinstance(cast("object", task), str):
        raise InvalidInput(f"entry {name!r} needs the name of its task, not {task!r}")
    said = {
        "task": task,
        "schedule": described(found),
        "args": list(args),
        "kwargs": dict(kwargs or {}),
        "options": dict(options or {}),
    }
    try:
        text = kombu_json.dumps(said)
    except (TypeError, ValueError) as error:
        message = f"entry {name!r} cannot be stored: {error}; give arguments and options that JSON has"
        raise InvalidInput(message) from error
    read_entry(app, name, text)
    return text


def read_entry(app: Celery, name: str, text: str) -> ScheduleEntry:
    """Return the entry that `written_entry` wrote. Raises InvalidInput for any other text."""
    try:
        said = kombu_json.loads(text)
        found = _schedule_of(app, said["schedule"])
        args, kwargs, options = tuple(said["args"]), dict(said["kwargs"]), dict(said["options"])
        entry = {"args": args, "kwargs": kwargs, "options": options, "schedule": found}
        return ScheduleEntry(checked_name(name, "an entry"), str(said["task"]), app=app, **entry)
    except FOREIGN as error:
        raise InvalidInput(f"its definition cannot be read ({type(error).__name__}: {error})") from error


def _schedule_of(app: Celery, said: dict[str, Any]) -> AnySchedule:
    if "crontab" in said:
        return crontab(*said["crontab"], app=app)
    if "solar" in said:
        return solar(*said["solar"], app=app)
    return schedule(timedelta(seconds=said["every"]), relative=said["relative"], app=app)
