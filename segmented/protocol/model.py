"""Dispatch of operations to the parts of the model: locks, pools and deduplication, with one clock for all.

One name belongs to one kind of lock at a time, as the type of its main key has it on a server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast

from segmented import protocol as op
from segmented.errors import WrongKind
from segmented.protocol.cache.model import CacheModel
from segmented.protocol.carts.model import CartModel
from segmented.protocol.dedup.model import DedupModel
from segmented.protocol.fair.model import FairModel
from segmented.protocol.get_set.model import GetSetModel
from segmented.protocol.lock.model import LockModel
from segmented.protocol.operator.model import OperatorModel
from segmented.protocol.outbox.model import OutboxModel
from segmented.protocol.read_write.model import ReadWriteModel
from segmented.protocol.reentrant.model import ReentrantModel
from segmented.protocol.semaphore.model import SemaphoreModel
from segmented.protocol.sequencer.model import SequencerModel
from segmented.protocol.shards.model import ShardModel
from segmented.protocol.vote.model import VoteModel

if TYPE_CHECKING:
    from collections.abc import Callable

    from segmented.clock import Clock
    from segmented.protocol import Operation

AnswerT = TypeVar("AnswerT")


class MemoryModel:
    """A server's worth of locks and pools. One operation is one step; not thread-safe."""

    def __init__(self, clock: Clock) -> None:
        """Take the server's time from `clock`."""
        self._freed: list[str] = []
        locks = LockModel(clock, self._freed.append)
        reentrant = ReentrantModel(clock, self._freed.append)
        fair = FairModel(clock, self._freed.append)
        read_write = ReadWriteModel(clock, self._freed.append)
        semaphores = SemaphoreModel(clock, self._freed.append)
        get_set = GetSetModel()
        votes = VoteModel(clock, self._freed.append)
        self._kinds = Kinds()
        cache = CacheModel(clock, locks, self._freed.append)
        self._kinds.add(locks.holds, op.AcquireLock, op.ReadOrAcquire)
        self._kinds.add(reentrant.holds, op.AcquireReentrant)
        self._kinds.add(fair.holds, op.AcquireFair)
        self._kinds.add(read_write.holds, op.AcquireRead, op.AcquireWrite)
        self._kinds.add(semaphores.holds, op.AcquirePermit)
        self._kinds.add(get_set.holds, op.SetNx)
        self._kinds.add(votes.holds, op.AcquireVote)
        pools = OutboxModel(clock, self._freed.append)
        operator = OperatorModel(locks, reentrant, fair, read_write, semaphores, get_set, votes)
        sequencers = SequencerModel(operator.show)
        self._bodies: dict[type[op.Operation[Any]], Callable[[Any], object]] = {
            op.AcquireLock: locks.acquire,
            op.AdoptLock: locks.adopt,
            op.RenameHolder: locks.rename,
            op.RenewLock: locks.renew,
            op.ReleaseLock: locks.release,
            op.AcquireReentrant: reentrant.acquire,
            op.RenewReentrant: reentrant.renew,
            op.ReleaseReentrant: reentrant.release,
            op.AcquireFair: fair.acquire,
            op.RenewFair: fair.renew,
            op.ReleaseFair: fair.release,
            op.AcquireRead: read_write.read,
            op.AcquireWrite: read_write.write,
            op.RenewReadWrite: read_write.renew,
            op.ReleaseReadWrite: read_write.release,
            op.AcquirePermit: semaphores.acquire,
            op.RenewPermit: semaphores.renew,
            op.ReleasePermit: semaphores.release,
            op.SetNx: get_set.set_nx,
            op.GetValue: get_set.get,
            op.GetSet: get_set.get_set,
            op.DeleteValue: get_set.delete,
            op.AcquireVote: votes.acquire,
            op.RenewVote: votes.renew,
            op.ReleaseVote: votes.release,
            op.IdentifyServer: votes.identify,
            op.ReadCached: cache.read,
            op.ReadOrAcquire: cache.read_or_acquire,
            op.WriteCached: cache.write,
            op.ForgetCached: cache.forget,
            op.ShowLock: operator.show,
            op.RevokeLock: operator.revoke,
            op.ListLocks: operator.list_locks,
            op.ListMasters: operator.list_masters,
            op.CheckSequencer: sequencers.check,
            op.FencedSet: sequencers.set,
            **pools.bodies(),
            **CartModel(clock, pools.found).bodies(),
            **ShardModel(pools).bodies(),
            **DedupModel(clock, self._freed.append).bodies(),
        }

    def execute(self, operation: op.Operation[AnswerT]) -> AnswerT:
        """Perform one operation."""
        self._kinds.check(operation)
        return cast("AnswerT", self._bodies[type(operation)](operation))

    def take_freed(self) -> list[str]:
        """Return the channels that got a message since the last call."""
        freed = self._freed[:]
        self._freed.clear()
        return freed


class Kinds:
    """Knows for each kind whether it holds a name, and by which operations it takes one."""

    def __init__(self) -> None:
        """Know none."""
        self._kinds: list[tuple[Callable[[str], bool], tuple[type[Operation[Any]], ...]]] = []
        self._acquiring: set[type[Operation[Any]]] = set()

    def add(self, holds: Callable[[str], bool], *acquiring: type[Operation[Any]]) -> None:
        """Make a kind known by its question and its operations, each of which has a `name`."""
        self._kinds.append((holds, acquiring))
        self._acquiring.update(acquiring)

    def check(self, operation: Operation[Any]) -> None:
        """Raise WrongKind if the operation would take a name that another kind holds."""
        if type(operation) not in self._acquiring:
            return
        name: str = operation.name  # type: ignore[attr-defined]  # every operation that takes a lock has one
        for holds, acquiring in self._kinds:
            if type(operation) not in acquiring and holds(name):
                message = f"the name {name!r} belongs to another kind of lock"
                raise WrongKind(message)
