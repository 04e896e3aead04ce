"""Operations on semaphores, and how each is sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from segmented.errors import PermitsMismatch
from segmented.keys import lock_keys
from segmented.models import Acquired, Held, Lost, Released, Renewed
from segmented.protocol.base import Operation, Release
from segmented.protocol.lock.wire import FENCE_IDLE_MS, asked_of
from segmented.protocol.wire import Call, Codec, released_or_lost, renewed_or_lost, script_call, text, unsure_if_lost

if TYPE_CHECKING:
    from segmented.protocol.wire import Reply


@dataclass(frozen=True, slots=True)
class AcquirePermit(Operation[Acquired | Held]):
    """Take one of `permits` for `ttl_ms`; raises PermitsMismatch while others hold permits of a different total.

    A repeat by the same holder id renews its permit instead of taking a second one; its token grows. With a `party`,
    the caller obeys the line of processes and has a place in it, as with AcquireLock.
    """

    name: str
    holder_id: str
    ttl_ms: int
    permits: int
    party: str = ""


@dataclass(frozen=True, slots=True)
class RenewPermit(Operation[Renewed | Lost]):
    """Extend the holder's permit to `ttl_ms` from now. Never re-creates it."""

    name: str
    holder_id: str
    ttl_ms: int


@dataclass(frozen=True, slots=True)
class ReleasePermit(Release[Released | Lost]):
    """Release the holder's permit, and wake one waiter."""

    name: str
    holder_id: str


# --- over the wire ---


def _encode_acquire(operation: AcquirePermit) -> Call:
    found = lock_keys(operation.name)
    arguments = (operation.holder_id, operation.ttl_ms, FENCE_IDLE_MS + operation.ttl_ms, operation.permits)
    return script_call("acquire_permit", [*found.listed(), found.line], *arguments, asked_of(operation.party))


def _decode_acquire(operation: AcquirePermit, reply: Reply) -> Acquired | Held:
    match text(reply[0]):
        case "mismatch":
            raise PermitsMismatch(operation.name, int(reply[1]), operation.permits)
        case "held":
            return Held(int(reply[1]), ahead=sum(map(int, reply[2:])))
    return Acquired(int(reply[1]), operation.ttl_ms, replay=text(reply[2]) == "1", next_in_ms=int(reply[3]))


def _encode_renew(operation: RenewPermit) -> Call:
    keys = lock_keys(operation.name).listed()
    fence_ttl_ms = FENCE_IDLE_MS + operation.ttl_ms
    return script_call("renew_permit", keys, operation.holder_id, operation.ttl_ms, fence_ttl_ms)


def _encode_release(operation: ReleasePermit) -> Call:
    return script_call("release_permit", lock_keys(operation.name).listed(), operation.holder_id)


CODECS: Final = {
    AcquirePermit: Codec(_encode_acquire, _decode_acquire),
    RenewPermit: Codec(_encode_renew, renewed_or_lost),
    ReleasePermit: Codec(_encode_release, released_or_lost, doubt=unsure_if_lost),
}
