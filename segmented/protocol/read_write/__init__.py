"""Operations on locks of readers and writers, and how each is sent."""

from __future__ import annotations

from typing import ClassVar

from segmented.keys import lock_keys, read_write_keys
from segmented.models import Acquired, Held
from segmented.protocol.base import LeaseRelease, LeaseRenewal, Operation
from segmented.protocol.lock import FENCE_IDLE_MS, acquired_or_held, asked_of
from segmented.protocol.wire import Call, Reply, script_call
from segmented.values import light_dataclass


@light_dataclass(frozen=True, slots=True)
class AcquireRead(Operation[Acquired | Held]):
    """Read for `ttl_ms`, unless a writer holds the lock or waits for it. Readers of one phase share a token."""

    lease_kind: ClassVar = "read_write"
    name: str
    holder_id: str
    ttl_ms: int

    def call(self) -> Call:
        keys = read_write_keys(self.name)
        fence_ttl_ms = FENCE_IDLE_MS + self.ttl_ms
        return script_call("acquire_read", keys, self.holder_id, self.ttl_ms, fence_ttl_ms)

    def answer(self, reply: Reply) -> Acquired | Held:
        return acquired_or_held(reply, self.name, self.ttl_ms, "read-write lock", next_in_ms=0)


@light_dataclass(frozen=True, slots=True)
class AcquireWrite(Operation[Acquired | Held]):
    """Write for `ttl_ms`, if no other holder reads or writes.

    Otherwise new readers are blocked for `presence_ms`, again with each repeat; 0 does not block them. With a `party`,
    the caller obeys the line of processes of writers and has a place in it, as with AcquireLock.
    """

    lease_kind: ClassVar = "read_write"
    name: str
    holder_id: str
    ttl_ms: int
    presence_ms: int = 0
    party: str = ""

    def call(self) -> Call:
        keys = [*read_write_keys(self.name), lock_keys(self.name).line]
        fence_ttl_ms, how = FENCE_IDLE_MS + self.ttl_ms, (self.presence_ms, asked_of(self.party))
        return script_call("acquire_write", keys, self.holder_id, self.ttl_ms, fence_ttl_ms, *how)

    def answer(self, reply: Reply) -> Acquired | Held:
        return acquired_or_held(reply, self.name, self.ttl_ms, "read-write lock")


@light_dataclass(frozen=True, slots=True)
class RenewReadWrite(LeaseRenewal):
    """Extend a reader's or the writer's lease to `ttl_ms` from now. Never re-creates it."""

    name: str
    holder_id: str
    ttl_ms: int

    def call(self) -> Call:
        keys = read_write_keys(self.name)
        return script_call("renew_read_write", keys, self.holder_id, self.ttl_ms)


@light_dataclass(frozen=True, slots=True)
class ReleaseReadWrite(LeaseRelease):
    """End a reader's or the writer's lease, or a writer's waiting, and wake those that may now enter."""

    name: str
    holder_id: str

    def call(self) -> Call:
        return script_call("release_read_write", read_write_keys(self.name), self.holder_id)
