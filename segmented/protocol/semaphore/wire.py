"""Semaphores over the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from segmented.errors import PermitsMismatch
from segmented.keys import lock_keys
from segmented.models import Acquired, Held, Lost, Released, Renewed
from segmented.protocol import AcquirePermit, ReleasePermit, RenewPermit
from segmented.protocol.lock.wire import FENCE_IDLE_MS
from segmented.protocol.wire import Call, Codec, script_call, text

if TYPE_CHECKING:
    from segmented.protocol.wire import Reply


def _encode_acquire(operation: AcquirePermit) -> Call:
    keys = lock_keys(operation.name).listed()
    fence_ttl_ms = FENCE_IDLE_MS + operation.ttl_ms
    return script_call("acquire_permit", keys, operation.holder_id, operation.ttl_ms, fence_ttl_ms, operation.permits)


def _decode_acquire(operation: AcquirePermit, reply: Reply) -> Acquired | Held:
    match text(reply[0]):
        case "mismatch":
            raise PermitsMismatch(operation.name, int(reply[1]), operation.permits)
        case "held":
            return Held(int(reply[1]))
    return Acquired(int(reply[1]), operation.ttl_ms, replay=text(reply[2]) == "1", next_in_ms=int(reply[3]))


def _encode_renew(operation: RenewPermit) -> Call:
    keys = lock_keys(operation.name).listed()
    fence_ttl_ms = FENCE_IDLE_MS + operation.ttl_ms
    return script_call("renew_permit", keys, operation.holder_id, operation.ttl_ms, fence_ttl_ms)


def _decode_renew(operation: RenewPermit, reply: Reply) -> Renewed | Lost:
    return Renewed(operation.ttl_ms) if text(reply[0]) == "renewed" else Lost()


def _encode_release(operation: ReleasePermit) -> Call:
    return script_call("release_permit", lock_keys(operation.name).listed(), operation.holder_id)


def _decode_release(_: ReleasePermit, reply: Reply) -> Released | Lost:
    return Released() if text(reply[0]) == "released" else Lost()


def _doubted(answer: Released | Lost) -> Released | Lost:
    return Lost(is_unsure=True) if isinstance(answer, Lost) else answer


CODECS: Final = {
    AcquirePermit: Codec(_encode_acquire, _decode_acquire),
    RenewPermit: Codec(_encode_renew, _decode_renew),
    ReleasePermit: Codec(_encode_release, _decode_release, doubt=_doubted),
}
