"""Fair locks over the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from segmented.errors import WrongKind
from segmented.keys import fair_keys
from segmented.models import Acquired, Held
from segmented.protocol import AcquireFair, ReleaseFair, RenewFair
from segmented.protocol.lock.wire import FENCE_IDLE_MS
from segmented.protocol.wire import Call, Codec, released_or_lost, renewed_or_lost, script_call, text, unsure_if_lost

if TYPE_CHECKING:
    from segmented.protocol.wire import Reply


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
