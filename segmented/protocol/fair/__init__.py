"""Operations on fair locks: a queue in the store, and a lock that is handed over to its head."""

from __future__ import annotations

from typing import ClassVar

from segmented.keys import fair_keys
from segmented.models import Acquired, Held
from segmented.protocol.base import LeaseRelease, LeaseRenewal, Operation
from segmented.protocol.lock import FENCE_IDLE_MS, acquired_or_held
from segmented.protocol.wire import Call, Reply, script_call
from segmented.values import light_dataclass


@light_dataclass(frozen=True, slots=True)
class FairTimes:
    """The timeouts of a fair lock's waiters, in milliseconds."""

    presence_ms: int
    """How long a waiter counts as alive after each attempt."""
    look_ms: int
    """Time after which a waiter checks again, whatever messages it gets."""
    claim_ms: int
    """How long the lock, once handed over, waits for its new holder to claim it."""


@light_dataclass(frozen=True, slots=True)
class AcquireFair(Operation[Acquired | Held]):
    """Take the lock for `ttl_ms` if it was handed to this holder, or is free without an earlier live waiter.

    Otherwise wait in the queue, or keep the place in it; a caller that does not wait leaves no trace. `Held.free_in_ms`
    says when to check again.
    """

    lease_kind: ClassVar = "fair"
    name: str
    holder_id: str
    process: str
    """The process of this holder: waiters of one process die, and pause, together."""
    ttl_ms: int
    times: FairTimes
    waits: bool = True

    def call(self) -> Call:
        who = (self.holder_id, self.process, self.ttl_ms, "1" if self.waits else "0")
        times = (self.times.presence_ms, self.times.look_ms, self.times.claim_ms, FENCE_IDLE_MS + self.ttl_ms)
        return script_call("acquire_fair", fair_keys(self.name), *who, *times)

    def answer(self, reply: Reply) -> Acquired | Held:
        return acquired_or_held(reply, self.name, self.ttl_ms, "fair lock")


@light_dataclass(frozen=True, slots=True)
class RenewFair(LeaseRenewal):
    """Extend the lease to `ttl_ms` from now, if it is still the holder's. Never re-creates it."""

    name: str
    holder_id: str
    ttl_ms: int

    def call(self) -> Call:
        keys, fence_ttl_ms = fair_keys(self.name), FENCE_IDLE_MS + self.ttl_ms
        return script_call("renew_fair", keys, self.holder_id, self.ttl_ms, fence_ttl_ms)


@light_dataclass(frozen=True, slots=True)
class ReleaseFair(LeaseRelease):
    """End the lease and hand the lock to the head of the queue; for a waiter, give up its place."""

    name: str
    holder_id: str
    times: FairTimes

    def call(self) -> Call:
        keys, claim_ms = fair_keys(self.name), self.times.claim_ms
        return script_call("release_fair", keys, self.holder_id, claim_ms, FENCE_IDLE_MS + claim_ms)
