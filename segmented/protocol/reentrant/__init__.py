"""Operations on reentrant locks: an owner holds the name with one entry per lease."""

from __future__ import annotations

from typing import ClassVar, Final

from segmented.keys import lock_keys, reentrant_keys
from segmented.models import Acquired, Held
from segmented.protocol.base import LeaseRelease, LeaseRenewal, Operation
from segmented.protocol.lock import FENCE_IDLE_MS, acquired_or_held, asked_of
from segmented.protocol.wire import Call, Reply, script_call
from segmented.values import light_dataclass

OWNER_FIELD: Final = "owner:"
"""Prefix of owners in the hash, so that no owner's name equals a field of another kind of lock."""


@light_dataclass(frozen=True, slots=True)
class AcquireReentrant(Operation[Acquired | Held]):
    """Enter for at least `ttl_ms`, if the name is free or the owner's already; each `holder_id` enters once.

    With `only_again`, only an owner that already holds the name enters; a free name is left alone. With a `party`, the
    caller obeys the line of processes and has a place in it, as with AcquireLock.
    """

    lease_kind: ClassVar = "reentrant"
    name: str
    owner: str
    holder_id: str
    ttl_ms: int
    only_again: bool = False
    party: str = ""

    def call(self) -> Call:
        keys = [*reentrant_keys(self.name), lock_keys(self.name).line]
        owner, fence_ttl_ms = OWNER_FIELD + self.owner, FENCE_IDLE_MS + self.ttl_ms
        how = ("1" if self.only_again else "0", asked_of(self.party))
        return script_call("acquire_reentrant", keys, owner, self.holder_id, self.ttl_ms, fence_ttl_ms, *how)

    def answer(self, reply: Reply) -> Acquired | Held:
        return acquired_or_held(reply, self.name, self.ttl_ms, "reentrant lock")


@light_dataclass(frozen=True, slots=True)
class RenewReentrant(LeaseRenewal):
    """Extend the lock to `ttl_ms` from now, or longer if another entry needs it. Never re-creates it."""

    name: str
    owner: str
    holder_id: str
    ttl_ms: int

    def call(self) -> Call:
        keys = reentrant_keys(self.name)
        owner, fence_ttl_ms = OWNER_FIELD + self.owner, FENCE_IDLE_MS + self.ttl_ms
        return script_call("renew_reentrant", keys, owner, self.holder_id, self.ttl_ms, fence_ttl_ms)


@light_dataclass(frozen=True, slots=True)
class ReleaseReentrant(LeaseRelease):
    """Remove this entry from the owner's count, once; the last one frees the lock and wakes a waiter."""

    name: str
    owner: str
    holder_id: str

    def call(self) -> Call:
        keys = reentrant_keys(self.name)
        return script_call("release_reentrant", keys, OWNER_FIELD + self.owner, self.holder_id)
