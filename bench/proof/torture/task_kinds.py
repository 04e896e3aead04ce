"""How an asyncio contender acquires each kind of lock, and what it then holds; `contenders` is the same for threads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from bench.proof.torture.contenders import AGAIN, SINGLES, WRITERS
from bench.proof.torture.events import EXCLUSIVE, PERMIT, SHARED
from bench.proof.torture.options import PERMITS
from segmented.locks.fair import AsyncFairLock
from segmented.locks.lock import AsyncLock
from segmented.locks.multi import AsyncMultiLock
from segmented.locks.multi_lease import AsyncMultiLease
from segmented.locks.quorum import AsyncQuorumLock
from segmented.locks.read_write import AsyncReadWriteLock
from segmented.locks.reentrant import AsyncReentrantLock, task_owner
from segmented.locks.semaphore import AsyncSemaphore

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from random import Random

    from bench.proof.torture.contenders import LockRequest
    from segmented.locks.handle import Acquiring
    from segmented.plans.drivers import AsyncStore
    from segmented.stores.quorum import AsyncQuorumStore


@dataclass(frozen=True, slots=True)
class TaskLock:
    """A lock that one task acquires, and how the resource sees its holder."""

    acquire: Callable[[], Acquiring[Any]]
    mode: str = EXCLUSIVE
    is_owned: bool = False
    """Whether the task is the holder, rather than the lease."""
    is_entered_again: bool = False
    """Whether the holder acquires it once more inside."""

    def holder(self, lease: Any) -> str:  # noqa: ANN401  # leases of several kinds
        """Return the holder. Call it in the task that acquired the lease."""
        return task_owner() if self.is_owned else str(lease.holder_id)


def tokens_of(lease: Any) -> Mapping[str, int | None]:  # noqa: ANN401  # as above
    """Return the fencing token of each name."""
    if isinstance(lease, AsyncMultiLease):
        return dict(lease.fencing_tokens)
    return {lease.name: getattr(lease, "fencing_token", None)}


def task_lock(kind: str, store: AsyncStore, request: LockRequest, random: Random) -> TaskLock:
    """Return the lock of one round."""
    options: dict[str, Any] = {"ttl": request.ttl, "renew": request.renew}
    waits: dict[str, Any] = {"timeout": request.timeout}
    match kind:
        case "reentrant":
            owned = AsyncReentrantLock(store, request.name, **options)
            again = random.random() < AGAIN
            return TaskLock(lambda: owned.acquire(**waits), is_owned=True, is_entered_again=again)
        case "read_write":
            both = AsyncReadWriteLock(store, request.name, **options)
            if random.random() < WRITERS:
                return TaskLock(lambda: both.write.acquire(**waits))
            return TaskLock(lambda: both.read.acquire(**waits), SHARED)
        case "semaphore":
            semaphore = AsyncSemaphore(store, request.name, permits=PERMITS, **options)
            return TaskLock(lambda: semaphore.acquire(**waits), PERMIT)
        case "multi" if random.random() >= SINGLES:
            several = AsyncMultiLock(store, random.sample(request.names, min(2, len(request.names))), **options)
            return TaskLock(lambda: several.acquire(**waits))
        case "quorum":
            quorum = AsyncQuorumLock(cast("AsyncQuorumStore", store), request.name, **options)
            return TaskLock(lambda: quorum.acquire(**waits))
    single = SINGLE[kind](store, request.name, **options)
    return TaskLock(lambda: single.acquire(**waits))


SINGLE: Final = {"lock": AsyncLock, "fair": AsyncFairLock, "multi": AsyncLock}
