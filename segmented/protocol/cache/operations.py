"""Operations on cached values, each kept beside the lock of its name."""

from __future__ import annotations

from dataclasses import dataclass

from segmented.models import Cached, Forgotten, Held, MayLoad, Outpaced, Uncached, Written
from segmented.protocol.base import Operation


@dataclass(frozen=True, slots=True)
class ReadCached(Operation[Cached | Uncached]):
    """Read what is kept under a name."""

    name: str


@dataclass(frozen=True, slots=True)
class ReadOrAcquire(Operation[Cached | Held | MayLoad]):
    """Read what is kept; if there is nothing, or it is due to be made anew, take the lock for `ttl_ms`.

    While somebody else holds the lock, an old value is read and a missing one waited for. A value that is due is handed
    out to be made anew once in `hold_off_ms`. A repeat by the same holder id is told the same, or gives the lock back
    where a value has come meanwhile.
    """

    name: str
    holder_id: str
    ttl_ms: int
    hold_off_ms: int


@dataclass(frozen=True, slots=True)
class WriteCached(Operation[Written | Outpaced]):
    """Keep a value for `ttl_ms`, due to be made anew after `refresh_in_ms`, unless a newer token has written.

    Nor is one kept that was forgotten since the token was given out. The lock stays; if it is not the holder's any
    more, those who wait are told to look.
    """

    name: str
    holder_id: str
    fencing_token: int
    value: Cached
    ttl_ms: int
    refresh_in_ms: int | None = None


@dataclass(frozen=True, slots=True)
class ForgetCached(Operation[Forgotten]):
    """Drop what is kept, and refuse what is written by anybody who has the lock now, or had it before."""

    name: str
