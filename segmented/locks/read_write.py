"""`ReadWriteLock`: many readers or one writer, each with its own lease; a waiting writer goes first.

After the shared locks of ZooKeeper's recipes and Courtois, Heymans and Parnas ("Concurrent control with readers and
writers", 1971, the second problem: no writer waits longer than the readers that are in). A waiting writer blocks new
readers. Waiters block others only in this way, and a waiting writer waits only for current holders, so there is no
cycle (kazoo's issue 649). New readers get in again when the writer gives up, or soon after it dies: its presence
expires after its time to live, or ten seconds if that is less, and is renewed while it waits.

Fencing tokens come from one counter, as Chubby's generation numbers do (Burrows, 2006, section 2.4): a writer gets a
new one, and overlapping readers share the one of their phase. So a resource can compare all tokens the same way: it
refuses a reader exactly when a writer, or a later phase of readers, has reached it since.

Guarantees: a writer never holds the lock beside another holder, by the server's clock; each reader's lease expires on
its own. Not guaranteed: the order among writers, and that readers get in while writers keep coming. A reader must not
ask for a second lease, to read or to write, while it holds one: with a writer waiting it would wait for itself until
its timeout. As with `Lock`, a failover that loses the keys and a holder that acts after its lease has expired are not
excluded; use the fencing token for those.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING, ClassVar, Final
from weakref import ref

from segmented.errors import AcquireTimeout
from segmented.keys import read_write_keys
from segmented.locks.claim import Claim, new_holder_id
from segmented.locks.handle import DEFAULT_RENEW_MAX, DEFAULT_TTL, AsyncFencedHandle, FencedHandle
from segmented.locks.hints import Hinted, hinted
from segmented.protocol.read_write import AcquireRead, AcquireWrite, ReleaseReadWrite, RenewReadWrite

if TYPE_CHECKING:
    from segmented.clock import Duration
    from segmented.locks.lease import AsyncLease, Lease
    from segmented.plans.drivers import AsyncStore, Store

PRESENCE_MS_MAX: Final = 10_000
"""Maximum time for which a waiting writer that died blocks readers."""


@dataclass(frozen=True, slots=True)
class _ReadWriteClaim(Claim):
    kind: ClassVar[str] = "read_write"

    def renewing(self, ttl_ms: int) -> RenewReadWrite:
        """Return the operation that renews the lease."""
        return RenewReadWrite(self.name, self.holder_id, ttl_ms)

    def releasing(self) -> ReleaseReadWrite:
        """Return the operation that ends the lease or the wait."""
        return ReleaseReadWrite(self.name, self.holder_id)


@dataclass(frozen=True, slots=True)
class ReadClaim(_ReadWriteClaim):
    """A claim to read."""

    mode: ClassVar[str] = "shared"

    @property
    def channel(self) -> str:
        """Return the channel: one message when readers may enter; each reader that enters notifies the next."""
        return read_write_keys(self.name).opened

    def acquiring(self) -> AcquireRead:
        """Return the operation that takes a lease to read."""
        return AcquireRead(self.name, self.holder_id, self.ttl_ms)


@dataclass(frozen=True, slots=True)
class WriteTry(_ReadWriteClaim):
    """A claim to write that does not wait, and so does not block readers."""

    presence_ms: int = 0

    @property
    def channel(self) -> str:
        """Return the channel: one message when the lock is free."""
        return read_write_keys(self.name).freed

    def acquiring(self) -> AcquireWrite:
        """Return the operation that takes the lease to write."""
        return AcquireWrite(self.name, self.holder_id, self.ttl_ms, self.presence_ms)

    def acquiring_in_line(self, party: str) -> AcquireWrite:
        """Return the attempt of a process that waits, or would."""
        return replace(self.acquiring(), party=party)


@dataclass(frozen=True, slots=True)
class WriteClaim(WriteTry):
    """A claim to write that may wait: it records its presence, which is removed if the wait ends."""

    leaves_traces: ClassVar[bool] = True


def write_claim(name: str, ttl_ms: int, timeout: float | None) -> WriteTry:
    """Return a claim to write that waits up to `timeout` seconds; its presence lasts no longer than the wait."""
    holder_id = new_holder_id()
    if timeout == 0:
        return WriteTry(name, holder_id, ttl_ms)
    timeout_ms = inf if timeout is None else max(1.0, timeout * 1000)
    return WriteClaim(name, holder_id, ttl_ms, round(min(ttl_ms, PRESENCE_MS_MAX, timeout_ms)))


class _Own:
    """The leases of one lock object. A caller that has one waits for itself if it asks for another."""

    def __init__(self) -> None:
        self._leases: tuple[ref[Lease | AsyncLease], ...] = ()

    def add(self, lease: Lease | AsyncLease) -> None:
        """Note a lease, and forget those that have ended."""
        self._leases = (*self._living(), ref(lease))

    def explained(self, error: AcquireTimeout) -> AcquireTimeout:
        """Return the error, which says so if a lease of this object may be what it waited for."""
        return AcquireTimeout(error.name, error.timeout, is_held_here=True) if self._living() else error

    def _living(self) -> tuple[ref[Lease | AsyncLease], ...]:
        return tuple(one for one in self._leases if (lease := one()) is not None and not lease.has_ended)


class _AsyncSide(AsyncFencedHandle):
    """One side of a lock, for asyncio."""

    @cached_property
    def own(self) -> _Own:
        """The leases of this lock object, of both sides."""
        return _Own()

    async def _taken(self, claim: Claim, timeout: float | None) -> AsyncLease:
        try:
            lease = await super()._taken(claim, timeout)
        except AcquireTimeout as error:
            raise self.own.explained(error) from None
        self.own.add(lease)
        return lease


class AsyncReadLock(_AsyncSide):
    """The readers' side of an `AsyncReadWriteLock`, for asyncio."""

    def _claim(self) -> ReadClaim:
        return ReadClaim(self.name, new_holder_id(), self.ttl_ms)


class AsyncWriteLock(_AsyncSide):
    """The writers' side of an `AsyncReadWriteLock`, for asyncio. While one waits, no new reader gets in."""

    _is_exclusive = True

    async def _acquired(self, timeout: float | None) -> AsyncLease:
        return await self._taken(write_claim(self.name, self.ttl_ms, timeout), timeout)

    def _claim(self) -> WriteTry:
        return write_claim(self.name, self.ttl_ms, None)


@hinted
class AsyncReadWriteLock(Hinted):
    """A lock by name for many readers or one writer, for asyncio: `lock.read.acquire()`, `lock.write.acquire()`."""

    def __init__(
        self,
        store: AsyncStore,
        name: str,
        *,
        ttl: Duration = DEFAULT_TTL,
        renew: bool = False,
        renew_max: Duration = DEFAULT_RENEW_MAX,
    ) -> None:
        """Create a lock `name` on `store`; each lease lives `ttl` seconds unless it is renewed.

        With `renew`, it is renewed in the background every third of `ttl`, for `renew_max` seconds in all.
        """
        self.read = AsyncReadLock(store, name, ttl=ttl, renew=renew, renew_max=renew_max)
        """For readers: `acquire`, `try_acquire`."""
        self.write = AsyncWriteLock(store, name, ttl=ttl, renew=renew, renew_max=renew_max)
        """For writers: `acquire`, `try_acquire`."""
        self.write.own = self.read.own
        self.name = self.read.name

    def __repr__(self) -> str:
        return repr(self.read).replace("ReadLock", "ReadWriteLock", 1)


# --- For threads: written by `make sync` from the classes above. ---


class _Side(FencedHandle):
    """One side of a lock, for threads."""

    @cached_property
    def own(self) -> _Own:
        """The leases of this lock object, of both sides."""
        return _Own()

    def _taken(self, claim: Claim, timeout: float | None) -> Lease:
        try:
            lease = super()._taken(claim, timeout)
        except AcquireTimeout as error:
            raise self.own.explained(error) from None
        self.own.add(lease)
        return lease


class ReadLock(_Side):
    """The readers' side of a `ReadWriteLock`, for threads."""

    def _claim(self) -> ReadClaim:
        return ReadClaim(self.name, new_holder_id(), self.ttl_ms)


class WriteLock(_Side):
    """The writers' side of a `ReadWriteLock`, for threads. While one waits, no new reader gets in."""

    _is_exclusive = True

    def _acquired(self, timeout: float | None) -> Lease:
        return self._taken(write_claim(self.name, self.ttl_ms, timeout), timeout)

    def _claim(self) -> WriteTry:
        return write_claim(self.name, self.ttl_ms, None)


@hinted
class ReadWriteLock(Hinted):
    """A lock by name for many readers or one writer, for threads: `lock.read.acquire()`, `lock.write.acquire()`."""

    def __init__(
        self,
        store: Store,
        name: str,
        *,
        ttl: Duration = DEFAULT_TTL,
        renew: bool = False,
        renew_max: Duration = DEFAULT_RENEW_MAX,
    ) -> None:
        """Create a lock `name` on `store`; each lease lives `ttl` seconds unless it is renewed.

        With `renew`, it is renewed in the background every third of `ttl`, for `renew_max` seconds in all.
        """
        self.read = ReadLock(store, name, ttl=ttl, renew=renew, renew_max=renew_max)
        """For readers: `acquire`, `try_acquire`."""
        self.write = WriteLock(store, name, ttl=ttl, renew=renew, renew_max=renew_max)
        """For writers: `acquire`, `try_acquire`."""
        self.write.own = self.read.own
        self.name = self.read.name

    def __repr__(self) -> str:
        return repr(self.read).replace("ReadLock", "ReadWriteLock", 1)
