"""The model of named locks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from segmented.keys import lock_keys
from segmented.models import Acquired, Held, Lost, Released, Renewed

if TYPE_CHECKING:
    from collections.abc import Callable

    from segmented.clock import Clock
    from segmented.operations import AcquireLock, ReleaseLock, RenewLock


@dataclass(slots=True)
class _Lease:
    holder_id: str
    ends_at: float


class LockModel:
    """Leases by name, and the last fencing token and last releaser of each."""

    def __init__(self, clock: Clock, publish: Callable[[str], None]) -> None:
        """Tell `publish` each channel that gets a message."""
        self._clock = clock
        self._publish = publish
        self._leases: dict[str, _Lease] = {}
        self._tokens: dict[str, int] = {}
        self._releasers: dict[str, str] = {}

    def _living(self, name: str) -> _Lease | None:
        lease = self._leases.get(name)
        return lease if lease is not None and lease.ends_at > self._clock.now() else None

    def acquire(self, operation: AcquireLock) -> Acquired | Held:
        """Take the lock if it is free, or again if it is the holder's."""
        now = self._clock.now()
        lease = self._living(operation.name)
        if lease is not None and lease.holder_id != operation.holder_id:
            return Held(free_in_ms=round((lease.ends_at - now) * 1000))
        if lease is None:
            self._tokens[operation.name] = max(self._tokens.get(operation.name, 0) + 1, int(now * 1_000_000))
        self._leases[operation.name] = _Lease(operation.holder_id, now + operation.ttl_ms / 1000)
        return Acquired(self._tokens[operation.name], operation.ttl_ms, replay=lease is not None)

    def renew(self, operation: RenewLock) -> Renewed | Lost:
        """Push the end out, never re-create."""
        lease = self._living(operation.name)
        if lease is None or lease.holder_id != operation.holder_id:
            return Lost()
        lease.ends_at = self._clock.now() + operation.ttl_ms / 1000
        return Renewed(operation.ttl_ms)

    def release(self, operation: ReleaseLock) -> Released | Lost:
        """Compare and delete, then wake; a repeat after a lost reply is no loss."""
        lease = self._living(operation.name)
        if lease is None or lease.holder_id != operation.holder_id:
            return Released() if self._releasers.get(operation.name) == operation.holder_id else Lost()
        del self._leases[operation.name]
        self._releasers[operation.name] = operation.holder_id
        self._publish(lock_keys(operation.name).freed)
        return Released()
