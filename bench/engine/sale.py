"""One sale: its orders, the buyers' calls, and the record of the calls. Independent of Locust and of the arrivals.

The calls are recorded in arrays during the sale, as histograms and series afterwards. Recording a call costs a few
appends; everything else waits until the sale is over. The cost is measured: one call in 64 is timed, and the record has
the sum.
"""

from __future__ import annotations

import json
import threading
import time
from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from bench.strategies.base import GaveUp, Refused, Sold
from segmented.models import Order

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from bench.engine.cases import CaseState
    from bench.engine.cell import Cell
    from bench.engine.skus import SkuChoice
    from bench.strategies.base import Answer, Strategy

TIMED_EVERY: Final = 64
NO_SEGMENT: Final = -1
FAILED_MAX: Final = 100
"""Number of failed orders after which the sale is given up: something is broken, not slow."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A "sold out" answer: local seconds of request and answer."""

    asked_at: float
    done_at: float
    quantity: int
    number: int = 0
    """The number of the refused order."""


@dataclass(slots=True)
class Recorder:
    """Calls as columns, in the order of their answers. One call serves `sold + sold_out + failed` orders."""

    intended: array[float] = field(default_factory=lambda: array("d"))
    """Equal to `asked` in a closed loop."""
    asked: array[float] = field(default_factory=lambda: array("d"))
    granted: array[float] = field(default_factory=lambda: array("d"))
    """0 if the critical section was never reached."""
    freed: array[float] = field(default_factory=lambda: array("d"))
    done: array[float] = field(default_factory=lambda: array("d"))
    sold: array[int] = field(default_factory=lambda: array("i"))
    sold_out: array[int] = field(default_factory=lambda: array("i"))
    failed: array[int] = field(default_factory=lambda: array("i"))
    segment: array[int] = field(default_factory=lambda: array("i"))
    attempts: array[int] = field(default_factory=lambda: array("i"))
    buyer: array[int] = field(default_factory=lambda: array("i"))
    first: array[int] = field(default_factory=lambda: array("q"))
    """Number of the call's first order."""
    sold_numbers: array[int] = field(default_factory=lambda: array("q"))
    """Orders acknowledged as sold."""
    refusals: list[Refusal] = field(default_factory=list)
    judged: list[Refused] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    timed_s: float = 0.0

    def note(
        self,
        buyer: int,
        first: int,
        answers: Sequence[Answer],
        *,
        intended: float,
        asked: float,
        done: float,
        quantity: int,
    ) -> None:
        """Record the answers of a call: one per order, numbered from `first`."""
        is_timed = len(self.asked) % TIMED_EVERY == 0
        began = time.perf_counter() if is_timed else 0.0
        granted = freed = 0.0
        sold = sold_out = attempts = 0
        segment = NO_SEGMENT
        mixed: Iterable[tuple[int, Answer]] = enumerate(answers, start=first)
        head = answers[0]
        if isinstance(head, Sold) and len(answers) > 1 and answers.count(head) == len(answers):
            # a fully sold batch shares one answer, so there is no need to check each
            self.sold_numbers.extend(range(first + 1, first + len(answers)))
            sold = len(answers) - 1
            mixed = ((first, head),)
        for number, answer in mixed:
            if isinstance(answer, Sold):
                sold += 1
                granted, freed, attempts = answer.granted_at, answer.freed_at, max(attempts, answer.attempts)
                segment = NO_SEGMENT if answer.segment is None else answer.segment
                self.sold_numbers.append(number)
            elif isinstance(answer, Refused):
                sold_out += 1
                self.refusals.append(Refusal(asked, done, quantity, number))
                self.judged.append(answer)
            else:
                reason = answer.reason if isinstance(answer, GaveUp) else "the order database did not confirm"
                self.failures.append(reason)
        self._append(buyer, first, (intended, asked, granted, freed, done), attempts, segment)
        self.sold.append(sold)
        self.sold_out.append(sold_out)
        self.failed.append(len(answers) - sold - sold_out)
        if is_timed:
            self.timed_s += (time.perf_counter() - began) * TIMED_EVERY

    def note_failure(
        self, buyer: int, first: int, error: Exception, *, intended: float, asked: float, done: float, orders: int
    ) -> None:
        """Record a call that ended in an error, so that the outcome of its orders is unknown."""
        self.failures.extend(f"{type(error).__name__}: {error}" for _ in range(orders))
        self._append(buyer, first, (intended, asked, 0.0, 0.0, done), 0, NO_SEGMENT)
        self.sold.append(0)
        self.sold_out.append(0)
        self.failed.append(orders)

    def _append(
        self, buyer: int, first: int, times: tuple[float, float, float, float, float], attempts: int, segment: int
    ) -> None:
        intended, asked, granted, freed, done = times
        self.intended.append(intended)
        self.asked.append(asked)
        self.granted.append(granted)
        self.freed.append(freed)
        self.done.append(done)
        self.attempts.append(attempts)
        self.segment.append(segment)
        self.buyer.append(buyer)
        self.first.append(first)

    def lines(self, began: float) -> Iterator[str]:
        """Yield the history: one line of JSON per call, in seconds from `began` with six decimals."""
        for index, asked in enumerate(self.asked):
            times = (self.intended[index], asked, self.granted[index], self.freed[index], self.done[index])
            intended_at, asked_at, granted_at, freed_at, done_at = (
                round(one - began, 6) if one else None for one in times
            )
            yield json.dumps(
                {
                    "first": self.first[index],
                    "buyer": self.buyer[index],
                    "intended": intended_at,
                    "asked": asked_at,
                    "granted": granted_at,
                    "freed": freed_at,
                    "done": done_at,
                    "sold": self.sold[index],
                    "sold_out": self.sold_out[index],
                    "failed": self.failed[index],
                    "segment": None if self.segment[index] == NO_SEGMENT else self.segment[index],
                    "attempts": self.attempts[index],
                },
                separators=(",", ":"),
            )


@dataclass(slots=True)
class Sale:
    """The state that all buyers share."""

    cell: Cell
    strategy: Strategy
    """That of the most popular sku, if there are several."""
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
    choice: SkuChoice | None = None
    """The skus of the orders, if there are several."""
    more: tuple[Strategy, ...] = ()
    """The strategies of the other skus."""

    @property
    def strategies(self) -> tuple[Strategy, ...]:
        """Return the strategy of each sku."""
        return (self.strategy, *self.more)

    @property
    def lanes(self) -> int:
        """The number of calls that can be in their slow step at once, over all skus."""
        return min(self.cell.buyers, sum(one.lanes for one in self.strategies))

    def parts(self) -> list[Recorder]:
        """Return the calls of each sku."""
        return [self.recorder] if self.choice is None else split(self.recorder, self.choice)

    def shares(self, stock: int) -> tuple[int, ...]:
        """Return the units of each sku."""
        return (stock,) if self.choice is None else self.choice.shares(stock, self.cell.quantity)

    def call(self, buyer: int, *, intended: float | None = None) -> None:
        """Process the next orders, one batch in one call."""
        first, size, quantity = self.numbered_from + self.order_count + 1, self.cell.batch, self.cell.quantity
        self.order_count += size
        orders = [Order(str(number), quantity) for number in range(first, first + size)]
        strategy = self.strategy if self.choice is None else self.strategies[self.choice.of(first)]
        asked = time.monotonic()
        meant = asked if intended is None else intended
        try:
            answers = strategy.buy_batch(orders)
        except Exception as error:  # noqa: BLE001  # any error voids the run
            done = time.monotonic()
            self.recorder.note_failure(buyer, first, error, intended=meant, asked=asked, done=done, orders=size)
            is_failed = True
            time.sleep(0)  # a call that fails without I/O would let no other greenlet run
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


def split(recorder: Recorder, choice: SkuChoice) -> list[Recorder]:
    """Return the calls of each sku, as far as the checker reads them."""
    found = [Recorder() for _ in choice.weights]
    for first, asked, sold, failed in zip(recorder.first, recorder.asked, recorder.sold, recorder.failed, strict=True):
        part = found[choice.of(first)]
        part.asked.append(asked)
        part.sold.append(sold)
        part.failed.append(failed)
    for number in recorder.sold_numbers:
        found[choice.of(number)].sold_numbers.append(number)
    for refusal, judged in zip(recorder.refusals, recorder.judged, strict=True):
        part = found[choice.of(refusal.number)]
        part.refusals.append(refusal)
        part.judged.append(judged)
    return found


def whole_sale(recorder: Recorder) -> tuple[float, float] | None:
    """Return when the first order was sent and the last sold one was answered; None if none was sold."""
    last = [done for done, sold in zip(recorder.done, recorder.sold, strict=True) if sold]
    return (min(recorder.asked), max(last)) if last else None
