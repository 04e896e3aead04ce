"""The model of semaphores."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from segmented.errors import PermitsMismatch
from segmented.keys import lock_keys
from segmented.models import Acquired, Held, Lost, Released, Renewed
from segmented.models.locks import HOLDER_ID_SHOWN, LockHolder, LockState
from segmented.protocol.kinds import Kind
from segmented.protocol.lock.line_model import LineModel
from segmented.protocol.semaphore.operations import AcquirePermit, ReleasePermit, RenewPermit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from segmented.clock import Clock
    from segmented.protocol.kinds import Bodies


@dataclass(slots=True)
class _Entry:
    """One name: holders with the end of their permits, the number of permits, and the last token."""

    ends: dict[str, float] = field(default_factory=dict)
    permits: int = 0
    token: int = 0


class SemaphoreModel:
    """Permits by name."""

    def __init__(self, clock: Clock, publish: Callable[[str], None]) -> None:
        """Create a model without permits that calls `publish` with each channel that gets a message."""
        self._clock = clock
        self._publish = publish
        self._entries: dict[str, _Entry] = {}
        self._waiting: dict[str, LineModel] = {}

    def bodies(self) -> Bodies:
        """Return the method that performs each operation."""
        return {
            AcquirePermit: self.acquire,
            RenewPermit: self.renew,
            ReleasePermit: self.release,
        }

    def holds(self, name: str) -> bool:
        """Return whether a permit is held."""
        return bool(self._entry(name)[0].ends)

    def names(self) -> Iterable[str]:
        """Return the names it has seen."""
        return list(self._entries)

    def state(self, name: str, holders_max: int) -> LockState | None:
        """Return the holders of permits."""
        entry, now = self._entry(name)
        ends = sorted((end, holder_id) for holder_id, end in entry.ends.items())
        if not ends:
            return None
        holders = tuple(
            LockHolder(holder_id[:HOLDER_ID_SHOWN], "permit", round((end - now) * 1000))
            for end, holder_id in ends[:holders_max]
        )
        free_in_ms = round((ends[-1][0] - now) * 1000)
        return LockState(name, "semaphore", holders, len(ends), free_in_ms, entry.token, permits=entry.permits)

    def revoke(self, name: str) -> None:
        """End all permits, and wake waiters."""
        self._entries[name].ends.clear()
        self._publish(lock_keys(name).freed)

    def _entry(self, name: str) -> tuple[_Entry, float]:
        entry, now = self._entries.setdefault(name, _Entry()), self._clock.now()
        entry.ends = {holder_id: end for holder_id, end in entry.ends.items() if end > now}
        return entry, now

    def line(self, name: str) -> LineModel:
        """Return the line of the processes that wait for the name."""
        return self._waiting.setdefault(name, LineModel(lock_keys(name).freed, self._publish))

    def acquire(self, operation: AcquirePermit) -> Acquired | Held:
        """Take a permit if one is left, or renew the holder's own."""
        entry, now = self._entry(operation.name)
        if entry.ends and entry.permits != operation.permits:
            raise PermitsMismatch(operation.name, entry.permits, operation.permits)
        is_replay = operation.holder_id in entry.ends
        line = self.line(operation.name)
        free_count = operation.permits - len(entry.ends)
        if free_count < 1 and not is_replay:
            return Held(_ms_until_next(entry, now), ahead=line.keep_place(operation.party, now))
        left_ms = (
            None
            if is_replay
            else line.left_to_first(operation.party, now, count=operation.permits, free_count=free_count)
        )
        if left_ms is not None:
            free_in_ms, ahead = line.wait_behind(operation.party, now, left_ms)
            return Held(free_in_ms, ahead=ahead)
        entry.ends[operation.holder_id] = now + operation.ttl_ms / 1000
        entry.permits = operation.permits
        entry.token = max(entry.token + 1, int(now * 1_000_000))
        next_in_ms = 0 if len(entry.ends) < operation.permits else _ms_until_next(entry, now)
        line.tell_following(next_in_ms)
        return Acquired(entry.token, operation.ttl_ms, replay=is_replay, next_in_ms=next_in_ms)

    def renew(self, operation: RenewPermit) -> Renewed | Lost:
        """Extend a permit; never re-create it."""
        entry, now = self._entry(operation.name)
        if operation.holder_id not in entry.ends:
            return Lost()
        entry.ends[operation.holder_id] = now + operation.ttl_ms / 1000
        return Renewed(operation.ttl_ms)

    def release(self, operation: ReleasePermit) -> Released | Lost:
        """Release a permit, and wake a waiter."""
        entry, _ = self._entry(operation.name)
        if entry.ends.pop(operation.holder_id, None) is None:
            return Lost()
        self._publish(lock_keys(operation.name).freed)
        return Released()


def _ms_until_next(entry: _Entry, now: float) -> int:
    return round((min(entry.ends.values()) - now) * 1000)


KIND: Final = Kind("semaphore", "Semaphore", "up to N at a time", SemaphoreModel, takes=(AcquirePermit,))
