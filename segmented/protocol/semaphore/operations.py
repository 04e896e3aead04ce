"""Operations on semaphores."""

from __future__ import annotations

from dataclasses import dataclass

from segmented.models import Acquired, Held, Lost, Released, Renewed
from segmented.protocol.base import Operation


@dataclass(frozen=True, slots=True)
class AcquirePermit(Operation[Acquired | Held]):
    """Take one of `permits` for `ttl_ms`; raises PermitsMismatch while others hold permits of a different total.

    A repeat by the same holder id renews its permit instead of taking a second one; its token grows.
    """

    name: str
    holder_id: str
    ttl_ms: int
    permits: int


@dataclass(frozen=True, slots=True)
class RenewPermit(Operation[Renewed | Lost]):
    """Extend the holder's permit to `ttl_ms` from now. Never re-creates it."""

    name: str
    holder_id: str
    ttl_ms: int


@dataclass(frozen=True, slots=True)
class ReleasePermit(Operation[Released | Lost]):
    """Release the holder's permit, and wake one waiter."""

    name: str
    holder_id: str
