"""`FairLock` serves waiters of all processes in the order of arrival. A release hands the lock to the queue's head.

The queue is in the store: a waiter takes its place with its first attempt. A release atomically makes the head of the
queue the holder, with a fencing token of its own, and wakes exactly that waiter. Since a dying holder notifies nobody,
the release also asks one more waiter, the minder, to watch for the holder's end. The minder is the first waiter of
another process, because a process that dies takes its waiters with it. So an acquisition costs three commands: the
release, the new holder's claim, the minder's check. A newcomer never passes waiters, even while the lock is free.

The main key is the string of `Lock`: a client that takes it by SET NX also excludes the others, and they wait for it.

Three signs show that a waiter is dead, each for cases that the one before cannot show:

1. *No subscription.* Each waiter listens on its own channel, and PUBLISH returns how many clients it reached: if none,
   the process is gone. One step skips all such waiters, however many there are. This counts only for a waiter whose
   subscription the server has seen (`PUBSUB NUMSUB`, during an attempt): the first attempt comes before the
   subscription, so that no release in between is missed, and a waiter in that gap is alive but not reached. And it
   counts only on a server that reports that it is not a cluster: nodes of a cluster count only their own subscribers.
2. *No claim.* A lock that was handed over is held for two seconds only, until the new holder claims it and gets its
   full time to live. The holder trusts its lease from that claim on, not from the hand-over. If no claim comes, the
   whole process is skipped until one of its waiters asks again.
3. *No presence.* A waiter asks again at least every 12 s and thereby counts as alive for 30 s. The next request drops
   all waiters that have not asked for 30 s.

These bounds follow. Any number of dead waiters at the head of the queue: no delay, on a single server that has noticed
that their connections ended. A process that is paused, or died unnoticed, or is in a cluster, with any number of
waiters: one claim of two seconds. A dead holder: its time to live, or two seconds if that is longer. If the minder is
dead or paused too: up to 12 s more, until the next check. Any number of processes in any of these states: at most 45 s
in all, because absent waiters are dropped after 30 + 12 s, and one claim may follow.

A skipped waiter is not forgotten: if it turns out to be alive (it subscribed again, or its process resumed), it keeps
its arrival number while it is present, and its next attempt puts it ahead again. A wait that ends by its timeout or by
a cancellation gives up the place, or hands the lock on if it was just handed over.

Not guaranteed: an order among waiters whose first attempts run at the same time, and the place of a waiter whose
process was paused for more than 30 s. A client that deletes the key without a release notifies nobody: the next waiter
notices at its next check. Otherwise as `Lock`: the fencing token stops a holder that acts after its lease has expired.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final
from uuid import uuid4

from segmented.keys import fair_keys
from segmented.locks.claim import Claim, new_holder_id
from segmented.locks.handle import AsyncFencedHandle, FencedHandle
from segmented.process import after_fork_in_child
from segmented.protocol.fair import AcquireFair, FairTimes, ReleaseFair, RenewFair

if TYPE_CHECKING:
    from segmented.locks.lease import AsyncLease, Lease

TIMES: Final = FairTimes(presence_ms=30_000, look_ms=12_000, claim_ms=2_000)
"""An idle waiter costs one command every 12 s, and still counts as alive if one of them is lost."""

_names: Final = {"process": uuid4().hex}


def process_name() -> str:
    """Return the random name of this process; a forked child has its own."""
    return _names["process"]


after_fork_in_child(lambda: _names.update(process=uuid4().hex))


@dataclass(frozen=True, slots=True)
class FairTry(Claim):
    """A claim that does not wait: it takes the lock if it is free and has no waiters, and leaves no trace."""

    kind: ClassVar[str] = "fair"
    times: FairTimes = TIMES
    process: str = field(default_factory=process_name)

    @property
    def channel(self) -> str:
        """Return the waiter's own channel: one message when it is its turn, or when it becomes the minder."""
        return fair_keys(self.name).turn_of(self.holder_id)

    def acquiring(self) -> AcquireFair:
        """Return the operation that takes the lease."""
        return AcquireFair(self.name, self.holder_id, self.process, self.ttl_ms, self.times, waits=False)

    def renewing(self, ttl_ms: int) -> RenewFair:
        """Return the operation that renews the lease."""
        return RenewFair(self.name, self.holder_id, ttl_ms)

    def releasing(self) -> ReleaseFair:
        """Return the operation that hands the lock on, or gives up the place in the queue."""
        return ReleaseFair(self.name, self.holder_id, self.times)


@dataclass(frozen=True, slots=True)
class FairClaim(FairTry):
    """A claim that has a place in the queue from its first attempt on."""

    leaves_traces: ClassVar[bool] = True

    def acquiring(self) -> AcquireFair:
        """Return the operation that takes the lease, or keeps the place."""
        return AcquireFair(self.name, self.holder_id, self.process, self.ttl_ms, self.times)


class AsyncFairLock(AsyncFencedHandle):
    """A lock by name that serves waiters in the order of arrival, for asyncio.

    A timeout of 0 is one try, which succeeds only if the lock is free and has no waiters.
    """

    _is_exclusive = True

    def _claim(self) -> FairClaim:
        return FairClaim(self.name, new_holder_id(), self.ttl_ms)

    async def _acquired(self, timeout: float | None) -> AsyncLease:
        claim = self._claim() if timeout != 0 else FairTry(self.name, new_holder_id(), self.ttl_ms)
        return await self._taken(claim, timeout)


# --- For threads: written by `make sync` from the classes above. ---


class FairLock(FencedHandle):
    """A lock by name that serves waiters in the order of arrival, for threads.

    A timeout of 0 is one try, which succeeds only if the lock is free and has no waiters.
    """

    _is_exclusive = True

    def _claim(self) -> FairClaim:
        return FairClaim(self.name, new_holder_id(), self.ttl_ms)

    def _acquired(self, timeout: float | None) -> Lease:
        claim = self._claim() if timeout != 0 else FairTry(self.name, new_holder_id(), self.ttl_ms)
        return self._taken(claim, timeout)
