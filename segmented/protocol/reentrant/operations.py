"""Operations on reentrant locks: an owner holds the name with one entry per lease."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from segmented.errors import WrongKind
from segmented.keys import lock_keys, reentrant_keys
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
class AcquireReentrant(Operation[Acquired | Held]):
    """Enter for at least `ttl_ms`, if the name is free or the owner's already; each `holder_id` enters once.

    With `only_again`, only an owner that already holds the name enters; a free name is left alone. With a `party`, the
    caller obeys the line of processes and has a place in it, as with AcquireLock.
    """

    name: str
    owner: str
    holder_id: str
    ttl_ms: int
    only_again: bool = False
    party: str = ""


@dataclass(frozen=True, slots=True)
class RenewReentrant(Operation[Renewed | Lost]):
    """Extend the lock to `ttl_ms` from now, or longer if another entry needs it. Never re-creates it."""

    name: str
    owner: str
    holder_id: str
    ttl_ms: int


@dataclass(frozen=True, slots=True)
class ReleaseReentrant(Release[Released | Lost]):
    """Remove this entry from the owner's count, once; the last one frees the lock and wakes a waiter."""

    name: str
    owner: str
    holder_id: str


# --- over the wire ---


OWNER_FIELD: Final = "owner:"
"""Prefix of owners in the hash, so that no owner's name equals a field of another kind of lock."""


def _encode_acquire(operation: AcquireReentrant) -> Call:
    keys = [*reentrant_keys(operation.name).listed(), lock_keys(operation.name).line]
    owner, fence_ttl_ms = OWNER_FIELD + operation.owner, FENCE_IDLE_MS + operation.ttl_ms
    how = ("1" if operation.only_again else "0", asked_of(operation.party))
    return script_call("acquire_reentrant", keys, owner, operation.holder_id, operation.ttl_ms, fence_ttl_ms, *how)


def _decode_acquire(operation: AcquireReentrant, reply: Reply) -> Acquired | Held:
    match text(reply[0]):
        case "wrong_kind":
            message = f"the name {operation.name!r} belongs to another kind of lock, not to a reentrant lock"
            raise WrongKind(message)
        case "held":
            return Held(optional_number(reply[1]), ahead=sum(map(int, reply[2:])))
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
