"""The schedule of an app at runtime: add, change, remove and list entries, from any process."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from segmented.celery.beat.entries import read_state, written_entry
from segmented.celery.beat.settings import open_store, settings_of
from segmented.errors import InvalidInput
from segmented.locks.durations import checked_name
from segmented.models.beat import EntriesFull
from segmented.protocol import ChangeEntry, ReadBeat
from segmented.protocol.beat import ENTRIES_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from celery import Celery

    from segmented.plans.drivers import Store


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
