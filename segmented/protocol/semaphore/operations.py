"""Operations on semaphores."""

from __future__ import annotations

from dataclasses import dataclass

from segmented.models import Acquired, Held, Lost, Released, Renewed
from segmented.protocol.base import Operation


@dataclass(frozen=True, slots=True)
class AcquirePermit(Operation[Acquired | Held]):
    """Take one of `permits` for `ttl_ms`; PermitsMismatch while others hold permits of another number.

    A repeat by the same holder id renews its permit and takes no second one; its token grows.
    """

    name: str
    holder_id: str
    ttl_ms: int
    permits: int


@dataclass(frozen=True, slots=True)
class RenewPermit(Operation[Renewed | Lost]):
    """Push the end of the holder's permit out to `ttl_ms` from now. Never re-creates it."""

    name: str
    holder_id: str
    ttl_ms: int


@dataclass(frozen=True, slots=True)
class ReleasePermit(Operation[Released | Lost]):
    """Give the holder's permit back, and wake one who waits."""

    name: str
    holder_id: str
