"""Makes the sale that is forgotten in part: orders in batches, by the calls that a shop uses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench.proof.rebuilds.options import SKU, order_id
from segmented import protocol as op
from segmented.errors import SegmentedError
from segmented.models import Order, Reserved
from segmented.orders import Claim, cancel_order
from segmented.orders.answers import Confirmed
from segmented.plans import run_sync
from segmented.stock.plans import settle_many_plan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from bench.proof.rebuilds.options import Sale
    from segmented.orders import Gate
    from segmented.stock import Pool

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
