"""Reentrant locks over the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from segmented.errors import WrongKind
from segmented.keys import reentrant_keys
from segmented.models import Acquired, Held
from segmented.protocol import AcquireReentrant, ReleaseReentrant, RenewReentrant
from segmented.protocol.lock.wire import FENCE_IDLE_MS
from segmented.protocol.wire import (
    Call,
    Codec,
    optional_number,
    released_or_lost,
    renewed_or_lost,
    script_call,
    text,
    unsure_if_lost,
)

if TYPE_CHECKING:
    from segmented.protocol.wire import Reply

OWNER_FIELD: Final = "owner:"
"""Prefix of owners in the hash, so that no owner's name equals a field of another kind of lock."""


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
            message = f"the name {operation.name!r} belongs to another kind of lock, not to a reentrant lock"
            raise WrongKind(message)
        case "held":
            return Held(optional_number(reply[1]))
    return Acquired(int(reply[1]), operation.ttl_ms, replay=text(reply[2]) == "1")


def _encode_renew(operation: RenewReentrant) -> Call:
    keys = reentrant_keys(operation.name).listed()
    owner, fence_ttl_ms = OWNER_FIELD + operation.owner, FENCE_IDLE_MS + operation.ttl_ms
    return script_call("renew_reentrant", keys, owner, operation.holder_id, operation.ttl_ms, fence_ttl_ms)


def _encode_release(operation: ReleaseReentrant) -> Call:
    keys = reentrant_keys(operation.name).listed()
    return script_call("release_reentrant", keys, OWNER_FIELD + operation.owner, operation.holder_id)


CODECS: Final = {
    AcquireReentrant: Codec(_encode_acquire, _decode_acquire),
    RenewReentrant: Codec(_encode_renew, renewed_or_lost),
    ReleaseReentrant: Codec(_encode_release, released_or_lost, doubt=unsure_if_lost),
}
