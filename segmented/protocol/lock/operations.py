"""Operations on named locks."""

from __future__ import annotations

from dataclasses import dataclass

from segmented.models import Acquired, Held, Lost, Released, Renewed, Unreplicated
from segmented.protocol.base import Operation


@dataclass(frozen=True, slots=True)
class AcquireLock(Operation[Acquired | Held | Unreplicated]):
    """Take the lock for `ttl_ms` if it is free. A repeat by the same holder id renews it and keeps its token.

    The key lives for `delay_ms` longer than the lease. With `replicas`, so many must acknowledge within `within_ms`.
    With `is_key`, in this and the other operations, the name is the key itself, which redis-py's own lock may use too.
    """

    name: str
    holder_id: str
    ttl_ms: int
    delay_ms: int = 0
    replicas: int = 0
    within_ms: int = 0
    is_key: bool = False


@dataclass(frozen=True, slots=True)
class RenewLock(Operation[Renewed | Lost]):
    """Push the end of the lease out to `ttl_ms` from now, if it is still the holder's. Never re-creates it."""

    name: str
    holder_id: str
    ttl_ms: int
    delay_ms: int = 0
    is_key: bool = False


@dataclass(frozen=True, slots=True)
class AdoptLock(Operation[Acquired | Lost]):
    """Find the lease of `holder_id`: its token, and as `ttl_ms` how long it lives. Changes nothing.

    A key without an end, which only another program can write, counts as one of `ttl_ms`.
    """

    name: str
    holder_id: str
    ttl_ms: int
    delay_ms: int = 0
    is_key: bool = False


@dataclass(frozen=True, slots=True)
class RenameHolder(Operation[bool]):
    """Give the lease of `holder_id` to `new_holder_id`, with its token and its end. False when it is neither's.

    The operations of the old holder id are answered Lost from then on.
    """

    name: str
    holder_id: str
    new_holder_id: str
    is_key: bool = False


@dataclass(frozen=True, slots=True)
class ReleaseLock(Operation[Released | Lost]):
    """Delete the lock if it is the holder's, and wake who waits. A repeat is Released until another releases it."""

    name: str
    holder_id: str
    delay_ms: int = 0
    is_key: bool = False
