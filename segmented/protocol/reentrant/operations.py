"""Operations on reentrant locks: an owner holds the name, by as many entries as it has leases."""

from __future__ import annotations

from dataclasses import dataclass

from segmented.models import Acquired, Held, Lost, Released, Renewed
from segmented.protocol.base import Operation


@dataclass(frozen=True, slots=True)
class AcquireReentrant(Operation[Acquired | Held]):
    """Enter for at least `ttl_ms`, if the name is free or the owner's already; each `holder_id` enters once.

    With `only_again` a free name is left alone: only an owner that holds it enters.
    """

    name: str
    owner: str
    holder_id: str
    ttl_ms: int
    only_again: bool = False


@dataclass(frozen=True, slots=True)
class RenewReentrant(Operation[Renewed | Lost]):
    """Have the lock live for `ttl_ms` from now, or longer if another entry needs it. Never re-creates it."""

    name: str
    owner: str
    holder_id: str
    ttl_ms: int


@dataclass(frozen=True, slots=True)
class ReleaseReentrant(Operation[Released | Lost]):
    """Take this entry off the owner's count, once; with the last one the lock is free, and who waits is woken."""

    name: str
    owner: str
    holder_id: str
