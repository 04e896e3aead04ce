"""`ZooKeeperLock`: a fair lock as a line of ephemeral sequential nodes, through kazoo.

The algorithm is the lock recipe of the ZooKeeper documentation; `zookeeper_plan` says what we settle beyond it, and
`stores.zookeeper.trust` for how long a lease is believed in.

Guarantees: first come, first served; one living lease a name, as long as the ensemble keeps its promises; a holder or
waiter that dies is out of the line when its session ends; a holder whose session is lost is told within the session
time; an acquire that fails, in whatever way, leaves no node behind. The fencing token is the zxid that created the
holder's node. ZooKeeper numbers all its changes with one counter, so the token grows with every grant of every lock,
also after the lock's parent node was deleted and made again, which a count by the parent does not survive. It starts
anew only when the ensemble has lost its data.

Not guaranteed: exclusion of a holder that acts after its lease is lost; the fencing token is for that. Deleting a
holder's node by hand takes its lease away, and it learns so within an eighth of the session time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from uuid import uuid4

from segmented.errors import AcquireTimeout
from segmented.locks.durations import DEFAULT_WAIT, checked_name, checked_timeout
from segmented.locks.handle import Acquiring
from segmented.locks.zookeeper_lease import AsyncZooKeeperLease, ZooKeeperLease
from segmented.locks.zookeeper_plan import Claim, acquire_plan, line_plan
from segmented.plans import run_async, run_sync
from segmented.stores.zookeeper import session_of
from segmented.stores.zookeeper.paths import checked_root, lock_path

if TYPE_CHECKING:
    from kazoo.client import KazooClient

    from segmented.protocol.zookeeper.operations import Contender

DEFAULT_ROOT: Final = "/segmented/locks"


class _Handle:
    """Name and place. Nothing about a holder is kept here, so threads and tasks may share a handle."""

    def __init__(self, client: KazooClient, name: str, *, root: str = DEFAULT_ROOT) -> None:
        """Lock `name` with a kazoo client, which the caller starts and stops; locks stand under the path `root`.

        ZooKeeper 3.5 or newer is needed. Raises InvalidInput when kazoo is missing (the extra `zookeeper`).
        """
        self.name = checked_name(name)
        self.path = lock_path(checked_root(root), name)
        """The parent of the line. It stays when the line is empty; an empty one may be deleted."""
        self._session = session_of(client)

    def _claim(self) -> Claim:
        return Claim(self.name, uuid4().hex, self.path)

    def __repr__(self) -> str:
        """Show the name and where it stands."""
        return f"{type(self).__name__}({self.name!r}, path={self.path!r})"


class ZooKeeperLock(_Handle):
    """A lock by name, for threads."""

    def acquire(self, *, timeout: float | None = DEFAULT_WAIT) -> ZooKeeperLease:
        """Wait up to `timeout` seconds (default: 60; None: for ever) and return the lease.

        Raises AcquireTimeout when others hold it for longer, StoreUnavailable when ZooKeeper cannot be reached in that
        time or the session ends, and StoreRefused when the client is closed.
        """
        timeout = checked_timeout(timeout)
        claim = self._claim()
        with self._session.store() as store:
            lease = ZooKeeperLease(self._session, claim, run_sync(acquire_plan(claim, timeout), store))
            store.keep(claim.holder_id)
            return lease

    def try_acquire(self) -> ZooKeeperLease | None:
        """Return the lease if the lock is free now, else None."""
        try:
            return self.acquire(timeout=0)
        except AcquireTimeout:
            return None

    def contenders(self) -> tuple[Contender, ...]:
        """Return who stands in line, in order: the first holds the lock, the others wait."""
        with self._session.store() as store:
            return run_sync(line_plan(self._claim()), store)


class AsyncZooKeeperLock(_Handle):
    """A lock by name, for asyncio. kazoo works in threads of its own; the event loop never waits for them."""

    def acquire(self, *, timeout: float | None = DEFAULT_WAIT) -> Acquiring[AsyncZooKeeperLease]:
        """`await` it for the lease, or use it as `async with lock.acquire() as lease`. Otherwise as `ZooKeeperLock`."""
        return Acquiring(self, checked_timeout(timeout))

    async def try_acquire(self) -> AsyncZooKeeperLease | None:
        """Return the lease if the lock is free now, else None."""
        try:
            return await self.acquire(timeout=0)
        except AcquireTimeout:
            return None

    async def contenders(self) -> tuple[Contender, ...]:
        """Return who stands in line, in order: the first holds the lock, the others wait."""
        with self._session.async_store() as store:
            return await run_async(line_plan(self._claim()), store)

    async def _acquired(self, timeout: float | None) -> AsyncZooKeeperLease:
        claim = self._claim()
        with self._session.async_store() as store:
            lease = AsyncZooKeeperLease(self._session, claim, await run_async(acquire_plan(claim, timeout), store))
            store.keep(claim.holder_id)
            return lease
