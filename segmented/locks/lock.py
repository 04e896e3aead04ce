"""`Lock`: SET NX PX with compare-and-delete, a fencing token, and waiting that never polls.

The algorithm is the single-instance lock of the Redis documentation ("Distributed Locks with Redis"), with a fencing
token after Kleppmann ("How to do distributed locking", 2016): `max(last + 1, server time in microseconds)`.

Guarantees: one living lease a name, as long as the server keeps its memory. An acquire whose reply was lost is told yes
when it is repeated; one that is cancelled leaves nothing behind. Not guaranteed: exclusion across a failover that loses
the key, and a holder that acts after its lease has lapsed; the fencing token is for those.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from segmented.errors import AcquireTimeout, InvalidInput, LeaseLost, StoreError
from segmented.keys import lock_keys
from segmented.locks.durations import checked_timeout, milliseconds
from segmented.locks.lease import AsyncLease, Lease
from segmented.locks.lease_state import Renewal, trusted_until
from segmented.models import Acquired, Held
from segmented.operations import AcquireLock, ReleaseLock
from segmented.plans import Now, Plan, perform, run_async, run_sync, wait_for

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import TracebackType

    from segmented.plans.drivers import AsyncStore, Store

DEFAULT_TTL = 30.0
DEFAULT_RENEW_MAX = 3600.0


def acquire_plan(name: str, holder_id: str, ttl_ms: int, timeout: float | None) -> Plan[tuple[Acquired, float] | None]:
    """Acquire within `timeout` seconds; None when it was not free in time.

    Raises LeaseLost when the answer took longer than the lease lasts: it is given back, not handed out.
    """
    answer, asked_at = yield from wait_for(
        AcquireLock(name, holder_id, ttl_ms),
        channel=lock_keys(name).freed,
        timeout=timeout,
        is_busy=lambda answer: isinstance(answer, Held),
        undo=ReleaseLock(name, holder_id),
    )
    if not isinstance(answer, Acquired):
        return None
    if (yield from perform(Now())) >= trusted_until(asked_at, ttl_ms):
        with suppress(StoreError):  # it lapses anyway
            yield from perform(ReleaseLock(name, holder_id))
        raise LeaseLost(name, holder_id)
    return answer, asked_at


class _Handle:
    """Name, time to live and renewal. Nothing about a holder is kept here, so threads and tasks may share a handle."""

    def __init__(self, name: str, *, ttl: float, renew: bool, renew_max: float) -> None:
        if not name:
            message = "a lock needs a name"
            raise InvalidInput(message)
        self.name = name
        self.ttl_ms = milliseconds(ttl, "ttl")
        self._renewal = Renewal(renew, milliseconds(renew_max, "renew_max") / 1000)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, ttl={self.ttl_ms / 1000:g})"


class Lock(_Handle):
    """A lock by name, for threads."""

    def __init__(
        self,
        store: Store,
        name: str,
        *,
        ttl: float = DEFAULT_TTL,
        renew: bool = False,
        renew_max: float = DEFAULT_RENEW_MAX,
    ) -> None:
        """Lock `name` on `store`; a lease lives `ttl` seconds unless it is renewed.

        With `renew` it is renewed in the background every third of that, for `renew_max` seconds in all.
        """
        super().__init__(name, ttl=ttl, renew=renew, renew_max=renew_max)
        self._store = store

    def acquire(self, *, timeout: float | None = None) -> Lease:
        """Wait up to `timeout` seconds (None: for ever) and return the lease. Raises AcquireTimeout."""
        holder_id = uuid4().hex
        found = run_sync(acquire_plan(self.name, holder_id, self.ttl_ms, checked_timeout(timeout)), self._store)
        if found is None:
            raise AcquireTimeout(self.name, timeout or 0.0)
        return Lease(self._store, self.name, holder_id, self._renewal, *found)

    def try_acquire(self) -> Lease | None:
        """Return the lease if the lock is free now, else None."""
        holder_id = uuid4().hex
        found = run_sync(acquire_plan(self.name, holder_id, self.ttl_ms, 0), self._store)
        return None if found is None else Lease(self._store, self.name, holder_id, self._renewal, *found)


class AsyncLock(_Handle):
    """A lock by name, for asyncio."""

    def __init__(
        self,
        store: AsyncStore,
        name: str,
        *,
        ttl: float = DEFAULT_TTL,
        renew: bool = False,
        renew_max: float = DEFAULT_RENEW_MAX,
    ) -> None:
        """Lock `name` on `store`; a lease lives `ttl` seconds unless it is renewed.

        With `renew` it is renewed in the background every third of that, for `renew_max` seconds in all.
        """
        super().__init__(name, ttl=ttl, renew=renew, renew_max=renew_max)
        self._store = store

    def acquire(self, *, timeout: float | None = None) -> Acquiring:
        """`await` it for the lease, or use it as `async with lock.acquire() as lease`. Raises AcquireTimeout."""
        return Acquiring(self, checked_timeout(timeout))

    async def try_acquire(self) -> AsyncLease | None:
        """Return the lease if the lock is free now, else None."""
        return await self._acquired(0)

    async def _acquired(self, timeout: float | None) -> AsyncLease | None:
        holder_id = uuid4().hex
        found = await run_async(acquire_plan(self.name, holder_id, self.ttl_ms, timeout), self._store)
        return None if found is None else AsyncLease(self._store, self.name, holder_id, self._renewal, *found)


class Acquiring:
    """An acquire that has not begun: awaitable, and an asynchronous context manager."""

    def __init__(self, lock: AsyncLock, timeout: float | None) -> None:
        """Acquire `lock` when asked."""
        self._lock = lock
        self._timeout = timeout
        self._lease: AsyncLease | None = None

    async def _acquire(self) -> AsyncLease:
        lease = await self._lock._acquired(self._timeout)  # noqa: SLF001  # the two classes are one object in two steps
        if lease is None:
            raise AcquireTimeout(self._lock.name, self._timeout or 0.0)
        return lease

    def __await__(self) -> Generator[Any, Any, AsyncLease]:
        """Acquire."""
        return self._acquire().__await__()

    async def __aenter__(self) -> AsyncLease:
        """Acquire."""
        self._lease = await self._acquire()
        return self._lease

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release."""
        if self._lease is not None:
            await self._lease.__aexit__(kind, error, trace)
