"""Entries of a schedule: how those added at runtime are written, and the state of each."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, cast

from celery.beat import ScheduleEntry
from celery.schedules import crontab, maybe_schedule, schedule, solar
from kombu.utils import json as kombu_json

from segmented.celery.beat.slots import AnySchedule, described, is_known
from segmented.errors import InvalidInput
from segmented.errors.base import FOREIGN
from segmented.locks.durations import checked_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from celery import Celery


PRINT_LENGTH: Final = 16


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
