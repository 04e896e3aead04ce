"""Operations on locks of readers and writers."""

from __future__ import annotations

from dataclasses import dataclass

from segmented.models import Acquired, Held, Lost, Released, Renewed
from segmented.protocol.base import Operation


@dataclass(frozen=True, slots=True)
class AcquireRead(Operation[Acquired | Held]):
    """Read for `ttl_ms`, unless a writer holds the lock or waits for it. Readers of one phase share a token."""

    name: str
    holder_id: str
    ttl_ms: int


@dataclass(frozen=True, slots=True)
class AcquireWrite(Operation[Acquired | Held]):
    """Write for `ttl_ms`, if no other holder reads or writes.

    Otherwise new readers are blocked for `presence_ms`, again with each repeat; 0 does not block them.
    """

    name: str
    holder_id: str
    ttl_ms: int
    presence_ms: int = 0


@dataclass(frozen=True, slots=True)
class RenewReadWrite(Operation[Renewed | Lost]):
    """Extend a reader's or the writer's lease to `ttl_ms` from now. Never re-creates it."""

    name: str
    holder_id: str
    ttl_ms: int


@dataclass(frozen=True, slots=True)
class ReleaseReadWrite(Operation[Released | Lost]):
    """End a reader's or the writer's lease, or a writer's waiting, and wake those that may now enter."""

    name: str
    holder_id: str
