"""The sizes of the benchmark. The defaults take some minutes; tests take less."""

from __future__ import annotations

from dataclasses import dataclass

from segmented.models import SEGMENT_COUNT_MAX


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many of everything is measured."""

    rounds: int = 5
    """Rounds; each ratio is measured in each round, from two consecutive measurements."""
    bare_calls: int = 60_000
    """Calls of the bare decrement per round."""
    batch_orders: int = 30_000
    """Orders through `reserve_many` and `confirm_many` per round."""
    callers: int = 1_000
    calls: int = 30
    """Calls awaited by each caller per round."""
    segment_counts: tuple[int, int] = (1, 200)
    order_counts: tuple[int, int] = (10_000, 1_000_000)
    """Numbers of orders in a pool, between which the server's time per order is compared."""
    refused: int = 1_000
    segments_most: int = SEGMENT_COUNT_MAX
    """Segments of the pools whose longest steps are measured."""
    step_rounds: int = 9
    """Rounds of each step; the least time counts."""
    sharded_stock: int = 20_000
    holds_ms: tuple[int, ...] = (5, 20)
    lanes: tuple[int, ...] = (1, 4, 16, 64)
    grant_seconds: float = 3.0
