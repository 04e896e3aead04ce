"""The schedule of an app at runtime: add, change, remove and list entries, from any process.

The app's settings say where it is, and how one beat of many sends its entries:

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

from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal

from segmented.celery.beat.entries import read_state, written_entry
from segmented.dedup.terms import checked_namespace
from segmented.errors import InvalidInput
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


DELIVERIES: Final = ("at_least_once", "at_most_once")
DEFAULT_TTL: Final = 15.0


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
        text = written_entry(self.app, name, task=task, schedule=schedule, args=args, kwargs=kwargs, options=options)
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
