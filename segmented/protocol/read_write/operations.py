"""Operations on locks of readers and writers, and how each is sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from segmented.errors import WrongKind
from segmented.keys import lock_keys, read_write_keys
from segmented.models import Acquired, Held, Lost, Released, Renewed
from segmented.protocol.base import Operation, Release
from segmented.protocol.lock.wire import FENCE_IDLE_MS, asked_of
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


@dataclass(frozen=True, slots=True)
class AcquireRead(Operation[Acquired | Held]):
    """Read for `ttl_ms`, unless a writer holds the lock or waits for it. Readers of one phase share a token."""

    name: str
    holder_id: str
    ttl_ms: int


@dataclass(frozen=True, slots=True)
class AcquireWrite(Operation[Acquired | Held]):
    """Write for `ttl_ms`, if no other holder reads or writes.

    Otherwise new readers are blocked for `presence_ms`, again with each repeat; 0 does not block them. With a `party`,
    the caller obeys the line of processes of writers and has a place in it, as with AcquireLock.
    """

    name: str
    holder_id: str
    ttl_ms: int
    presence_ms: int = 0
    party: str = ""


@dataclass(frozen=True, slots=True)
class RenewReadWrite(Operation[Renewed | Lost]):
    """Extend a reader's or the writer's lease to `ttl_ms` from now. Never re-creates it."""

    name: str
    holder_id: str
    ttl_ms: int


@dataclass(frozen=True, slots=True)
class ReleaseReadWrite(Release[Released | Lost]):
    """End a reader's or the writer's lease, or a writer's waiting, and wake those that may now enter."""

    name: str
    holder_id: str


# --- over the wire ---


def _encode_read(operation: AcquireRead) -> Call:
    keys = read_write_keys(operation.name).listed()
    fence_ttl_ms = FENCE_IDLE_MS + operation.ttl_ms
    return script_call("acquire_read", keys, operation.holder_id, operation.ttl_ms, fence_ttl_ms)


def _encode_write(operation: AcquireWrite) -> Call:
    keys = [*read_write_keys(operation.name).listed(), lock_keys(operation.name).line]
    fence_ttl_ms, how = FENCE_IDLE_MS + operation.ttl_ms, (operation.presence_ms, asked_of(operation.party))
    return script_call("acquire_write", keys, operation.holder_id, operation.ttl_ms, fence_ttl_ms, *how)


def _decode_read(operation: AcquireRead, reply: Reply) -> Acquired | Held:
    return _decoded(operation, reply, next_in_ms=0)


def _decode_write(operation: AcquireWrite, reply: Reply) -> Acquired | Held:
    return _decoded(operation, reply, next_in_ms=None)


def _decoded(operation: AcquireRead | AcquireWrite, reply: Reply, *, next_in_ms: int | None) -> Acquired | Held:
    match text(reply[0]):
        case "wrong_kind":
            message = f"the name {operation.name!r} belongs to another kind of lock, not to a read-write lock"
            raise WrongKind(message)
        case "held":
            return Held(optional_number(reply[1]), ahead=sum(map(int, reply[2:])))
    return Acquired(int(reply[1]), operation.ttl_ms, replay=text(reply[2]) == "1", next_in_ms=next_in_ms)


def _encode_renew(operation: RenewReadWrite) -> Call:
    keys = read_write_keys(operation.name).listed()
    return script_call("renew_read_write", keys, operation.holder_id, operation.ttl_ms)


def _encode_release(operation: ReleaseReadWrite) -> Call:
    return script_call("release_read_write", read_write_keys(operation.name).listed(), operation.holder_id)


CODECS: Final = {
    AcquireRead: Codec(_encode_read, _decode_read),
    AcquireWrite: Codec(_encode_write, _decode_write),
    RenewReadWrite: Codec(_encode_renew, renewed_or_lost),
    ReleaseReadWrite: Codec(_encode_release, released_or_lost, doubt=unsure_if_lost),
}
