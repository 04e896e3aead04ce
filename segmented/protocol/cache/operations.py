"""Operations on cached values, each kept beside the lock of its name."""

from __future__ import annotations

from dataclasses import dataclass

from segmented.models import Cached, Forgotten, Held, MayLoad, Outpaced, Uncached, Written
from segmented.protocol.base import Operation


@dataclass(frozen=True, slots=True)
class ReadCached(Operation[Cached | Uncached]):
    """Read the value cached under a name."""

    name: str


@dataclass(frozen=True, slots=True)
class ReadOrAcquire(Operation[Cached | Held | MayLoad]):
    """Read the cached value; if it is missing or due for a refresh, take the lock for `ttl_ms`.

    While another caller holds the lock, an old value is returned and a missing one waited for. Only one caller per
    `hold_off_ms` gets to refresh a due value. A repeat by the same holder id gets the same answer, or releases the lock
    if a value has been written since.
    """

    name: str
    holder_id: str
    ttl_ms: int
    hold_off_ms: int


@dataclass(frozen=True, slots=True)
class WriteCached(Operation[Written | Outpaced]):
    """Keep a value for `ttl_ms`, due for a refresh after `refresh_in_ms`, unless a newer token has written.

    A value forgotten since the token was granted is not kept either. The lock stays held; if the holder has lost it,
    the waiters are notified.
    """

    name: str
    holder_id: str
    fencing_token: int
    value: Cached
    ttl_ms: int
    refresh_in_ms: int | None = None


@dataclass(frozen=True, slots=True)
class ForgetCached(Operation[Forgotten]):
    """Drop the cached value, and refuse writes by the current and all earlier holders of the lock."""

    name: str
