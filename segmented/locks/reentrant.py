"""`ReentrantLock`: an owner that holds the name may acquire it again, and holds it until the last lease is released.

The data and the timing are those of Redisson's `RLock`: a hash of owner -> count, and a lease of 30 s, with `renew`
renewed in the background every third of that. Five things differ. As for our other locks, a lease is renewed only with
`renew=True`. Every acquire has its own lease, so
the store keeps, beside the count, the set of its leases: an acquire that is sent twice counts once, a release that is
sent twice counts once, and a lease of another owner cannot lower the count. An owner is the thread, the task, or a name
of your own. Entering again keeps the fencing token, because the resource still has the same
writer. And releasing one of several leases keeps the time to live, which Redisson starts again.

Guarantees: at most one live owner per name, as long as the server keeps its memory. While an owner holds the lock, its
next acquire does not wait, not even behind others of its process. The lock lives as long as the longest of the owner's
leases; a shorter one never shortens it. Not guaranteed: that several acquires waiting under one owner's name get in
together; each has its own turn. An owner that is one thread or one task never waits twice. Otherwise as `Lock`: the
fencing token stops a holder that acts after its lease has expired.

The ids of threads and tasks are random, belong to the thread or task, and end with it. The system's numbers are reused
by later threads, and every task that the owner starts would inherit a context variable; a forked child has its own ids.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self
from weakref import WeakKeyDictionary

from segmented.errors import InvalidInput
from segmented.keys import reentrant_keys
from segmented.locks.claim import Claim, new_holder_id
from segmented.locks.durations import DEFAULT_TIMEOUT, checked_name
from segmented.locks.handle import DEFAULT_RENEW_MAX, DEFAULT_TTL, Acquiring, AsyncFencedHandle, FencedHandle
from segmented.process import after_fork_in_child
from segmented.protocol.reentrant import AcquireReentrant, ReleaseReentrant, RenewReentrant

if TYPE_CHECKING:
    from segmented.clock import Duration
    from segmented.locks.lease import AsyncLease, Lease
    from segmented.plans.drivers import AsyncStore, Store

Owner = str | Callable[[], str]
"""An owner, or a function that returns the current owner: `thread_owner`, `task_owner`."""
_threads = threading.local()
_tasks: WeakKeyDictionary[asyncio.Task[Any], str] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class ReentrantClaim(Claim):
    """A claim to another entry of an owner."""

    kind: ClassVar[str] = "reentrant"
    owner: str

    @property
    def channel(self) -> str:
        """Return the channel: one message when the last entry is released."""
        return reentrant_keys(self.name).freed

    def acquiring(self) -> AcquireReentrant:
        """Return the operation that takes the entry."""
        return AcquireReentrant(self.name, self.owner, self.holder_id, self.ttl_ms)

    def acquiring_in_line(self, party: str) -> AcquireReentrant:
        """Return the attempt of a process that waits, or would."""
        return replace(self.acquiring(), party=party)

    def acquiring_when_behind(self) -> AcquireReentrant:
        """Return an attempt that enters only if the owner holds the lock: waiters ahead of it wait for this owner."""
        return AcquireReentrant(self.name, self.owner, self.holder_id, self.ttl_ms, only_again=True)

    def renewing(self, ttl_ms: int) -> RenewReentrant:
        """Return the operation that renews the entry."""
        return RenewReentrant(self.name, self.owner, self.holder_id, ttl_ms)

    def releasing(self) -> ReleaseReentrant:
        """Return the operation that ends the entry."""
        return ReleaseReentrant(self.name, self.owner, self.holder_id)


class AsyncReentrantLock(AsyncFencedHandle):
    """A reentrant lock by name, for asyncio."""

    def __init__(
        self,
        store: AsyncStore,
        name: str,
        *,
        owner: Owner | None = None,
        ttl: Duration = DEFAULT_TTL,
        renew: bool = False,
        renew_max: Duration = DEFAULT_RENEW_MAX,
    ) -> None:
        """Create a lock `name` on `store` for `owner`: a name, or by default the current task.

        A lease lives `ttl` seconds unless it is renewed. With `renew`, it is renewed in the background every third of
        `ttl`, for `renew_max` seconds in all.
        """
        super().__init__(store, name, ttl=ttl, renew=renew, renew_max=renew_max)
        self._owner = task_owner if owner is None else owner

    def _described(self) -> str:
        return described_owner(self._owner)

    def _for(self, owner: Owner | None) -> Self:
        """Return a copy of this handle with the current owner's name."""
        known = checked_owner(self._owner if owner is None else owner)
        found = copy(self)
        found._owner = known  # noqa: SLF001  # a handle of this class
        return found

    def _claim(self) -> ReentrantClaim:
        return ReentrantClaim(self.name, new_holder_id(), self.ttl_ms, checked_owner(self._owner))

    def acquire(
        self, timeout: Duration | None = DEFAULT_TIMEOUT, *, owner: Owner | None = None
    ) -> Acquiring[AsyncLease]:
        """Enter as `owner` (default: the handle's), at once if it holds the lock, and return a new lease.

        Otherwise wait up to `timeout` seconds (default: 60; None: forever). Raises AcquireTimeout. This call fixes the
        owner. Use it as `lease = await lock.acquire()`, or as `async with lock.acquire() as lease`.
        """
        return super(AsyncReentrantLock, self._for(owner)).acquire(timeout=timeout)

    def try_acquire(self, *, owner: Owner | None = None) -> Coroutine[Any, Any, AsyncLease | None]:
        """Return a lease if the lock is free or held by the owner, otherwise None. This call fixes the owner."""
        return super(AsyncReentrantLock, self._for(owner)).try_acquire()


def thread_owner() -> str:
    """Return the id of the current thread as an owner. It is unique and stays the same while the thread lives.

    Do not use it with asyncio: all tasks of a loop share one thread, so they would enter each other's locks. Once
    gevent has patched `threading`, each greenlet is a thread.
    """
    global _threads  # noqa: PLW0603  # the ids of the whole process
    if type(_threads) is not threading.local:  # gevent has patched it, and all greenlets share what was made before
        _threads = threading.local()
    found: str | None = getattr(_threads, "owner", None)
    if found is None:
        found = _threads.owner = f"thread-{new_holder_id()}"
    return found


def task_owner() -> str:
    """Return the id of the current asyncio task as an owner. It is unique and stays the same while the task lives.

    A task that the owner starts is another owner. Raises InvalidInput outside a task.
    """
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no event loop is running
        task = None
    if task is None:
        raise InvalidInput("task_owner() was called outside an asyncio task")
    if task not in _tasks:
        _tasks[task] = f"task-{new_holder_id()}"
    return _tasks[task]


def described_owner(owner: Owner) -> str:
    """Return the part of a handle's repr that names its owner: a name, or the function that tells it."""
    return f", owner={getattr(owner, '__name__', repr(owner)) if callable(owner) else repr(owner)}"


def checked_owner(owner: Owner) -> str:
    """Return the owner's name. Raises InvalidInput if it cannot be in a key."""
    return checked_name(owner() if callable(owner) else owner, "an owner")


def _forget_parents() -> None:
    # The child's only thread is a copy of a thread of the parent that still holds its locks.
    global _threads  # noqa: PLW0603  # the ids of the whole process
    _threads = threading.local()
    _tasks.clear()


after_fork_in_child(_forget_parents)


# --- For threads: written by `make sync` from the classes above. ---


class ReentrantLock(FencedHandle):
    """A reentrant lock by name, for threads."""

    def __init__(
        self,
        store: Store,
        name: str,
        *,
        owner: Owner | None = None,
        ttl: Duration = DEFAULT_TTL,
        renew: bool = False,
        renew_max: Duration = DEFAULT_RENEW_MAX,
    ) -> None:
        """Create a lock `name` on `store` for `owner`: a name, or by default the current thread.

        A lease lives `ttl` seconds unless it is renewed. With `renew`, it is renewed in the background every third of
        `ttl`, for `renew_max` seconds in all.
        """
        super().__init__(store, name, ttl=ttl, renew=renew, renew_max=renew_max)
        self._owner = thread_owner if owner is None else owner

    def _described(self) -> str:
        return described_owner(self._owner)

    def _for(self, owner: Owner | None) -> Self:
        """Return a copy of this handle with the current owner's name."""
        known = checked_owner(self._owner if owner is None else owner)
        found = copy(self)
        found._owner = known  # noqa: SLF001  # a handle of this class
        return found

    def _claim(self) -> ReentrantClaim:
        return ReentrantClaim(self.name, new_holder_id(), self.ttl_ms, checked_owner(self._owner))

    def acquire(self, timeout: Duration | None = DEFAULT_TIMEOUT, *, owner: Owner | None = None) -> Lease:
        """Enter as `owner` (default: the handle's), at once if it holds the lock, and return a new lease.

        Otherwise wait up to `timeout` seconds (default: 60; None: forever). Raises AcquireTimeout. This call fixes the
        owner. Use it as `lease = lock.acquire()`, or as `with lock.acquire() as lease`.
        """
        return super(ReentrantLock, self._for(owner)).acquire(timeout=timeout)

    def try_acquire(self, *, owner: Owner | None = None) -> Lease | None:
        """Return a lease if the lock is free or held by the owner, otherwise None. This call fixes the owner."""
        return super(ReentrantLock, self._for(owner)).try_acquire()
