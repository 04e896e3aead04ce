"""Operations on fair locks: a queue in the store, and a lock that is handed over to its head."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from segmented.errors import WrongKind
from segmented.keys import fair_keys
from segmented.models import Acquired, Held, Lost, Released, Renewed
from segmented.protocol.base import Operation, Release
from segmented.protocol.lock.wire import FENCE_IDLE_MS
from segmented.protocol.wire import Call, Codec, released_or_lost, renewed_or_lost, script_call, text, unsure_if_lost

if TYPE_CHECKING:
    from segmented.protocol.wire import Reply


@dataclass(frozen=True, slots=True)
class FairTimes:
    """The timeouts of a fair lock's waiters, in milliseconds."""

    presence_ms: int
    """How long a waiter counts as alive after each attempt."""
    look_ms: int
    """Time after which a waiter checks again, whatever messages it gets."""
    claim_ms: int
    """How long the lock, once handed over, waits for its new holder to claim it."""


@dataclass(frozen=True, slots=True)
class AcquireFair(Operation[Acquired | Held]):
    """Take the lock for `ttl_ms` if it was handed to this holder, or is free without an earlier live waiter.

    Otherwise wait in the queue, or keep the place in it; a caller that does not wait leaves no trace. `Held.free_in_ms`
    says when to check again.
    """

    name: str
    holder_id: str
    process: str
    """The process of this holder: waiters of one process die, and pause, together."""
    ttl_ms: int
    times: FairTimes
    waits: bool = True


@dataclass(frozen=True, slots=True)
class RenewFair(Operation[Renewed | Lost]):
    """Extend the lease to `ttl_ms` from now, if it is still the holder's. Never re-creates it."""

    name: str
    holder_id: str
    ttl_ms: int


@dataclass(frozen=True, slots=True)
class ReleaseFair(Release[Released | Lost]):
    """End the lease and hand the lock to the head of the queue; for a waiter, give up its place."""

    name: str
    holder_id: str
    times: FairTimes


# --- over the wire ---


def _encode_acquire(operation: AcquireFair) -> Call:
    times = operation.times
    return script_call(
        "acquire_fair",
        fair_keys(operation.name).listed(),
        operation.holder_id,
        operation.process,
        operation.ttl_ms,
        "1" if operation.waits else "0",
        times.presence_ms,
        times.look_ms,
        times.claim_ms,
        FENCE_IDLE_MS + operation.ttl_ms,
    )


def _decode_acquire(operation: AcquireFair, reply: Reply) -> Acquired | Held:
    match text(reply[0]):
        case "wrong_kind":
            message = f"the name {operation.name!r} belongs to another kind of lock, not to a fair lock"
            raise WrongKind(message)
        case "held":
            return Held(int(reply[1]))
    return Acquired(int(reply[1]), operation.ttl_ms, replay=text(reply[2]) == "1")


def _encode_renew(operation: RenewFair) -> Call:
    keys, fence_ttl_ms = fair_keys(operation.name).listed(), FENCE_IDLE_MS + operation.ttl_ms
    return script_call("renew_fair", keys, operation.holder_id, operation.ttl_ms, fence_ttl_ms)


def _encode_release(operation: ReleaseFair) -> Call:
    keys, claim_ms = fair_keys(operation.name).listed(), operation.times.claim_ms
    return script_call("release_fair", keys, operation.holder_id, claim_ms, FENCE_IDLE_MS + claim_ms)


CODECS: Final = {
    AcquireFair: Codec(_encode_acquire, _decode_acquire),
    RenewFair: Codec(_encode_renew, renewed_or_lost),
    ReleaseFair: Codec(_encode_release, released_or_lost, doubt=unsure_if_lost),
}
