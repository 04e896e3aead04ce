"""One sale: its orders, the buyers' calls, and the record of the calls. Independent of Locust and of the arrivals.

The calls are recorded in arrays during the sale, as histograms and series afterwards. Recording a call costs a few
appends; everything else waits until the sale is over. The cost is measured: one call in 64 is timed, and the record has
the sum.

Each sku of a cell has a pool of its own, and a draw that depends only on seed and order chooses the sku, with a
probability proportional to 1 / rank^zipf (G. Zipf, 1949): with 0 all are alike, with 1.1 the first of 16 gets a third
of all orders. The orders of one call are for the same sku.

Unfavourable cases have extra events. `one-unit`: a stock of one unit and many buyers. `cancel-storm`: every second sold
order is cancelled at once, and its units must become free again. `restock`: half of the stock is there at first, and
the other half is added when half of that is sold. Added units are recorded with the time from which they were surely
free, so that earlier refusals are checked against the units free before.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from array import array
from bisect import bisect_right
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from bench.strategies.base import GaveUp, Refused, Sold
from segmented.errors import InvalidInput
from segmented.models import Order

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from bench.engine.cell import Cell
    from bench.strategies.base import Answer, Strategy

CANCELLED_EVERY: Final = 2
"""One of this many orders is cancelled."""
FAILURES_SAID: Final = 3


@dataclass(slots=True)
class CaseState:
    """The state of one run's case: initial stock, actions after a call, and added units."""

    cell: Cell
    strategy: Strategy
    seed: int
    opened: int
    """Initial units."""
    later: int = 0
    """Units added when half of the initial units are sold."""
    came_in: list[tuple[float, int]] = field(default_factory=list)
    """When added units were acknowledged, in local seconds, and how many."""
    cancelled: int = 0
    """Units of orders sold and then cancelled."""
    restocked: int = 0
    failures: list[str] = field(default_factory=list)
    _sold: int = 0
    _is_restocking: bool = False

    def after(self, orders: Sequence[Order], answers: Sequence[Answer]) -> None:
        """Act after an answered call; the buyer's next order waits for it."""
        sold = [order for order, answer in zip(orders, answers, strict=True) if isinstance(answer, Sold)]
        self._sold += sum(order.quantity for order in sold)
        if self.cell.case == "cancel-storm":
            for order in (one for one in sold if is_cancelled(one.order_id, self.seed)):
                what = f"order {order.order_id} was not cancelled"
                units = self._taken_in(partial(self.strategy.cancel, order), order.quantity, what)
                self.cancelled += units  # other buyers run while a unit comes in
        elif self.later and not self._is_restocking and 2 * self._sold >= self.opened:
            self._is_restocking = True  # before anything that lets another buyer run
            what = f"{'1 unit' if self.later == 1 else f'{self.later} units'} did not come in"
            self.restocked = self._taken_in(partial(self.strategy.restock, self.later), self.later, what)

    def _taken_in(self, act: Callable[[], None], units: int, what: str) -> int:
        """Return the units that came in: all of them, or none."""
        try:
            act()
        except Exception as error:  # noqa: BLE001  # whatever it was, it voids the run
            self.failures.append(f"{what}: {type(error).__name__}: {error}")
            return 0
        self.came_in.append((time.monotonic(), units))
        return units

    def broken(self) -> tuple[str, ...]:
        """Return what the case failed to do, one sentence each; any of them voids the run."""
        found = list(self.failures[:FAILURES_SAID])
        if len(self.failures) > FAILURES_SAID:
            found.append(f"and {len(self.failures) - FAILURES_SAID} more like these")
        if self.later and not self._is_restocking:
            found.append("half of the units were not sold in time, so none came in")
        return tuple(found)


def case_of(cell: Cell, strategy: Strategy, stock: int, seed: int, *, is_calibration: bool = False) -> CaseState:
    """Return the case of a run that sells `stock` units in total; a calibration only buys.

    In a cancel storm every unit is sold twice on average, so half the stock lasts as long.
    """
    opened = stock if is_calibration else opened_of(cell, stock)
    later = 0 if is_calibration or cell.case != "restock" else stock - opened
    return CaseState(cell, strategy, seed, opened=opened, later=later)


def opened_of(cell: Cell, stock: int) -> int:
    """Return how many units a sale of `stock` units opens with."""
    is_halved = cell.case == "restock" or (cell.case == "cancel-storm" and cell.stock is None)
    return stock - stock // 2 if is_halved else stock


def refuse_case(cell: Cell, strategy: type[Strategy]) -> None:
    """Raise InvalidInput for a case that the strategy or the cell does not support."""
    if cell.case == "one-unit" and cell.stock != 1:
        raise InvalidInput(f"the case one-unit is of a stock of 1, not {cell.stock or 'one that lasts'}")
    if cell.case == "cancel-storm":
        strategy.require_cancel(commits=cell.critical_section().commits)
    if cell.case == "restock":
        strategy.require_restock(commits=cell.critical_section().commits)
        if cell.loop == "open" or (cell.stock is not None and cell.stock < 2 * cell.quantity):
            raise InvalidInput("the case restock is of a closed loop, and of a stock with an order in each half")


def is_cancelled(order_id: str, seed: int) -> bool:
    """Return whether an order is cancelled: the same for the same seed, in any order of execution."""
    return hashlib.blake2b(f"{seed}:{order_id}".encode(), digest_size=1).digest()[0] % CANCELLED_EVERY == 0


DIGEST_BYTES: Final = 6
"""Bytes of a draw: as a fraction below 1 it is exact."""


@dataclass(frozen=True, slots=True)
class SkuChoice:
    """The sku of each order of a run."""

    seed: int
    batch: int
    weights: tuple[float, ...]
    """Sums of the probabilities up to each sku, the most popular first; the last is their total."""

    def of(self, number: int) -> int:
        """Return the sku of an order by its number: 0 is the most popular."""
        call = (number - 1) // self.batch
        drawn = hashlib.blake2b(f"{self.seed}:{call}".encode(), digest_size=DIGEST_BYTES).digest()
        share = int.from_bytes(drawn, "big") / (1 << 8 * DIGEST_BYTES)
        return bisect_right(self.weights, share * self.weights[-1])

    def shares(self, stock: int, quantity: int) -> tuple[int, ...]:
        """Return the units of each sku: those for which the first orders ask, so that all skus last equally long.

        Each sku has at least one unit, because no pool opens without any; the stock is at least one unit a sku.
        """
        found = [0] * len(self.weights)
        a_call = self.batch * quantity
        for number in range(1, -(-stock // quantity) + 1, self.batch):
            found[self.of(number)] += min(a_call, stock - (number - 1) * quantity)
        for _ in range(found.count(0)):
            found[found.index(max(found))] -= 1
            found[found.index(0)] = 1
        assert sum(found) == stock, "a split of units neither creates nor loses one"
        assert min(found) > 0, "each sku has a unit"
        return tuple(found)


def choice_of(cell: Cell, seed: int) -> SkuChoice:
    """Return the skus of a run's orders."""
    weights = accumulate(rank**-cell.zipf for rank in range(1, cell.skus + 1))
    return SkuChoice(seed, cell.batch, tuple(weights))


# --- the sale ---

TIMED_EVERY: Final = 64
NO_SEGMENT: Final = -1
MOMENTS: Final = ("intended", "asked", "granted", "freed", "done")
HISTORY: Final = ("first", "buyer", *MOMENTS, "sold", "sold_out", "failed", "segment", "attempts")
"""Columns of a recorder, in the order in which a line of the history has them; those of `MOMENTS` are times."""
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
        for index in range(len(self.asked)):
            line: dict[str, float | None] = {name: getattr(self, name)[index] for name in HISTORY}
            for name in MOMENTS:
                line[name] = round(at - began, 6) if (at := line[name]) else None
            if line["segment"] == NO_SEGMENT:
                line["segment"] = None
            yield json.dumps(line, separators=(",", ":"))


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
