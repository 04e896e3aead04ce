"""The model of named locks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from segmented import protocol as op
from segmented.errors import InvalidInput
from segmented.keys import lock_keys
from segmented.models import Acquired, Held, Lost, Released, Renewed
from segmented.models.locks import HOLDER_ID_SHOWN, LockHolder, LockState
from segmented.protocol.kinds import Kind
from segmented.protocol.lock.line_model import LineModel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from segmented.clock import Clock
    from segmented.protocol import AcquireLock, AdoptLock, ReleaseLock, RenameHolder, RenewLock
    from segmented.protocol.kinds import Bodies


@dataclass(slots=True)
class _Lease:
    holder_id: str
    ends_at: float
    delay: float
    """Seconds for which the name stays closed after the lease ends."""


class LockModel:
    """Leases by name, and the last fencing token and last releaser of each."""

    def __init__(self, clock: Clock, publish: Callable[[str], None]) -> None:
        """Create a model without leases that calls `publish` with each channel that gets a message."""
        self._clock = clock
        self._publish = publish
        self._leases: dict[str, _Lease] = {}
        self._tokens: dict[str, int] = {}
        self._releasers: dict[str, str] = {}
        self._revoked: dict[str, int] = {}
        self._waiting: dict[str, LineModel] = {}

    def bodies(self) -> Bodies:
        """Return the method that performs each operation."""
        return {
            op.AcquireLock: self.acquire,
            op.AdoptLock: self.adopt,
            op.RenameHolder: self.rename,
            op.RenewLock: self.renew,
            op.ReleaseLock: self.release,
        }

    def holds(self, name: str) -> bool:
        """Return whether the name is taken by a lease or by the delay after one."""
        lease = self._leases.get(name)
        return lease is not None and lease.ends_at + lease.delay > self._clock.now()

    def names(self) -> Iterable[str]:
        """Return the names it has seen."""
        return list(self._leases)

    def state(self, name: str, holders_max: int) -> LockState | None:  # noqa: ARG002  # there is one at most
        """Return the state of the name: its holder, or its delay."""
        if not self.holds(name):
            return None
        lease, now = self._leases[name], self._clock.now()
        is_delayed = lease.ends_at <= now
        remaining_ms = round((lease.ends_at - now) * 1000)
        holder = LockHolder(lease.holder_id[:HOLDER_ID_SHOWN], "exclusive", remaining_ms)
        return LockState(
            name=name,
            kind="lock",
            holders=() if is_delayed else (holder,),
            holder_count=0 if is_delayed else 1,
            free_in_ms=round((lease.ends_at + lease.delay - now) * 1000),
            fencing_token=self._tokens[name],
            is_delayed=is_delayed,
        )

    def revoke(self, name: str) -> None:
        """End the lease and its delay, and wake the waiters; the holder's next operation gets Lost."""
        del self._leases[name]
        self._revoked[name] = self._tokens[name]
        self._publish(lock_keys(name).freed)

    def holder(self, name: str) -> str | None:
        """Return the lease that takes the name, if any."""
        return self._leases[name].holder_id if self.holds(name) else None

    def last_token(self, name: str) -> int | None:
        """Return the last token granted, if any."""
        return self._tokens.get(name)

    def _living(self, name: str, holder_id: str) -> _Lease | None:
        lease = self._leases.get(name)
        is_living = lease is not None and lease.holder_id == holder_id and lease.ends_at > self._clock.now()
        return lease if is_living else None

    def acquire(self, operation: AcquireLock) -> Acquired | Held:
        """Take the lock if it is free or already the holder's."""
        if operation.is_key:
            message = f"{operation.name!r} should be locked as a key on a server, but this store has no keys"
            raise InvalidInput(message)
        now = self._clock.now()
        lease = self._leases.get(operation.name)
        if lease is not None and lease.ends_at + lease.delay <= now:
            lease = None
        line = self.line(operation.name)
        if lease is not None and lease.holder_id != operation.holder_id:
            free_in_ms = round((lease.ends_at + lease.delay - now) * 1000)
            return Held(free_in_ms, is_delayed=lease.ends_at <= now, ahead=line.keep_place(operation.party, now))
        if lease is None and (left_ms := line.left_to_first(operation.party, now)) is not None:
            free_in_ms, ahead = line.wait_behind(operation.party, now, left_ms)
            return Held(free_in_ms, ahead=ahead)
        if lease is None:
            self._tokens[operation.name] = max(self._tokens.get(operation.name, 0) + 1, int(now * 1_000_000))
            line.tell_following(operation.ttl_ms + operation.delay_ms)
        ends_at = now + operation.ttl_ms / 1000
        self._leases[operation.name] = _Lease(operation.holder_id, ends_at, operation.delay_ms / 1000)
        return Acquired(self._tokens[operation.name], operation.ttl_ms, replay=lease is not None)

    def line(self, name: str) -> LineModel:
        """Return the line of the processes that wait for the name."""
        return self._waiting.setdefault(name, LineModel(lock_keys(name).freed, self._publish))

    def adopt(self, operation: AdoptLock) -> Acquired | Lost:
        """Return the holder's token and remaining time."""
        lease = self._living(operation.name, operation.holder_id)
        if lease is None:
            return Lost()
        remaining_ms = int((lease.ends_at - self._clock.now()) * 1000)
        return Acquired(self._tokens[operation.name], remaining_ms, replay=True)

    def renew(self, operation: RenewLock) -> Renewed | Lost:
        """Extend the lease; never re-create it."""
        lease = self._living(operation.name, operation.holder_id)
        if lease is None:
            return Lost()
        lease.ends_at = self._clock.now() + operation.ttl_ms / 1000
        return Renewed(operation.ttl_ms)

    def rename(self, operation: RenameHolder) -> bool:
        """Give the lease another holder id; a repeat gets True again."""
        lease = self._living(operation.name, operation.holder_id)
        if lease is None:
            return self._living(operation.name, operation.new_holder_id) is not None
        lease.holder_id = operation.new_holder_id
        return True

    def release(self, operation: ReleaseLock) -> Released | Lost:
        """Compare and delete, then wake a waiter; a repeat after a lost reply is not a loss."""
        if self._living(operation.name, operation.holder_id) is None:
            if self._releasers.get(operation.name) == operation.holder_id:
                return Released()
            return Lost(
                is_forgotten=operation.name not in self._tokens, revoked_token=self._revoked.get(operation.name)
            )
        del self._leases[operation.name]
        self._releasers[operation.name] = operation.holder_id
        if not operation.quiet:
            self._publish(lock_keys(operation.name).freed)
        return Released()


KIND: Final = Kind("lock", "Lock", "one at a time", LockModel, takes=(op.AcquireLock, op.ReadOrAcquire))
