"""One sale as its buyers saw it, in local seconds. Independent of Locust."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from bench.strategies.base import Refused, RefusedByGate, Sold
from segmented.models import Order

if TYPE_CHECKING:
    from bench.strategies.base import Answer, Strategy

FAILED_MAX: Final = 100
"""Number of failed orders after which the sale is given up: something is broken, not slow."""


@dataclass(slots=True)
class Sale:
    """The events of a sale; all buyers write to it."""

    strategy: Strategy
    order_count: int = 0
    sold: list[tuple[float, float, float]] = field(default_factory=list)
    """(asked, granted, done) of each acknowledged order."""
    refusals: list[Refused] = field(default_factory=list)
    refused_by_gate: int = 0
    failures: list[str] = field(default_factory=list)
    sold_out_at: float | None = None
    is_closing: bool = False
    """Whether buyers stop ordering."""
    over: threading.Event = field(default_factory=threading.Event)
    """Set at the first refusal, or after too many failures."""

    def next_order(self) -> Order:
        """Return an order with the next number."""
        self.order_count += 1
        return Order(str(self.order_count), 1)

    @property
    def unfinished_count(self) -> int:
        """Orders that began and never ended; 0 after all buyers have stopped normally."""
        ended = len(self.sold) + len(self.refusals) + self.refused_by_gate + len(self.failures)
        return self.order_count - ended

    def note(self, answer: Answer, asked_at: float, done_at: float) -> None:
        """Record an answer."""
        match answer:
            case Sold(granted_at):
                self.sold.append((asked_at, granted_at, done_at))
            case Refused():
                self.refusals.append(answer)
                if self.sold_out_at is None:
                    self.sold_out_at = done_at
                    self.over.set()
            case RefusedByGate():
                self.refused_by_gate += 1

    def note_failure(self, error: Exception) -> None:
        """Record an error; give up after many."""
        self.failures.append(f"{type(error).__name__}: {error}")
        if len(self.failures) >= FAILED_MAX:
            self.over.set()
