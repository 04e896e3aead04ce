"""The schedule of an app at runtime: add, change, remove and list entries, from any process.

Slots are the moments at which an entry is due, in milliseconds since 1970. Those of an interval form a grid from the
first sight of the entry, so a late run moves no later slot. Those of a crontab and of a solar event are moments of the
calendar. All are computed from the last slot alone, without the local clock: two machines find the same ones.

The app's settings say where the schedule is, and how one beat of many sends its entries:

| setting | meaning |
| --- | --- |
| `beat_url` | the Redis server of the schedule; default: `once_url` |
| `beat_store` | instead of `beat_url`: a store, or a callable that returns one |
| `beat_namespace` | separates the app's schedule from those of other apps; default: the app's name |
| `beat_ttl` | seconds after which a beat that died is replaced (default 15) |
| `beat_delivery` | of a slot whose beat dies while it sends it: `at_least_once` (default) or `at_most_once` |
| `beat_catch_up` | seconds by which a slot may be late; later ones are skipped; default: no limit |
"""

from __future__ import annotations

import json
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast

from celery.beat import ScheduleEntry
from celery.schedules import crontab, maybe_schedule, schedule, solar
from kombu.utils import json as kombu_json

from segmented.dedup.terms import checked_namespace
from segmented.errors import InvalidInput
from segmented.errors.base import FOREIGN
from segmented.locks.durations import checked_name, milliseconds
from segmented.models.beat import EntriesFull
from segmented.plans.store_kinds import is_sync_store, sync_store
from segmented.protocol import ChangeEntry, ReadBeat
from segmented.protocol.beat import ENTRIES_MAX
from segmented.stores.redis import RedisStore
from segmented.stores.redis.addresses import parse_address

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from celery import Celery

    from segmented.plans.drivers import Store


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
DELIVERIES: Final = ("at_least_once", "at_most_once")
DEFAULT_TTL: Final = 15.0


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
        fields = found.__reduce__()[1]  # each a number, a text, or numbers
        return {"crontab": [field if isinstance(field, int | str) else sorted(field) for field in fields]}
    return {"every": found.run_every.total_seconds(), "relative": bool(found.relative)}


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


def _written(app: Celery, name: str, task: str, schedule: object, rest: dict[str, Any]) -> str:
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
    try:
        text = kombu_json.dumps({"task": task, "schedule": described(found), **rest})
    except (TypeError, ValueError) as error:
        message = f"entry {name!r} cannot be stored: {error}; give arguments and options that JSON has"
        raise InvalidInput(message) from error
    read_entry(app, name, text)
    return text


def read_entry(app: Celery, name: str, text: str) -> ScheduleEntry:
    """Return the entry that `Schedule.add` wrote. Raises InvalidInput for any other text."""
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


@dataclass(frozen=True, slots=True)
class BeatSettings:
    """The settings of an app for its schedule."""

    namespace: str
    shown: str
    """Where the schedule is, without a password."""
    ttl: float
    is_at_most_once: bool
    catch_up_ms: int | None


def settings_of(app: Celery) -> BeatSettings:
    """Return the settings. Raises InvalidInput for those that make no sense."""
    conf: Any = app.conf
    delivery = conf.get("beat_delivery") or DELIVERIES[0]
    if delivery not in DELIVERIES:
        raise InvalidInput(f"beat_delivery is {delivery!r}: give one of {', '.join(DELIVERIES)}")
    ttl, late = conf.get("beat_ttl"), conf.get("beat_catch_up")
    namespace: str = checked_namespace(conf.get("beat_namespace") or app.main or "celery")
    return BeatSettings(
        namespace=namespace,
        shown="a store of the program" if conf.get("beat_store") is not None else parse_address(_url(app)).shown,
        ttl=milliseconds(DEFAULT_TTL if ttl is None else ttl, "beat_ttl") / 1_000,
        is_at_most_once=delivery == DELIVERIES[1],
        catch_up_ms=None if late is None else milliseconds(late, "beat_catch_up"),
    )


def open_store(app: Celery) -> Store:
    """Return the store of the app's schedule. Raises InvalidInput for an address that makes no sense."""
    given: Any = app.conf.get("beat_store")
    if given is not None:
        return given if is_sync_store(given) else sync_store(given, "beat_store")
    return RedisStore.from_url(_url(app))


def _url(app: Celery) -> str:
    conf: Any = app.conf
    url: str | None = conf.get("beat_url") or conf.get("once_url")
    if not url:
        raise InvalidInput(f"the app {app.main!r} has no beat_url: set it to the Redis server of the schedule")
    return url


@dataclass(frozen=True, slots=True)
class Sent:
    """An entry with its last runs."""

    name: str
    is_of_code: bool
    """Whether it is of `beat_schedule`, rather than added at runtime."""
    last_slot: datetime | None
    """The last slot; of a new entry, its first sight; None if no beat has led since it was added."""
    count: int
    """How many slots were sent."""
    is_being_sent: bool = False


class Schedule:
    """The entries that are kept on the server beside `beat_schedule` of the code.

    ```python
    schedule = Schedule(app)
    schedule.add("clean", task="shop.clean", schedule=crontab(minute=0))
    ```

    A change takes effect within five seconds. Entries of the code are changed in the code.
    """

    def __init__(self, app: Celery) -> None:
        self.app = app
        self._said = settings_of(app)

    def add(  # of one entry, given by name
        self,
        name: str,
        *,
        task: str,
        schedule: object,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """Add an entry, or change it. `schedule` is seconds, a timedelta, or Celery's schedule, crontab or solar.

        An entry whose schedule changes counts from then on. Raises InvalidInput for one that cannot be stored, and for
        a name of `beat_schedule`.
        """
        name = checked_name(name, "an entry")
        if name in (self.app.conf.beat_schedule or {}):
            raise InvalidInput(f"entry {name!r} is in beat_schedule of the code: change it there")
        rest = {"args": list(args), "kwargs": dict(kwargs or {}), "options": dict(options or {})}
        text = _written(self.app, name, task, schedule, rest)
        with self._opened() as store:
            if isinstance(store.execute(ChangeEntry(self._said.namespace, name, "keep", text)), EntriesFull):
                raise InvalidInput(f"the schedule has {ENTRIES_MAX:,} entries, the maximum: remove some first")

    def remove(self, name: str) -> bool:
        """Remove an entry with its state. Returns whether it was there."""
        return self._is_changed(name, "remove")

    def reset(self, name: str) -> bool:
        """Forget the state of an entry, so that it counts as new from now on. Returns whether there was one."""
        return self._is_changed(name, "reset")

    def entries(self) -> list[Sent]:
        """Return what is known of each entry, by name."""
        code = set(self.app.conf.beat_schedule or {})
        with self._opened() as store:
            found = store.execute(ReadBeat(self._said.namespace))
        return [
            _sent(name, found.runs.get(name, ""), is_of_code=name in code) for name in sorted(code | {*found.entries})
        ]

    def _is_changed(self, name: str, deed: Literal["remove", "reset"]) -> bool:
        with self._opened() as store:
            answer = store.execute(ChangeEntry(self._said.namespace, name, deed))
        return not isinstance(answer, EntriesFull) and answer.was_there

    @contextmanager
    def _opened(self) -> Iterator[Store]:
        store = open_store(self.app)
        try:
            yield store
        finally:
            if self.app.conf.get("beat_store") is None:
                store.close()


def _sent(name: str, text: str, *, is_of_code: bool) -> Sent:
    try:
        state = read_state(text)
    except InvalidInput:
        return Sent(name, is_of_code, None, 0)
    slot = datetime.fromtimestamp(state.slot / 1_000, UTC)
    return Sent(name, is_of_code, slot, state.count, not state.is_sent)
