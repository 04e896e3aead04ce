"""Operations on reentrant locks: an owner holds the name with one entry per lease."""

from __future__ import annotations

from dataclasses import dataclass

from segmented.models import Acquired, Held, Lost, Released, Renewed
from segmented.protocol.base import Operation


@dataclass(frozen=True, slots=True)
class AcquireReentrant(Operation[Acquired | Held]):
    """Enter for at least `ttl_ms`, if the name is free or the owner's already; each `holder_id` enters once.

    With `only_again`, only an owner that already holds the name enters; a free name is left alone.
    """

    name: str
    owner: str
    holder_id: str
    ttl_ms: int
    only_again: bool = False


@dataclass(frozen=True, slots=True)
class RenewReentrant(Operation[Renewed | Lost]):
    """Extend the lock to `ttl_ms` from now, or longer if another entry needs it. Never re-creates it."""

    name: str
    owner: str
    holder_id: str
    ttl_ms: int


@dataclass(frozen=True, slots=True)
class ReleaseReentrant(Operation[Released | Lost]):
    """Remove this entry from the owner's count, once; the last one frees the lock and wakes a waiter."""

    name: str
    owner: str
    holder_id: str
