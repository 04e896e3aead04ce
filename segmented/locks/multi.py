"""`MultiLock`: several names at once, all or none.

The names are sorted, without repeats, and acquired in that order, as Havender proposed against deadlock ("Avoiding
deadlock in multitasking systems", 1968): whoever waits for a name holds only names before it, so no circle of waiters
can close among holders of MultiLocks. First all are asked for in one batch; when one of them is held, those that were
got are given back, and only then are they waited for, one by one.

Each name is a `Lock` of its own, in a hash slot of its own: no script spans them, and on a cluster they may live on
different servers. A name is excluded from `Lock` and `MultiLock` alike.

Guarantees: those of `Lock` for each name; nothing is held after an acquire that raised, or by a `try_acquire` that
returned None; no deadlock between MultiLocks. Not guaranteed: one instant at which all are taken. For the time of a
round trip a name may be held by an attempt that then gives it back, and while it waits for one name, earlier ones are
held. Whoever holds a lease and acquires another can still close a circle: put all the names into one MultiLock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from segmented.errors import AcquireTimeout, InvalidInput
from segmented.locks.claim import new_holder_id
from segmented.locks.durations import DEFAULT_WAIT, checked_name, checked_timeout, milliseconds
from segmented.locks.handle import DEFAULT_RENEW_MAX, DEFAULT_TTL, Acquiring
from segmented.locks.lease_state import Renewal
from segmented.locks.lock import LockClaim
from segmented.locks.multi_lease import AsyncMultiLease, MultiLease
from segmented.locks.multi_plan import multi_plan
from segmented.plans import run_async, run_sync
from segmented.plans.store_kinds import checked_async, checked_sync

if TYPE_CHECKING:
    from collections.abc import Iterable

    from segmented.plans.drivers import AsyncStore, Store


class _Names:
    """Names in order, time to live and renewal of a multi-lock."""

    def __init__(self, names: Iterable[str], *, ttl: float, renew: bool, renew_max: float) -> None:
        """Check what was given; raises InvalidInput."""
        if isinstance(names, str):
            message = f"the names of a multi-lock are several texts, not one: {names!r}"
            raise InvalidInput(message)
        self.names = tuple(sorted({checked_name(name) for name in names}))
        if not self.names:
            message = "a multi-lock needs at least one name"
            raise InvalidInput(message)
        self.ttl_ms = milliseconds(ttl, "ttl")
        self._renewal = Renewal(renew, milliseconds(renew_max, "renew_max") / 1000)

    def _claims(self) -> list[LockClaim]:
        holder_id = new_holder_id()
        return [LockClaim(name, holder_id, self.ttl_ms) for name in self.names]

    def __repr__(self) -> str:
        """Name the names and their time to live."""
        return f"{type(self).__name__}({list(self.names)!r}, ttl={self.ttl_ms / 1000:g})"


class MultiLock(_Names):
    """A lock on several names at once, for threads."""

    def __init__(
        self,
        store: Store,
        names: Iterable[str],
        *,
        ttl: float = DEFAULT_TTL,
        renew: bool = False,
        renew_max: float = DEFAULT_RENEW_MAX,
    ) -> None:
        """Lock all `names` on `store`, in whatever order they are given; a lease lives `ttl` seconds unless renewed.

        With `renew` it is renewed in the background every third of that, for `renew_max` seconds in all.
        """
        super().__init__(names, ttl=ttl, renew=renew, renew_max=renew_max)
        self._store = checked_sync(store, type(self).__name__)

    def acquire(self, *, timeout: float | None = DEFAULT_WAIT) -> MultiLease:
        """Wait up to `timeout` seconds for all names together (default: 60; None: for ever) and return the lease.

        Raises AcquireTimeout, which names the one that was not free; then none is held.
        """
        claims = self._claims()
        found = run_sync(multi_plan(claims, checked_timeout(timeout)), self._store)
        return MultiLease(self._store, claims, found, self._renewal)

    def try_acquire(self) -> MultiLease | None:
        """Return the lease if all names are free now, else None."""
        try:
            return self.acquire(timeout=0)
        except AcquireTimeout:
            return None


class AsyncMultiLock(_Names):
    """A lock on several names at once, for asyncio; otherwise as `MultiLock`."""

    def __init__(
        self,
        store: AsyncStore,
        names: Iterable[str],
        *,
        ttl: float = DEFAULT_TTL,
        renew: bool = False,
        renew_max: float = DEFAULT_RENEW_MAX,
    ) -> None:
        """Lock all `names` on `store`; a lease lives `ttl` seconds unless it is renewed. Options as `MultiLock`."""
        super().__init__(names, ttl=ttl, renew=renew, renew_max=renew_max)
        self._store = checked_async(store, type(self).__name__)

    def acquire(self, *, timeout: float | None = DEFAULT_WAIT) -> Acquiring[AsyncMultiLease]:
        """`await` it for the lease, or use it as `async with lock.acquire() as lease`. Raises AcquireTimeout.

        Waits up to `timeout` seconds for all names together (default: 60; None: for ever).
        """
        return Acquiring(self, checked_timeout(timeout))

    async def try_acquire(self) -> AsyncMultiLease | None:
        """Return the lease if all names are free now, else None."""
        try:
            return await self.acquire(timeout=0)
        except AcquireTimeout:
            return None

    async def _acquired(self, timeout: float | None) -> AsyncMultiLease:
        claims = self._claims()
        return AsyncMultiLease(
            self._store, claims, await run_async(multi_plan(claims, timeout), self._store), self._renewal
        )
