"""One sale: its orders, and the buyers' calls. Independent of Locust and of the schedule of arrivals."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from bench.granularity.recorder import Recorder
from segmented.models import Order

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.granularity.cases import CaseState
    from bench.granularity.cell import Cell
    from bench.strategies.base import Strategy

FAILED_MAX: Final = 100
"""Number of failed orders after which the sale is given up: something is broken, not slow."""


@dataclass(slots=True)
class Sale:
    """The state that all buyers share."""

    cell: Cell
    strategy: Strategy
    recorder: Recorder = field(default_factory=Recorder)
    numbered_from: int = 0
    """Offset of order numbers: processes that sell together need different ones."""
    order_count: int = 0
    is_closing: bool = False
    """Whether buyers stop ordering."""
    sold_out_at: float | None = None
    over: threading.Event = field(default_factory=threading.Event)
    """Set at the first refusal, or after too many failures."""
    case: CaseState | None = None
    """Extra events of an unfavourable case."""
    after: Callable[[float, float, bool], None] | None = None
    """Called after every call: when it was sent and answered, and whether it failed."""

    def call(self, buyer: int, *, intended: float | None = None) -> None:
        """Process the next orders, one batch in one call."""
        first, size, quantity = self.numbered_from + self.order_count + 1, self.cell.batch, self.cell.quantity
        self.order_count += size
        orders = [Order(str(number), quantity) for number in range(first, first + size)]
        asked = time.monotonic()
        meant = asked if intended is None else intended
        try:
            answers = self.strategy.buy_batch(orders)
        except Exception as error:  # noqa: BLE001  # any error voids the run
            done = time.monotonic()
            self.recorder.note_failure(buyer, first, error, intended=meant, asked=asked, done=done, orders=size)
            is_failed = True
        else:
            done = time.monotonic()
            self.recorder.note(buyer, first, answers, intended=meant, asked=asked, done=done, quantity=quantity)
            is_failed = False
            if self.case is not None:
                self.case.after(orders, answers)
        if self.sold_out_at is None and self.recorder.refusals:
            self.sold_out_at = done
            self.over.set()
        if len(self.recorder.failures) >= FAILED_MAX:
            self.over.set()
        if self.after is not None:
            self.after(asked, done, is_failed)

    @property
    def unfinished_count(self) -> int:
        """Orders that began and never ended."""
        ended = sum(self.recorder.sold) + sum(self.recorder.sold_out) + sum(self.recorder.failed)
        return self.order_count - ended
