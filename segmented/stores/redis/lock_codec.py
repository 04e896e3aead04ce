"""Named locks over the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from redis.exceptions import ResponseError

from segmented.errors import WrongKind
from segmented.keys import lock_keys
from segmented.models import Acquired, Held, Lost, Released, Renewed, Unreplicated
from segmented.operations import AcquireLock, ReleaseLock, RenewLock
from segmented.stores.redis.wire import Call, Codec, Native, Reply, Send, optional_number, script_call, text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from segmented.stores.redis.dialect import Dialect
    from segmented.stores.redis.wire import Command, Exchange

FENCE_IDLE_MS: Final = 24 * 3600 * 1000
"""How long an idle lock's last token is kept. A lapsed one does no harm: the next is the server's microseconds."""


def _encode_acquire(operation: AcquireLock) -> Call:
    keys = lock_keys(operation.name).listed()
    fence_ttl_ms = FENCE_IDLE_MS + operation.ttl_ms + operation.delay_ms
    lease_ms = operation.ttl_ms + operation.delay_ms
    return script_call("acquire_lock", keys, operation.holder_id, lease_ms, operation.delay_ms, fence_ttl_ms)


def _decode_acquire(operation: AcquireLock, reply: Reply) -> Acquired | Held:
    kind, number, flag = text(reply).split(" ")
    if kind == "wrong_kind":
        message = f"{operation.name!r} is a fair lock, which an operation on a plain lock cannot use"
        raise WrongKind(message)
    if kind == "held":
        return Held(optional_number(number), is_delayed=flag == "1")
    return Acquired(int(number), operation.ttl_ms, replay=flag == "1")


def _encode_renew(operation: RenewLock) -> Call:
    keys = lock_keys(operation.name).listed()
    return script_call("renew_lock", keys, operation.holder_id, operation.ttl_ms, operation.delay_ms)


def _decode_renew(operation: RenewLock, reply: Reply) -> Renewed | Lost:
    return Renewed(operation.ttl_ms) if text(reply[0]) == "renewed" else Lost()


def _encode_release(operation: ReleaseLock) -> Call:
    return script_call("release_lock", lock_keys(operation.name).listed(), operation.holder_id, operation.delay_ms)


def _decode_release(_: ReleaseLock, reply: Reply) -> Released | Lost:
    return Released() if text(reply[0]) == "released" else Lost()


# --- by the server's own commands ---


def _native_renew(operation: RenewLock, dialect: Dialect) -> Sequence[Command]:
    if operation.delay_ms:  # the script looks whether only the delay is left
        return ()
    return (dialect.compare_and_keep(lock_keys(operation.name).lock, operation.holder_id, operation.ttl_ms),)


def _decode_native_renew(operation: RenewLock, replies: Sequence[Reply]) -> Renewed | Lost:
    reply = replies[0]
    is_renewed = reply is not None and (text(reply) == "OK" or (isinstance(reply, int) and reply > 0))
    return Renewed(operation.ttl_ms) if is_renewed else Lost()


def _native_release(operation: ReleaseLock, dialect: Dialect) -> Sequence[Command]:
    if operation.delay_ms:
        return ()
    keys = lock_keys(operation.name)
    return (dialect.compare_and_delete(keys.lock, operation.holder_id), ("PUBLISH", keys.freed, operation.holder_id))


def _decode_native_release(_: ReleaseLock, replies: Sequence[Reply]) -> Released | None:
    return Released() if int(replies[0]) > 0 else None  # 0 is "gone" and "another's" alike: the script can tell


def _wakes(operation: ReleaseLock) -> tuple[str, str]:
    return lock_keys(operation.name).freed, operation.holder_id


def _doubted(answer: Released | Lost) -> Released | Lost:
    return Lost(is_unsure=True) if isinstance(answer, Lost) else answer


# --- and what follows on the same connection ---


def _await_replicas(operation: AcquireLock, answer: Acquired | Held) -> Exchange[Acquired | Held | Unreplicated]:
    """Have replicas acknowledge what was written: also a repeat has written, else WAIT would count falsely."""
    if not operation.replicas or not isinstance(answer, Acquired):
        return answer
    wait: Command = ("WAIT", operation.replicas, operation.within_ms)
    (count,) = yield Send((wait,), patience=operation.within_ms / 1000)
    if isinstance(count, ResponseError):
        raise count
    return answer if int(count) >= operation.replicas else Unreplicated(operation.replicas, int(count))


LOCK_CODECS: Final = {
    AcquireLock: Codec(_encode_acquire, _decode_acquire, finish=_await_replicas),
    RenewLock: Codec(_encode_renew, _decode_renew, native=Native(_native_renew, _decode_native_renew)),
    ReleaseLock: Codec(
        _encode_release,
        _decode_release,
        native=Native(_native_release, _decode_native_release),
        wakes=_wakes,
        doubt=_doubted,
    ),
}
