"""Ways to sell the last units, under one interface: same buyers, same slow step, one strategy a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench.strategies.global_lock import GlobalLock
from bench.strategies.lock_free import LockFree
from bench.strategies.no_lock import NoLock
from bench.strategies.segment_locks import SegmentLocks

if TYPE_CHECKING:
    from bench.strategies.base import Strategy

STRATEGIES: Final[dict[str, type[Strategy]]] = {
    strategy.name: strategy for strategy in (NoLock, GlobalLock, SegmentLocks, LockFree)
}
