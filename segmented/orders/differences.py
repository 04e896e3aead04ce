"""Differences between a gated pool and its order database: pure functions of what was read from both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from segmented.ledger_lines import parse_record
from segmented.models.ids import plural
from segmented.orders.tables import CONFIRMED, VOID, WITHDRAWN

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from segmented.models import Inspected, OrderRecord, PoolState
    from segmented.orders.answers import ChangeRow, OrderRow, SegmentTotals

DifferenceKind = Literal["pool only", "database only", "content", "sum", "epoch"]
"""Kinds of disagreement between the two sides.

| kind | meaning |
| --- | --- |
| pool only | confirmed in the pool, and void or unknown in the database, which can sell the units again |
| database only | confirmed in the database in this epoch; given back in the pool, which can promise the units again |
| content | one order with another quantity or customer |
| sum | stock or sold units |
| epoch | the database's rows are in another epoch, so it refuses what the pool grants |
"""
Verdict = DifferenceKind | Literal["unsettled"]


@dataclass(frozen=True, slots=True)
class Difference:
    """One place where a pool and its order database disagree, and what each says."""

    kind: DifferenceKind
    order_id: str | None
    """None for a sum and an epoch, which no single order explains."""
    pool: str
    database: str

    def __str__(self) -> str:
        about = "" if self.order_id is None else f"order {self.order_id}: "
        return f"{self.kind}: {about}the pool says {self.pool}, the order database says {self.database}"


@dataclass(frozen=True, slots=True)
class Sums:
    """Totals of the database's orders: of all together, not at one moment."""

    sold_before: int
    """Units sold by the segments' rows before the orders were read."""
    sold: int
    earlier: int
    returning: int = 0
    """Units that were returned since the orders were read, or that the pool may not have yet."""


# --- one order ---


def judged(epoch: int, record: OrderRecord | None, row: OrderRow | None) -> Verdict | None:
    """Return how both sides of an order disagree, in order of precedence. A row of an earlier epoch binds no pool."""
    state = None if record is None else record.state
    is_sold = row is not None and row.state == CONFIRMED
    if state == "confirmed" and not is_sold:
        return "pool only"
    if row is None or row.state == VOID:
        return "unsettled" if row is not None and state == "reserved" else None
    is_of_now = (row.epoch or 0) >= epoch
    if record is not None and (state == "confirmed" or (state == "reserved" and is_of_now)):
        if not _is_same(record, row):
            return "content"
        return "unsettled" if state == "reserved" else None
    if state == "reserved":
        return "unsettled"
    return "database only" if is_of_now else None


def is_sold_as(row: OrderRow, raw: str | None) -> bool:
    """Return whether a record's text says what a sold row says: nearly all do, and parsing takes a third of an audit.

    False also for one that only `parse_record` understands: of several parts, changed, returned, or of a cart.
    """
    if raw is None:
        return False
    state, units, *fields = raw.split("\t")[:6] if raw.count("\t") in {3, 5} else ("", "")
    if (state, units) != ("c", str(row.quantity)) or not (fields[0].isdecimal() and fields[1].isdecimal()):
        return False
    return fields[2:] in ([], ["", row.customer_id])


def _is_same(record: OrderRecord, row: OrderRow) -> bool:
    """Return whether units and customer are equal. Customers are compared if both sides name one, as a confirm does."""
    is_same_customer = None in (record.customer_id, row.customer_id) or record.customer_id == row.customer_id
    return record.quantity == row.quantity and is_same_customer


def said_by_pool(inspected: Inspected, record: OrderRecord | None) -> str:
    """Describe an order as it is in the pool."""
    if record is None:
        return "nothing" if inspected.raw is None else "what cannot be read"
    return _said(record.state, record.quantity, record.customer_id)


def said_by_database(row: OrderRow | None) -> str:
    """Describe an order as it is in the database."""
    return "nothing" if row is None else _said(row.state, row.quantity, row.customer_id)


def _said(state: str, quantity: int, customer_id: str | None) -> str:
    buyer = "" if customer_id is None else f" for customer {customer_id}"
    return f"{state} with {quantity} {plural(quantity, 'unit')}{buyer}"


def parsed(found: Iterable[Inspected]) -> dict[str, OrderRecord | None]:
    """Read the records by id; None for an order without one, or with one that another program wrote."""
    return {one.order_id: None if one.raw is None else parse_record(one.order_id, one.raw) for one in found}


# --- sums ---


def stock_of(state: PoolState) -> tuple[int, ...]:
    """Return what a change of the stock, a transfer, a rebuild and a new opening change."""
    return state.epoch, state.opened, state.restocked, state.withdrawn, state.sent, state.received


def epoch_difference(epoch: int, totals: SegmentTotals) -> Iterator[Difference]:
    """Compare the epochs: a confirm of another one than the row's is refused."""
    epochs = sorted({row.epoch for row in totals.segments} - {epoch})
    if epochs:
        yield Difference("epoch", None, f"epoch {epoch}", f"epoch {epochs[-1]}")


def sold_differences(before: PoolState, after: PoolState, totals: SegmentTotals, sums: Sums) -> Iterator[Difference]:
    """Compare sold units; the totals were read between `before` and `after`, and the orders before the totals.

    An order that the database has sold may still be reserved in the pool, never the other way round.
    """
    if not before.confirmed - sums.returning <= totals.sold - sums.earlier <= after.confirmed + after.reserved:
        earlier = f", {sums.earlier} of them before" if sums.earlier else ""
        said = f"{totals.sold} {plural(totals.sold, 'unit')} sold{earlier}"
        yield Difference("sum", None, f"{after.confirmed} {plural(after.confirmed, 'unit')} confirmed", said)
    if not sums.sold_before - sums.returning <= sums.sold <= totals.sold + sums.returning:
        units = f"{totals.sold} {plural(totals.sold, 'unit')}"
        said = f"{units} sold by its segments' rows, {sums.sold} by its orders' rows"
        yield Difference("sum", None, f"{after.confirmed} {plural(after.confirmed, 'unit')} confirmed", said)


def stock_difference(
    state: PoolState,
    totals: SegmentTotals,
    sums: Sums,
    begun: Iterable[ChangeRow],
    noted: set[str],
    *,
    on_the_way: int = 0,
) -> Iterator[Difference]:
    """Compare the stock. A restock is in the database first, and a withdrawal in the pool first.

    A shard's units that are `on_the_way` are in its rows, and in no pool. A rebuild gives the pool the database's
    stock, so a withdrawal that began before it may be in both, or in the pool. An order without a record in the pool
    may be returned in the database first.
    """
    least, most = 0, sums.returning
    for change in begun:
        if (change.kind == WITHDRAWN) == (change.change_id in noted):
            most += change.units
            least += change.units if change.epoch == state.epoch else 0
    if not least <= totals.quota - on_the_way - sums.earlier - state.stocked <= most:
        earlier = f", {sums.earlier} of them sold before" if sums.earlier else ""
        said = f"{totals.quota} {plural(totals.quota, 'unit')}{earlier}"
        yield Difference("sum", None, f"{state.stocked} {plural(state.stocked, 'unit')} stocked", said)
