"""`ZooKeeperLock`: a fair lock as a queue of ephemeral sequential nodes, through kazoo.

The algorithm is the lock recipe of the ZooKeeper documentation; `zookeeper_plan` lists our additions, and
`stores.zookeeper.trust` says how long a lease is trusted.

Guarantees: first come, first served; at most one live lease per name, as long as the ensemble keeps its promises; a
holder or waiter that dies leaves the queue when its session ends; a holder whose session is lost is notified within the
session time; an acquire that fails for any reason leaves no node behind. The fencing token is the zxid that created the
holder's node. ZooKeeper numbers all its changes with one counter, so the token grows with every grant of every lock,
even after the lock's parent node was deleted and created again, where a count kept by the parent would not. It starts
again only if the ensemble has lost its data.

Not guaranteed: exclusion of a holder that acts after its lease is lost; use the fencing token for that. Deleting a
holder's node by hand ends its lease, and the holder is notified within an eighth of the session time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from uuid import uuid4

from segmented.errors import AcquireTimeout
from segmented.locks.durations import DEFAULT_TIMEOUT, checked_name, checked_timeout
from segmented.locks.handle import Acquiring
from segmented.locks.hints import ENDLESS_HINTS, SESSION_HINTS, AcquireHinted
from segmented.locks.zookeeper_lease import AsyncZooKeeperLease, ZooKeeperLease
from segmented.locks.zookeeper_plan import Claim, acquire_plan, line_plan
from segmented.plans import run_async, run_sync
from segmented.stores.zookeeper import session_of
from segmented.stores.zookeeper.paths import checked_root, lock_path

if TYPE_CHECKING:
    from kazoo.client import KazooClient

    from segmented.clock import Duration
    from segmented.protocol.zookeeper.operations import Contender

DEFAULT_ROOT: Final = "/segmented/locks"


class _Handle(AcquireHinted):
    """The name and the path of a lock. It keeps nothing about a holder, so threads and tasks may share a handle."""

    _hints = SESSION_HINTS
    _option_hints = ENDLESS_HINTS

    def __init__(self, client: KazooClient, name: str, *, root: str = DEFAULT_ROOT) -> None:
        """Create a lock `name` with a kazoo client, which the caller starts and stops; locks are under the path `root`.

        It needs ZooKeeper 3.5 or newer. Raises InvalidInput if kazoo is missing (the extra `zookeeper`).
        """
        self.name = checked_name(name)
        self.path = lock_path(checked_root(root), name)
        """The parent node of the queue. It stays when the queue is empty; you may delete an empty one."""
        self._session = session_of(client)

    def _claim(self) -> Claim:
        return Claim(self.name, uuid4().hex, self.path)

    def __repr__(self) -> str:
        """Return the class, the name and the path."""
        return f"{type(self).__name__}({self.name!r}, path={self.path!r})"


class ZooKeeperLock(_Handle):
    """A lock by name, for threads."""

    def acquire(self, timeout: Duration | None = DEFAULT_TIMEOUT) -> ZooKeeperLease:
        """Wait up to `timeout` seconds (default: 60; None: forever) and return the lease.

        Raises AcquireTimeout if others hold the lock for longer, StoreUnavailable if ZooKeeper cannot be reached in
        that time or the session ends, and StoreRefused if the client is closed.
        """
        timeout = checked_timeout(timeout)
        claim = self._claim()
        with self._session.store() as store:
            lease = ZooKeeperLease(self._session, claim, run_sync(acquire_plan(claim, timeout), store))
            store.keep(claim.holder_id)
            return lease

    def try_acquire(self) -> ZooKeeperLease | None:
        """Return the lease if the lock is free now, otherwise None."""
        try:
            return self.acquire(timeout=0)
        except AcquireTimeout:
            return None

    def contenders(self) -> tuple[Contender, ...]:
        """Return the queue in order: the first holds the lock, the others wait."""
        with self._session.store() as store:
            return run_sync(line_plan(self._claim()), store)


class AsyncZooKeeperLock(_Handle):
    """A lock by name, for asyncio. kazoo works in its own threads; the event loop never waits for them."""

    def acquire(self, timeout: Duration | None = DEFAULT_TIMEOUT) -> Acquiring[AsyncZooKeeperLease]:
        """Return an acquire to `await`, or to use as `async with lock.acquire() as lease`; see `ZooKeeperLock`."""
        return Acquiring(self, checked_timeout(timeout))

    async def try_acquire(self) -> AsyncZooKeeperLease | None:
        """Return the lease if the lock is free now, otherwise None."""
        try:
            return await self.acquire(timeout=0)
        except AcquireTimeout:
            return None

    async def contenders(self) -> tuple[Contender, ...]:
        """Return the queue in order: the first holds the lock, the others wait."""
        with self._session.async_store() as store:
            return await run_async(line_plan(self._claim()), store)

    async def _acquired(self, timeout: float | None) -> AsyncZooKeeperLease:
        claim = self._claim()
        with self._session.async_store() as store:
            lease = AsyncZooKeeperLease(self._session, claim, await run_async(acquire_plan(claim, timeout), store))
            store.keep(claim.holder_id)
            return lease
