"""How much the benchmark does. The defaults take some minutes; tests take less."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sizes:
    """Counts of everything that is measured."""

    rounds: int = 5
    """Each ratio is taken in each round, of two measurements next to each other."""
    bare_calls: int = 60_000
    """Of the bare decrement, a round."""
    batch_orders: int = 30_000
    """Through `reserve_many` and `confirm_many`, a round."""
    callers: int = 1_000
    calls: int = 30
    """Awaited by each caller, a round."""
    segment_counts: tuple[int, int] = (1, 200)
    order_counts: tuple[int, int] = (10_000, 1_000_000)
    """Orders in a pool between which the server's time for an order is compared."""
    refused: int = 1_000
    sharded_stock: int = 20_000
    holds_ms: tuple[int, ...] = (5, 20)
    lanes: tuple[int, ...] = (1, 4, 16, 64)
    grant_seconds: float = 3.0
