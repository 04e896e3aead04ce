"""`FairLock`: served in the order of arrival, across processes. A release hands the lock to the head of the queue.

The queue is in the store: a waiter takes its place with its first attempt. A release, in one step, makes the head of
the queue the holder, with a fencing token of its own, and wakes exactly that waiter. Since nobody says a word when a
holder dies, one more waiter is told to mind its end: the first one of another process, because a process that dies
takes its waiters with it. So an acquisition costs three commands: the release, the new holder's coming, the minder's
look. A newcomer never passes those who wait, also not while the lock is free.

The main key is the string of `Lock`: whoever takes it by SET NX is kept out too, and waited for.

Who is alive. Three things tell, each where the one before cannot:

1. *No subscription.* A waiter listens on a channel of its own, and PUBLISH says how many it reached: none, and its
   process is gone. All such waiters are passed over within one step, however many there are. This counts only for a
   waiter whose subscription the server has seen (`PUBSUB NUMSUB`, in the step of an attempt): the first attempt comes
   before the subscription, so that a release in between is not missed, and a waiter in that gap is not reached, but
   alive. And it counts only on a server that says it is no cluster: the nodes of a cluster count their own subscribers
   only.
2. *No claim.* What is handed over is held for two seconds only, until the new holder comes and has its full time to
   live. It trusts its lease from that coming on, not from the hand-over. If nobody comes, the whole process is passed
   over until one of it asks again.
3. *No presence.* A waiter looks again at least every 12 s and thereby counts as alive for 30 s. All who have not looked
   for so long are dropped at once by whoever asks next.

Hence the bounds. Dead waiters at the head of the queue, any number: nothing, on a single server that has noticed the
ends of their connections. A process that stands still, or has died unnoticed, or in a cluster, with any number of
waiters: one claim of two seconds. A dead holder: its time to live, or two seconds if that is longer. Where the minder
has died or stands still too: up to 12 s more, until the next look. Any number of processes of any of these: at most
45 s in all, because until then the absent are dropped (30 + 12 s), and one claim is waited for.

Passed over is not forgotten: whoever turns out to live (its subscription broke and was made again, its process went on)
keeps its number of arrival for as long as it is present, and with its next attempt it is ahead again. A wait that ends,
by its timeout or by a cancellation, gives the place up, or hands the lock on if it had just been handed over.

Not guaranteed: an order among those whose first attempts are under way at the same time, and a place for a waiter whose
process stood still for more than 30 s. A client that deletes the key without a release tells nobody: the next in line
finds out at its next look. Otherwise as `Lock`: the fencing token is what stops a holder that acts after its lease has
lapsed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final
from uuid import uuid4

from segmented.forks import after_fork_in_child
from segmented.keys import fair_keys
from segmented.locks.claim import Claim
from segmented.locks.durations import DEFAULT_WAIT, checked_timeout
from segmented.locks.handle import AsyncFencedHandle, FencedHandle, acquire_plan
from segmented.plans import run_async, run_sync
from segmented.protocol import AcquireFair, FairTimes, ReleaseFair, RenewFair

if TYPE_CHECKING:
    from segmented.locks.lease import AsyncLease, Lease

TIMES: Final = FairTimes(presence_ms=30_000, look_ms=12_000, claim_ms=2_000)
"""A waiter at rest costs one command in 12 s, and counts as alive though one of them went missing."""

_names: Final = {"process": uuid4().hex}


def process_name() -> str:
    """Return the random name of this process; a fork has one of its own."""
    return _names["process"]


after_fork_in_child(lambda: _names.update(process=uuid4().hex))


@dataclass(frozen=True, slots=True)
class FairTry(Claim):
    """A claim that does not wait: it takes the lock if it is free and nobody waits, and leaves no trace."""

    kind: ClassVar[str] = "fair"
    times: FairTimes = TIMES
    process: str = field(default_factory=process_name)

    @property
    def channel(self) -> str:
        """A channel of its own: one message when it is its turn, or to mind the holder's end."""
        return fair_keys(self.name).turn_of(self.holder_id)

    def acquiring(self) -> AcquireFair:
        """Ask for the lease."""
        return AcquireFair(self.name, self.holder_id, self.process, self.ttl_ms, self.times, waits=False)

    def renewing(self, ttl_ms: int) -> RenewFair:
        """Ask for more time."""
        return RenewFair(self.name, self.holder_id, ttl_ms)

    def releasing(self) -> ReleaseFair:
        """Hand the lock on, or give up the place in the queue."""
        return ReleaseFair(self.name, self.holder_id, self.times)


@dataclass(frozen=True, slots=True)
class FairClaim(FairTry):
    """A claim with a place in the queue from its first attempt on."""

    leaves_traces: ClassVar[bool] = True

    def acquiring(self) -> AcquireFair:
        """Ask for the lease, and keep the place."""
        return AcquireFair(self.name, self.holder_id, self.process, self.ttl_ms, self.times)


class FairLock(FencedHandle):
    """A lock by name that serves those who wait in the order of their arrival, for threads."""

    def _claim(self) -> FairClaim:
        return FairClaim(self.name, uuid4().hex, self.ttl_ms)

    def acquire(self, *, timeout: float | None = DEFAULT_WAIT) -> Lease:
        """Wait in the queue up to `timeout` seconds (default: 60; None: for ever). Raises AcquireTimeout.

        A timeout of 0 is one try, which succeeds only if the lock is free and nobody waits.
        """
        claim = self._claim() if timeout != 0 else FairTry(self.name, uuid4().hex, self.ttl_ms)
        return self._lease(claim, run_sync(acquire_plan(claim, checked_timeout(timeout)), self._store))


class AsyncFairLock(AsyncFencedHandle):
    """A lock by name that serves those who wait in the order of their arrival, for asyncio."""

    def _claim(self) -> FairClaim:
        return FairClaim(self.name, uuid4().hex, self.ttl_ms)

    async def _acquired(self, timeout: float | None) -> AsyncLease:
        claim = self._claim() if timeout != 0 else FairTry(self.name, uuid4().hex, self.ttl_ms)
        return self._lease(claim, await run_async(acquire_plan(claim, timeout), self._store))
