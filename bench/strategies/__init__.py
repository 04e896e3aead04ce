"""Strategies to sell the last units, under one interface: same buyers, same slow step; alike ones share a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench.strategies.counted import SegmentsRandom, SegmentsTryNext
from bench.strategies.library_lock import (
    GlobalPottery,
    GlobalPythonRedisLock,
    GlobalRedisPy,
    GlobalRedisPyBest,
    StripedRedisPy,
)
from bench.strategies.pg_rows import PgAdvisory, PgHotRow, PgRows, PgSkipLocked
from bench.strategies.pooled import CeleryBatched, CeleryOne, GlobalLock, LockFree, SegmentBatches, SegmentLocks
from bench.strategies.unlocked import DecrCompensate, NoLock, OneScript, RedisFunction, WatchMulti, WatchMultiShort

if TYPE_CHECKING:
    from bench.strategies.base import Strategy

ALL: Final[tuple[type[Strategy], ...]] = (
    *(NoLock, GlobalLock, GlobalRedisPy, GlobalRedisPyBest, GlobalPythonRedisLock, GlobalPottery, StripedRedisPy),
    *(SegmentsRandom, SegmentsTryNext, SegmentLocks, SegmentBatches, OneScript, RedisFunction, LockFree),
    *(WatchMulti, WatchMultiShort, DecrCompensate, PgHotRow, PgRows, PgAdvisory, PgSkipLocked),
    *(CeleryOne, CeleryBatched),
)
STRATEGIES: Final[dict[str, type[Strategy]]] = {strategy.name: strategy for strategy in ALL}
