"""Named locks over the wire."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from segmented.errors import WrongKind
from segmented.keys import KEPT_MAX, LockKeys, lock_keys, named_lock_keys
from segmented.models import Acquired, Held, Lost, Released, Renewed, Unreplicated
from segmented.protocol.acknowledging import awaited, replicas_wait
from segmented.protocol.lock.operations import (
    LEFT_MS,
    LINE_TTL_MS,
    NEWCOMER,
    NEWCOMERS_MAX,
    PASSED_MS,
    WAITERS_MAX,
    AcquireLock,
    AdoptLock,
    LeaveLine,
    ReleaseLock,
    RenameHolder,
    RenewLock,
)
from segmented.protocol.wire import (
    Call,
    Codec,
    Native,
    load_script,
    optional_number,
    renewed_or_lost,
    script_call,
    text,
    unsure_if_lost,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from segmented.protocol.wire import Command, Dialect, Exchange, Reply

FENCE_IDLE_MS: Final = 24 * 3600 * 1000
"""How long an idle lock's last token is kept. Its expiry does no harm: the next token is the server's clock in µs."""
LOOK_MS: Final = 1_000
"""Polling interval of waiters for a key, because redis-py's own lock sends no message at its release."""
LINE: Final = f"{NEWCOMERS_MAX} {WAITERS_MAX} {PASSED_MS} {LEFT_MS} {LINE_TTL_MS}"
"""Bounds of the line of processes that wait, as the script takes them."""


def _keys(operation: AcquireLock | AdoptLock | RenewLock | RenameHolder | ReleaseLock) -> LockKeys:
    return named_lock_keys(operation.name) if operation.is_key else lock_keys(operation.name)


@lru_cache(KEPT_MAX)
def _listed(name: str, *, is_key: bool) -> tuple[str, ...]:
    """Return KEYS of every lock script; cached, because each call needs them."""
    return tuple((named_lock_keys(name) if is_key else lock_keys(name)).listed())


@lru_cache(KEPT_MAX)
def _with_line(name: str, *, is_key: bool) -> tuple[str, ...]:
    """Return KEYS of the scripts that acquire, and that leave the line."""
    return (*_listed(name, is_key=is_key), (named_lock_keys(name) if is_key else lock_keys(name)).line)


def asked_of(party: str) -> str:
    """Return how a caller asks, as the scripts take it (`shared/line.lua`)."""
    return f"{LINE} {party}" if party not in {"", NEWCOMER} else party


def _encode_acquire(operation: AcquireLock) -> Call:
    lease_ms = operation.ttl_ms + operation.delay_ms
    arguments = (
        operation.holder_id,
        lease_ms,
        operation.delay_ms,
        FENCE_IDLE_MS + lease_ms,
        asked_of(operation.party),
    )
    return Call(load_script("acquire_lock"), _with_line(operation.name, is_key=operation.is_key), arguments)


def _decode_acquire(operation: AcquireLock, reply: Reply) -> Acquired | Held:
    kind, number, flag, *ahead = (reply.decode() if isinstance(reply, bytes) else reply).split(" ")
    if kind == "acquired":
        return Acquired(int(number), operation.ttl_ms, replay=flag == "1")
    _check_kind(operation.name, kind)
    free_in_ms = optional_number(number)
    if operation.is_key:
        free_in_ms = LOOK_MS if free_in_ms is None else min(free_in_ms, LOOK_MS)
    return Held(free_in_ms, is_delayed=flag == "1", ahead=int(ahead[0]) if ahead else 0)


def _check_kind(name: str, said: str) -> None:
    if said == "wrong_kind":
        message = f"{name!r} is a fair lock, which an operation on a plain lock cannot use"
        raise WrongKind(message)


def _encode_leave(operation: LeaveLine) -> Call:
    return leaving_call(_with_line(operation.name, is_key=operation.is_key), operation.party)


def leaving_call(keys: Sequence[str], party: str) -> Call:
    """Return the call that takes a process out of a line, with KEYS lock, notes, freed and line."""
    return script_call("leave_line", keys, asked_of(party))


def has_left(_: object, reply: Reply) -> bool:
    """Read its answer: whether the process had a place."""
    return bool(int(reply))


def _encode_adopt(operation: AdoptLock) -> Call:
    keys = _listed(operation.name, is_key=operation.is_key)
    return Call(load_script("adopt_lock"), keys, (operation.holder_id, operation.delay_ms))


def _decode_adopt(operation: AdoptLock, reply: Reply) -> Acquired | Lost:
    _check_kind(operation.name, text(reply[0]))
    if text(reply[0]) == "lost":
        return Lost()
    remaining_ms = optional_number(reply[1])
    return Acquired(int(reply[2]), operation.ttl_ms if remaining_ms is None else remaining_ms, replay=True)


def _encode_renew(operation: RenewLock) -> Call:
    keys = _listed(operation.name, is_key=operation.is_key)
    return Call(load_script("renew_lock"), keys, (operation.holder_id, operation.ttl_ms, operation.delay_ms))


def _encode_rename(operation: RenameHolder) -> Call:
    keys = _listed(operation.name, is_key=operation.is_key)
    return Call(load_script("rename_holder"), keys, (operation.holder_id, operation.new_holder_id))


def _decode_rename(_: RenameHolder, reply: Reply) -> bool:
    return text(reply[0]) == "renamed"


def _encode_release(operation: ReleaseLock) -> Call:
    keys = _listed(operation.name, is_key=operation.is_key)
    arguments = (operation.holder_id, operation.delay_ms)
    return Call(load_script("release_lock"), keys, (*arguments, "1") if operation.quiet else arguments)


def _decode_release(operation: ReleaseLock, reply: Reply) -> Released | Lost:
    if text(reply[0]) == "released":
        return Released()
    said = text(reply[1])
    if said == "forgotten":
        return Lost(is_forgotten=not operation.is_key)  # redis-py's own lock has no fence
    return Lost(revoked_token=optional_number(said))


# --- by the server's own commands ---


def _native_renew(operation: RenewLock, dialect: Dialect) -> Sequence[Command]:
    if operation.delay_ms:  # the script checks whether only the delay is left
        return ()
    return (dialect.compare_and_keep(_keys(operation).lock, operation.holder_id, operation.ttl_ms),)


def _decode_native_renew(operation: RenewLock, replies: Sequence[Reply]) -> Renewed | Lost:
    reply = replies[0]
    is_renewed = reply is not None and (text(reply) == "OK" or (isinstance(reply, int) and reply > 0))
    return Renewed(operation.ttl_ms) if is_renewed else Lost()


def _native_release(operation: ReleaseLock, dialect: Dialect) -> Sequence[Command]:
    if operation.delay_ms:
        return ()
    keys = _keys(operation)
    deleting = dialect.compare_and_delete(keys.lock, operation.holder_id)
    return (deleting,) if operation.quiet else (deleting, ("PUBLISH", keys.freed, operation.holder_id))


def _decode_native_release(_: ReleaseLock, replies: Sequence[Reply]) -> Released | None:
    return Released() if int(replies[0]) > 0 else None  # 0 means "gone" or "another's": the script can tell


def _wakes(operation: ReleaseLock) -> tuple[str, str]:
    return _keys(operation).freed, operation.holder_id


def _quietly(operation: ReleaseLock) -> ReleaseLock:
    return replace(operation, quiet=True)


# --- follow-up commands on the same connection ---


def _await_replicas(operation: AcquireLock, answer: Acquired | Held) -> Exchange[Acquired | Held | Unreplicated]:
    """Wait until replicas acknowledge the write: a repeat writes too, otherwise WAIT would count wrongly."""
    if not isinstance(answer, Acquired):
        return answer
    count = yield from awaited(replicas_wait(operation.replicas, operation.within_ms))
    return answer if count >= operation.replicas else Unreplicated(operation.replicas, count)


CODECS: Final = {
    AcquireLock: Codec(
        _encode_acquire,
        _decode_acquire,
        finish=_await_replicas,
        finishes=attrgetter("replicas"),
        takes=lambda answer: isinstance(answer, Acquired),
    ),
    AdoptLock: Codec(_encode_adopt, _decode_adopt),
    LeaveLine: Codec(_encode_leave, has_left),
    RenameHolder: Codec(_encode_rename, _decode_rename),
    RenewLock: Codec(_encode_renew, renewed_or_lost, native=Native(_native_renew, _decode_native_renew)),
    ReleaseLock: Codec(
        _encode_release,
        _decode_release,
        native=Native(_native_release, _decode_native_release),
        wakes=_wakes,
        quietly=_quietly,
        doubt=unsure_if_lost,
    ),
}
