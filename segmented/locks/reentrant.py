"""`ReentrantLock`: an owner that holds the name may acquire it again, and holds it until the last lease is released.

The shape and the rhythm are those of Redisson's `RLock`: a hash of owner -> count, a lease of 30 s, renewed in the
background every third of that, here too unless it is told not to. Four things differ. Every acquire has a lease of its
own, so the store keeps, beside the count, the set of the leases that make it up: an acquire that is sent twice counts
once, a release that is sent twice takes one off, and nobody else's lease can take any off. Who the owner is, is always
said (`thread_owner`, `task_owner`, a name), never taken from where the code runs. Entering again leaves the fencing
token as it is, because the resource has one and the same writer. And releasing one of several leases leaves the time to
live as it is, where Redisson starts it anew.

Guarantees: one living owner a name, as long as the server keeps its memory. While an owner holds it, its next acquire
does not wait, also not behind others of its process. The lock lives as long as the longest-living of the owner's leases
was promised; a shorter one never shortens it. Not guaranteed: that of several acquires that wait under one owner's name
at the same time the second is let in with the first; it has its turn like any other's, and an owner that is one thread
or one task is never in that place. Otherwise as `Lock`: the fencing token is what stops a holder that acts after its
lease has lapsed.

The ids of threads and tasks are random, belong to the thread or task itself, and end with it. Numbers would be given to
a later thread again, and a context variable would be inherited by every task that the owner starts; a fork has ids of
its own.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self
from uuid import uuid4
from weakref import WeakKeyDictionary

from segmented.errors import InvalidInput
from segmented.forks import after_fork_in_child
from segmented.keys import reentrant_keys
from segmented.locks.claim import Claim
from segmented.locks.durations import DEFAULT_WAIT, checked_name
from segmented.locks.handle import DEFAULT_RENEW_MAX, DEFAULT_TTL, AsyncFencedHandle, FencedHandle
from segmented.protocol import AcquireReentrant, ReleaseReentrant, RenewReentrant

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from segmented.locks.handle import Acquiring
    from segmented.locks.lease import AsyncLease, Lease
    from segmented.plans.drivers import AsyncStore, Store

Owner = str | Callable[[], str]
"""An owner, or what tells the owner of the moment: `thread_owner`, `task_owner`."""
_threads = threading.local()
_tasks: WeakKeyDictionary[asyncio.Task[Any], str] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class ReentrantClaim(Claim):
    """A claim to one more entry of an owner."""

    kind: ClassVar[str] = "reentrant"
    owner: str

    @property
    def channel(self) -> str:
        """One message when the last entry is released."""
        return reentrant_keys(self.name).freed

    def acquiring(self) -> AcquireReentrant:
        """Ask for the entry."""
        return AcquireReentrant(self.name, self.owner, self.holder_id, self.ttl_ms)

    def acquiring_when_behind(self) -> AcquireReentrant:
        """Ask for the entry if the owner holds the lock: those ahead in the line wait for this very owner to go."""
        return AcquireReentrant(self.name, self.owner, self.holder_id, self.ttl_ms, only_again=True)

    def renewing(self, ttl_ms: int) -> RenewReentrant:
        """Ask for more time."""
        return RenewReentrant(self.name, self.owner, self.holder_id, ttl_ms)

    def releasing(self) -> ReleaseReentrant:
        """End the entry."""
        return ReleaseReentrant(self.name, self.owner, self.holder_id)


class ReentrantLock(FencedHandle):
    """A reentrant lock by name, for threads."""

    def __init__(
        self,
        store: Store,
        name: str,
        *,
        owner: Owner | None = None,
        ttl: float = DEFAULT_TTL,
        renew: bool = True,
        renew_max: float = DEFAULT_RENEW_MAX,
    ) -> None:
        """Lock `name` on `store` for `owner`: a name, `thread_owner` itself, or None to say it at every acquire.

        A lease lives `ttl` seconds unless it is renewed. Unless `renew` is False it is renewed in the background every
        third of that, for `renew_max` seconds in all.
        """
        super().__init__(store, name, ttl=ttl, renew=renew, renew_max=renew_max)
        self._owner = owner

    def _for(self, owner: Owner | None) -> Self:
        """Return the same handle for an owner that is known by name, as it is now."""
        known = checked_owner(self._owner if owner is None else owner)
        found = copy(self)
        found._owner = known  # noqa: SLF001  # a handle of this very class
        return found

    def _claim(self) -> ReentrantClaim:
        return ReentrantClaim(self.name, uuid4().hex, self.ttl_ms, checked_owner(self._owner))

    def acquire(self, *, owner: Owner | None = None, timeout: float | None = DEFAULT_WAIT) -> Lease:
        """Enter as `owner` (default: the handle's), at once if it holds the lock, and return a lease of its own.

        Else wait up to `timeout` seconds (default: 60; None: for ever). Raises AcquireTimeout, and InvalidInput when no
        owner was given here or to the handle.
        """
        return super(ReentrantLock, self._for(owner)).acquire(timeout=timeout)

    def try_acquire(self, *, owner: Owner | None = None) -> Lease | None:
        """Return a lease if the lock is free or the owner's, else None."""
        return super(ReentrantLock, self._for(owner)).try_acquire()


class AsyncReentrantLock(AsyncFencedHandle):
    """A reentrant lock by name, for asyncio; otherwise as `ReentrantLock`."""

    def __init__(
        self,
        store: AsyncStore,
        name: str,
        *,
        owner: Owner | None = None,
        ttl: float = DEFAULT_TTL,
        renew: bool = True,
        renew_max: float = DEFAULT_RENEW_MAX,
    ) -> None:
        """Lock `name` on `store` for `owner`: a name, `task_owner` itself, or None to say it at every acquire.

        Options as `ReentrantLock`.
        """
        super().__init__(store, name, ttl=ttl, renew=renew, renew_max=renew_max)
        self._owner = owner

    def _for(self, owner: Owner | None) -> Self:
        """Return the same handle for an owner that is known by name, as it is now."""
        known = checked_owner(self._owner if owner is None else owner)
        found = copy(self)
        found._owner = known  # noqa: SLF001  # a handle of this very class
        return found

    def _claim(self) -> ReentrantClaim:
        return ReentrantClaim(self.name, uuid4().hex, self.ttl_ms, checked_owner(self._owner))

    def acquire(self, *, owner: Owner | None = None, timeout: float | None = DEFAULT_WAIT) -> Acquiring[AsyncLease]:
        """`await` it for the lease, or use it as `async with lock.acquire() as lease`; otherwise as `ReentrantLock`.

        The owner is the one of the moment of this call, also if another task awaits it.
        """
        return super(AsyncReentrantLock, self._for(owner)).acquire(timeout=timeout)

    def try_acquire(self, *, owner: Owner | None = None) -> Coroutine[Any, Any, AsyncLease | None]:
        """Return a lease if the lock is free or the owner's, else None. The owner is the one of this call."""
        return super(AsyncReentrantLock, self._for(owner)).try_acquire()


def thread_owner() -> str:
    """Return the id of the current thread as an owner: the same for as long as the thread lives, and no other's.

    Not for asyncio: all tasks of a loop are one thread, so they would enter each other's locks. With gevent its patches
    must come before this module is imported; else all greenlets are one thread, too.
    """
    found: str | None = getattr(_threads, "owner", None)
    if found is None:
        found = _threads.owner = f"thread-{uuid4().hex}"
    return found


def task_owner() -> str:
    """Return the id of the current asyncio task as an owner: the same for as long as the task lives, and no other's.

    A task that the owner starts is another owner. Raises InvalidInput outside of a task.
    """
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no event loop runs
        task = None
    if task is None:
        message = "task_owner() is asked for outside of an asyncio task"
        raise InvalidInput(message)
    if task not in _tasks:
        _tasks[task] = f"task-{uuid4().hex}"
    return _tasks[task]


def checked_owner(owner: Owner | None) -> str:
    """Return the owner's name; raises InvalidInput for none, and for one that no key can carry."""
    if owner is None:
        message = "a reentrant lock needs an owner: give thread_owner or task_owner without parentheses, or a name"
        raise InvalidInput(message)
    return checked_name(owner() if callable(owner) else owner, "an owner")


def _forget_parents() -> None:
    # The child's only thread is a copy of one of the parent's, which still holds its locks.
    global _threads  # noqa: PLW0603  # the ids of the whole process
    _threads = threading.local()
    _tasks.clear()


after_fork_in_child(_forget_parents)
