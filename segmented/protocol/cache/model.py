"""The model of cached values, each beside the lock of its name."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from segmented import protocol as op
from segmented.keys import lock_keys
from segmented.models import Acquired, Cached, Forgotten, Held, MayLoad, Outpaced, Uncached, Written
from segmented.protocol import AcquireLock, ForgetCached, ReadCached, ReadOrAcquire, ReleaseLock, WriteCached

if TYPE_CHECKING:
    from collections.abc import Callable

    from segmented.clock import Clock
    from segmented.protocol.kinds import Bodies
    from segmented.protocol.lock.model import LockModel


@dataclass(slots=True)
class _Kept:
    value: Cached
    lapses_at: float
    refresh_at: float


class CacheModel:
    """Cached values by name, and the lowest token that may still write each."""

    def __init__(self, clock: Clock, locks: LockModel, publish: Callable[[str], None]) -> None:
        """Create an empty cache that locks with `locks` and calls `publish` with each channel that gets a message."""
        self._clock = clock
        self._locks = locks
        self._publish = publish
        self._values: dict[str, _Kept] = {}
        self._floors: dict[str, int] = {}

    def bodies(self) -> Bodies:
        """Return the method that performs each operation."""
        return {
            op.ReadCached: self.read,
            op.ReadOrAcquire: self.read_or_acquire,
            op.WriteCached: self.write,
            op.ForgetCached: self.forget,
        }

    def _living(self, name: str) -> _Kept | None:
        kept = self._values.get(name)
        return kept if kept is not None and kept.lapses_at > self._clock.now() else None

    def read(self, operation: ReadCached) -> Cached | Uncached:
        """Read the cached value."""
        kept = self._living(operation.name)
        return Uncached() if kept is None else kept.value

    def read_or_acquire(self, operation: ReadOrAcquire) -> Cached | Held | MayLoad:
        """Read the value, or take the lock to load it."""
        now, name = self._clock.now(), operation.name
        kept, holder = self._living(name), self._locks.holder(name)
        is_ours = holder == operation.holder_id
        if kept is not None and (now < kept.refresh_at or (holder is not None and not is_ours)):
            if is_ours:
                self._locks.release(ReleaseLock(name, operation.holder_id))
            return kept.value
        answer = self._locks.acquire(AcquireLock(name, operation.holder_id, operation.ttl_ms))
        if not isinstance(answer, Acquired):
            return Held(answer.free_in_ms)
        if not answer.replay:
            self._floors.setdefault(name, answer.fencing_token)
            if kept is not None:
                kept.refresh_at = now + operation.hold_off_ms / 1000
        return MayLoad(answer, None if kept is None else kept.value)

    def write(self, operation: WriteCached) -> Written | Outpaced:
        """Write a value, unless a newer token wrote one or it was forgotten."""
        name, now = operation.name, self._clock.now()
        last = self._locks.last_token(name)
        if last is None or operation.fencing_token < self._floors.get(name, last):
            return Outpaced()
        refresh_at = inf if operation.refresh_in_ms is None else now + operation.refresh_in_ms / 1000
        self._values[name] = _Kept(operation.value, now + operation.ttl_ms / 1000, refresh_at)
        self._floors[name] = operation.fencing_token
        if self._locks.holder(name) != operation.holder_id:
            self._publish(lock_keys(name).freed)
        return Written()

    def forget(self, operation: ForgetCached) -> Forgotten:
        """Drop the value, and refuse all tokens granted so far."""
        kept = self._living(operation.name)
        if operation.only is not None and (kept is None or kept.value != operation.only):
            return Forgotten(was_kept=False)
        was_kept = kept is not None
        self._values.pop(operation.name, None)
        last = self._locks.last_token(operation.name)
        if last is not None:
            self._floors[operation.name] = last + 1
        return Forgotten(was_kept)
