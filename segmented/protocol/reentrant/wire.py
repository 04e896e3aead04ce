"""Reentrant locks over the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from segmented.errors import WrongKind
from segmented.keys import reentrant_keys
from segmented.models import Acquired, Held, Lost, Released, Renewed
from segmented.protocol import AcquireReentrant, ReleaseReentrant, RenewReentrant
from segmented.protocol.lock.wire import FENCE_IDLE_MS
from segmented.protocol.wire import Call, Codec, optional_number, script_call, text

if TYPE_CHECKING:
    from segmented.protocol.wire import Reply

OWNER_FIELD: Final = "owner:"
"""Before an owner in the hash, so that no owner's name is that of a field which another kind of lock has."""


def _encode_acquire(operation: AcquireReentrant) -> Call:
    keys = reentrant_keys(operation.name).listed()
    owner, fence_ttl_ms = OWNER_FIELD + operation.owner, FENCE_IDLE_MS + operation.ttl_ms
    only_again = "1" if operation.only_again else "0"
    return script_call(
        "acquire_reentrant", keys, owner, operation.holder_id, operation.ttl_ms, fence_ttl_ms, only_again
    )


def _decode_acquire(operation: AcquireReentrant, reply: Reply) -> Acquired | Held:
    match text(reply[0]):
        case "wrong_kind":
            message = f"the name {operation.name!r} belongs to another kind of lock than a reentrant one"
            raise WrongKind(message)
        case "held":
            return Held(optional_number(reply[1]))
    return Acquired(int(reply[1]), operation.ttl_ms, replay=text(reply[2]) == "1")


def _encode_renew(operation: RenewReentrant) -> Call:
    keys = reentrant_keys(operation.name).listed()
    owner, fence_ttl_ms = OWNER_FIELD + operation.owner, FENCE_IDLE_MS + operation.ttl_ms
    return script_call("renew_reentrant", keys, owner, operation.holder_id, operation.ttl_ms, fence_ttl_ms)


def _decode_renew(operation: RenewReentrant, reply: Reply) -> Renewed | Lost:
    return Renewed(operation.ttl_ms) if text(reply[0]) == "renewed" else Lost()


def _encode_release(operation: ReleaseReentrant) -> Call:
    keys = reentrant_keys(operation.name).listed()
    return script_call("release_reentrant", keys, OWNER_FIELD + operation.owner, operation.holder_id)


def _decode_release(_: ReleaseReentrant, reply: Reply) -> Released | Lost:
    return Released() if text(reply[0]) == "released" else Lost()


def _doubted(answer: Released | Lost) -> Released | Lost:
    return Lost(is_unsure=True) if isinstance(answer, Lost) else answer


CODECS: Final = {
    AcquireReentrant: Codec(_encode_acquire, _decode_acquire),
    RenewReentrant: Codec(_encode_renew, _decode_renew),
    ReleaseReentrant: Codec(_encode_release, _decode_release, doubt=_doubted),
}
