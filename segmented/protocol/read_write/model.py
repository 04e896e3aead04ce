"""The model of locks of readers and writers."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil
from typing import TYPE_CHECKING, Final

from segmented.keys import read_write_keys
from segmented.models import Acquired, Held, Lost, Released, Renewed
from segmented.models.locks import HOLDER_ID_SHOWN, LockHolder, LockState
from segmented.protocol.kinds import Kind
from segmented.protocol.lock.line_model import LineModel
from segmented.protocol.read_write.operations import AcquireRead, AcquireWrite, ReleaseReadWrite, RenewReadWrite

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from segmented.clock import Clock
    from segmented.models.locks import HolderMode
    from segmented.protocol.kinds import Bodies


@dataclass(slots=True)
class _Entry:
    """One name. All times are ends, by the server's clock."""

    token: int = 0
    readers: dict[str, float] = field(default_factory=dict)
    writer: tuple[str, float] | None = None
    waiting: dict[str, float] = field(default_factory=dict)
    """Waiting writers, and until when each blocks new readers."""

    def forget(self, now: float) -> None:
        self.readers = {holder_id: end for holder_id, end in self.readers.items() if end > now}
        self.waiting = {holder_id: end for holder_id, end in self.waiting.items() if end > now}
        if self.writer is not None and self.writer[1] <= now:
            self.writer = None


class ReadWriteModel:
    """Readers, the writer, and the waiting writers, by name."""

    def __init__(self, clock: Clock, publish: Callable[[str], None]) -> None:
        """Create a model without locks that calls `publish` with each channel that gets a message."""
        self._clock = clock
        self._publish = publish
        self._entries: dict[str, _Entry] = {}
        self._lines: dict[str, LineModel] = {}

    def bodies(self) -> Bodies:
        """Return the method that performs each operation."""
        return {
            AcquireRead: self.read,
            AcquireWrite: self.write,
            RenewReadWrite: self.renew,
            ReleaseReadWrite: self.release,
        }

    def holds(self, name: str) -> bool:
        """Return whether the lock is held."""
        entry, _ = self._entry(name)
        return entry.writer is not None or bool(entry.readers)

    def names(self) -> Iterable[str]:
        """Return the names it has seen."""
        return list(self._entries)

    def state(self, name: str, holders_max: int) -> LockState | None:
        """Return the readers or the writer, and the number of waiting writers."""
        entry, now = self._entry(name)
        mode: HolderMode = "read" if entry.writer is None else "write"
        inside = entry.readers if entry.writer is None else dict([entry.writer])
        ends = sorted((end, holder_id) for holder_id, end in inside.items())
        if not ends:
            return None
        holders = tuple(
            LockHolder(holder_id[:HOLDER_ID_SHOWN], mode, _ms(end - now)) for end, holder_id in ends[:holders_max]
        )
        free_in_ms, waiting = _ms(ends[-1][0] - now), len(entry.waiting)
        return LockState(name, "read_write", holders, len(ends), free_in_ms, entry.token, waiters=waiting)

    def revoke(self, name: str) -> None:
        """End the lease of the writer, or of all readers, and wake both kinds."""
        entry, keys = self._entries[name], read_write_keys(name)
        entry.writer = None
        entry.readers.clear()
        self._publish(keys.freed)
        self._publish(keys.opened)

    def _entry(self, name: str) -> tuple[_Entry, float]:
        entry, now = self._entries.setdefault(name, _Entry()), self._clock.now()
        entry.forget(now)
        return entry, now

    def line(self, name: str) -> LineModel:
        """Return the line of the processes whose writers wait for the name."""
        return self._lines.setdefault(name, LineModel(read_write_keys(name).freed, self._publish))

    def read(self, operation: AcquireRead) -> Acquired | Held:
        """Let a reader in, unless a writer holds the lock or waits."""
        entry, now = self._entry(operation.name)
        if entry.writer is not None:
            return Held(_ms(entry.writer[1] - now))
        is_replay = operation.holder_id in entry.readers
        if entry.waiting and not is_replay:
            return Held(_ms(max(entry.waiting.values()) - now))
        if not entry.readers:
            entry.token = max(entry.token + 1, int(now * 1_000_000))
        entry.readers[operation.holder_id] = now + operation.ttl_ms / 1000
        return Acquired(entry.token, operation.ttl_ms, replay=is_replay, next_in_ms=0)

    def write(self, operation: AcquireWrite) -> Acquired | Held:
        """Let a writer in if the lock is free, otherwise block new readers while it is present."""
        entry, now = self._entry(operation.name)
        is_replay = entry.writer is not None and entry.writer[0] == operation.holder_id
        ends = list(entry.readers.values()) if entry.writer is None else [entry.writer[1]]
        line, party = self.line(operation.name), operation.party
        left_to_ms = None if ends else line.left_to_first(party, now)
        if left_to_ms is not None or (ends and not is_replay):
            if left_to_ms is None:
                left_ms, ahead = _ms(max(ends) - now), line.keep_place(party, now)
            else:
                left_ms, ahead = line.wait_behind(party, now, left_to_ms)
            presence_ms = operation.presence_ms
            if presence_ms:
                entry.waiting[operation.holder_id] = now + presence_ms / 1000
                left_ms = min(left_ms, ceil(presence_ms / 3))
            return Held(left_ms, ahead=ahead)
        if not is_replay:
            entry.token = max(entry.token + 1, int(now * 1_000_000))
            entry.waiting.pop(operation.holder_id, None)
            line.tell_following(operation.ttl_ms)
        entry.writer = (operation.holder_id, now + operation.ttl_ms / 1000)
        return Acquired(entry.token, operation.ttl_ms, replay=is_replay)

    def renew(self, operation: RenewReadWrite) -> Renewed | Lost:
        """Extend a lease; never re-create it."""
        entry, now = self._entry(operation.name)
        end = now + operation.ttl_ms / 1000
        if entry.writer is not None and entry.writer[0] == operation.holder_id:
            entry.writer = (operation.holder_id, end)
        elif operation.holder_id in entry.readers:
            entry.readers[operation.holder_id] = end
        else:
            return Lost()
        return Renewed(operation.ttl_ms)

    def release(self, operation: ReleaseReadWrite) -> Released | Lost:
        """End a lease, or a writer's waiting, and wake those that may now enter."""
        entry, _ = self._entry(operation.name)
        keys, holder_id = read_write_keys(operation.name), operation.holder_id
        if entry.writer is not None and entry.writer[0] == holder_id:
            entry.writer = None
            self._publish(keys.freed)
            self._publish(keys.opened)
            return Released()
        if holder_id in entry.readers:
            end = entry.readers.pop(holder_id)
            if all(other < end for other in entry.readers.values()):
                self._publish(keys.freed)
            return Released()
        is_last = entry.waiting.pop(holder_id, None) is not None and not entry.waiting
        if is_last and entry.writer is None:
            self._publish(keys.opened)
        return Lost()


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


KIND: Final = Kind(
    "read_write",
    "ReadWriteLock",
    "many readers, or one writer",
    ReadWriteModel,
    takes=(AcquireRead, AcquireWrite),
    counts_waiters=True,
)
