"""Operations on semaphores, and how each is sent."""

from __future__ import annotations

from typing import ClassVar

from segmented.errors import PermitsMismatch
from segmented.keys import lock_keys
from segmented.models import Acquired, Held
from segmented.protocol.base import LeaseRelease, LeaseRenewal, Operation
from segmented.protocol.lock import FENCE_IDLE_MS, asked_of
from segmented.protocol.wire import Call, Reply, script_call, text
from segmented.values import light_dataclass


@light_dataclass(frozen=True, slots=True)
class AcquirePermit(Operation[Acquired | Held]):
    """Take one of `permits` for `ttl_ms`; raises PermitsMismatch while others hold permits of a different total.

    A repeat by the same holder id renews its permit instead of taking a second one; its token grows. With a `party`,
    the caller obeys the line of processes and has a place in it, as with AcquireLock.
    """

    lease_kind: ClassVar = "semaphore"
    name: str
    holder_id: str
    ttl_ms: int
    permits: int
    party: str = ""

    def call(self) -> Call:
        found = lock_keys(self.name)
        arguments = (self.holder_id, self.ttl_ms, FENCE_IDLE_MS + self.ttl_ms, self.permits)
        return script_call("acquire_permit", [*found.listed(), found.line], *arguments, asked_of(self.party))

    def answer(self, reply: Reply) -> Acquired | Held:
        match text(reply[0]):
            case "mismatch":
                raise PermitsMismatch(self.name, int(reply[1]), self.permits)
            case "held":
                return Held(int(reply[1]), ahead=sum(map(int, reply[2:])))
        return Acquired(int(reply[1]), self.ttl_ms, replay=text(reply[2]) == "1", next_in_ms=int(reply[3]))


@light_dataclass(frozen=True, slots=True)
class RenewPermit(LeaseRenewal):
    """Extend the holder's permit to `ttl_ms` from now. Never re-creates it."""

    name: str
    holder_id: str
    ttl_ms: int

    def call(self) -> Call:
        keys = lock_keys(self.name).listed()
        fence_ttl_ms = FENCE_IDLE_MS + self.ttl_ms
        return script_call("renew_permit", keys, self.holder_id, self.ttl_ms, fence_ttl_ms)


@light_dataclass(frozen=True, slots=True)
class ReleasePermit(LeaseRelease):
    """Release the holder's permit, and wake one waiter."""

    name: str
    holder_id: str

    def call(self) -> Call:
        return script_call("release_permit", lock_keys(self.name).listed(), self.holder_id)
