"""Named locks over the wire."""

from __future__ import annotations

from typing import Final

from segmented.keys import lock_keys
from segmented.models import Acquired, Held, Lost, Released, Renewed
from segmented.operations import AcquireLock, ReleaseLock, RenewLock
from segmented.stores.redis.wire import Call, Codec, Reply, optional_number, script_call, text

FENCE_IDLE_MS: Final = 24 * 3600 * 1000
"""How long an idle lock's last token is kept. A lapsed one does no harm: the next is the server's microseconds."""


def _encode_acquire(operation: AcquireLock) -> Call:
    keys = lock_keys(operation.name).listed()
    fence_ttl_ms = FENCE_IDLE_MS + operation.ttl_ms
    return script_call("acquire_lock", keys, operation.holder_id, operation.ttl_ms, fence_ttl_ms)


def _decode_acquire(operation: AcquireLock, reply: Reply) -> Acquired | Held:
    if text(reply[0]) == "held":
        return Held(optional_number(reply[1]))
    return Acquired(int(reply[1]), operation.ttl_ms, replay=text(reply[2]) == "1")


def _encode_renew(operation: RenewLock) -> Call:
    keys = lock_keys(operation.name).listed()
    fence_ttl_ms = FENCE_IDLE_MS + operation.ttl_ms
    return script_call("renew_lock", keys, operation.holder_id, operation.ttl_ms, fence_ttl_ms)


def _decode_renew(operation: RenewLock, reply: Reply) -> Renewed | Lost:
    return Renewed(operation.ttl_ms) if text(reply[0]) == "renewed" else Lost()


def _encode_release(operation: ReleaseLock) -> Call:
    return script_call("release_lock", lock_keys(operation.name).listed(), operation.holder_id)


def _decode_release(_: ReleaseLock, reply: Reply) -> Released | Lost:
    return Released() if text(reply[0]) == "released" else Lost()


LOCK_CODECS: Final = {
    AcquireLock: Codec(_encode_acquire, _decode_acquire),
    RenewLock: Codec(_encode_renew, _decode_renew),
    ReleaseLock: Codec(_encode_release, _decode_release),
}
