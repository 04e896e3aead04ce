"""The options of `torture rebuild`, the orders of its sale, and the batches in which a shop makes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from segmented import protocol as op
from segmented.errors import SegmentedError
from segmented.models import Order, Reserved
from segmented.orders import Claim, cancel_order
from segmented.orders.answers import Confirmed
from segmented.plans import run_sync
from segmented.stock.plans import settle_many_plan
from tests.torture.options import require_within

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from segmented.orders import Gate
    from segmented.stock import Pool

ORDERS_MIN: Final = 1_000
ORDERS_MAX: Final = 10_000_000
ROUNDS_MAX: Final = 100
QUICK_SHARE: Final = 500
QUICK_STEADY_SECONDS: Final = 0.5
STEADY_SECONDS: Final = 5.0
"""Duration of the steady part of a round, in which nothing is rebuilt."""
RESERVED_SHARE: Final = 100
"""One order in so many is still reserved when the copy of the server's data is made."""
LOST_SHARE: Final = 200
"""One order in so many is confirmed after the copy, by the database and by the server, which then forgets it."""
SEGMENTS: Final = 16
SKU: Final = "rebuilt"


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildOptions:
    """The options of a run."""

    orders: int = 1_000_000
    rounds: int = 5
    is_quick: bool = False

    def __post_init__(self) -> None:
        """Validate the options. Raises InvalidInput."""
        require_within("--orders", self.orders, ORDERS_MIN, ORDERS_MAX)
        require_within("--rounds", self.rounds, 1, ROUNDS_MAX)

    @property
    def round_count(self) -> int:
        """Number of rebuilds."""
        return 1 if self.is_quick else self.rounds

    @property
    def steady_seconds(self) -> float:
        """Duration of the steady part of a round."""
        return QUICK_STEADY_SECONDS if self.is_quick else STEADY_SECONDS

    @property
    def sale(self) -> Sale:
        """The orders of the sale."""
        confirmed = max(ORDERS_MIN, self.orders // QUICK_SHARE) if self.is_quick else self.orders
        return Sale(confirmed, confirmed // RESERVED_SHARE, confirmed // LOST_SHARE)


@dataclass(frozen=True, slots=True)
class Sale:
    """The orders of one unit each, numbered from 0: confirmed, then reserved, then lost ones."""

    confirmed: int
    reserved: int
    """Reserved when the copy is made. Half are confirmed and a quarter are cancelled after it, a quarter stay open."""
    lost: int
    """Reserved and confirmed after the copy."""

    @property
    def finished(self) -> range:
        """The reserved orders that the database confirms after the copy."""
        return range(self.confirmed, self.confirmed + self.reserved // 2)

    @property
    def cancelled(self) -> range:
        """The reserved orders that the database voids after the copy."""
        return range(self.finished.stop, self.finished.stop + self.reserved // 4)

    @property
    def still_open(self) -> range:
        """The reserved orders that nobody decides."""
        return range(self.cancelled.stop, self.confirmed + self.reserved)

    @property
    def forgotten(self) -> range:
        """The orders that the server forgets altogether."""
        return range(self.still_open.stop, self.still_open.stop + self.lost)

    @property
    def sold(self) -> int:
        """Units sold when the server forgets."""
        return self.confirmed + len(self.finished) + self.lost

    @property
    def stock(self) -> int:
        """Units ever stocked: as many are unsold at the end as are lost, so that there is something left to sell."""
        return self.sold + len(self.still_open) + self.lost

    @property
    def free(self) -> int:
        """Units that are neither sold nor reserved after the rebuild."""
        return self.stock - self.sold - len(self.still_open)


def order_id(number: int) -> str:
    """Return the id of an order."""
    return f"order-{number:08}"


BATCH: Final = 1_000
HOLD: Final = 3_600.0
"""Seconds: longer than a run, so that only the run decides the reserved orders."""


def sell_until_copy(pool: Pool, gate: Gate, sale: Sale, progress: Callable[[int], None]) -> None:
    """Confirm most orders, and reserve some."""
    for batch in _batches(range(sale.confirmed)):
        confirm(pool, gate, reserve(pool, batch))
        progress(batch.stop)
    for batch in _batches(range(sale.confirmed, sale.confirmed + sale.reserved)):
        reserve(pool, batch)


def sell_after_copy(pool: Pool, gate: Gate, sale: Sale) -> None:
    """Decide most of the reserved orders, and sell others. The server forgets all of it, the database nothing."""
    for batch in (*_batches(sale.finished), *_batches(sale.forgotten)):
        confirm(pool, gate, reserve(pool, batch))
    for number in sale.cancelled:
        cancel_order(pool, gate, Order(order_id(number)))


def sell_rest(pool: Pool, gate: Gate, sale: Sale) -> None:
    """Sell every unit that is left, first to the orders that have it reserved."""
    rest = range(sale.forgotten.stop, sale.forgotten.stop + sale.free)
    for batch in (*_batches(sale.still_open), *_batches(rest)):
        confirm(pool, gate, reserve(pool, batch))


def reserve(pool: Pool, numbers: Iterable[int]) -> list[Reserved]:
    """Reserve orders, or find what they have reserved. Raises SegmentedError if one gets no unit."""
    answers = pool.reserve_many(Order(order_id(number)) for number in numbers)
    found = [answer for answer in answers if isinstance(answer, Reserved)]
    _require(len(found), answers, "are reserved")
    return found


def confirm(pool: Pool, gate: Gate, reserved: Sequence[Reserved]) -> None:
    """Confirm reserved orders, first in the database. Raises SegmentedError if one is not."""
    claims = [Claim(Order(one.order_id), SKU, one.segment, one.epoch, sequence=one.sequence) for one in reserved]
    stored = gate.confirm_many(claims)
    _require(sum(isinstance(answer, Confirmed) for answer in stored), stored, "are confirmed in the database")
    operation = op.SettleMany(SKU, "confirmed", tuple(one.order_id for one in reserved), decided=True)
    run_sync(settle_many_plan(operation), pool.store)


def _require(count: int, answers: Sequence[object], what: str) -> None:
    if count != len(answers):
        other = next(answer for answer in answers if not isinstance(answer, Reserved | Confirmed))
        message = f"{count} of {len(answers)} orders {what}; another one got {other}"
        raise SegmentedError(message)


def _batches(numbers: range) -> Iterator[range]:
    for first in range(numbers.start, numbers.stop, BATCH):
        yield range(first, min(first + BATCH, numbers.stop))
