"""Compare a gated pool with its order database, order by order. Safe while the pool sells, in bounded memory.

The pool's records come in no order, so the two sides cannot be merged. Both are read in pages instead:

1. The pool's confirmed orders are looked up in the database. If it has not confirmed one, it can sell the units again.
2. The database's orders are looked up in the pool.
3. The sums are compared: stock, sold units, and changes of the stock that only one side has.

The database decides an order before the pool does. So an order that is decided during the audit may still be reserved
in the pool: it is unsettled, which is no difference. An order that differs is read again on both sides before it is
reported. A change of the stock or of the epoch during the audit starts it again.
"""

from __future__ import annotations

import json
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Literal

from segmented import protocol as op
from segmented.errors import InvalidInput, PoolNotGated, StoreRefused
from segmented.ledger_lines import parse_record
from segmented.models import Shard
from segmented.models.ids import checked_id, plural
from segmented.orders.pruning import PruneRows
from segmented.orders.stocking import on_the_way, other_shards
from segmented.orders.tables import CONFIRMED, VOID, WITHDRAWN
from segmented.orders.verifying import own_totals
from segmented.plans import perform, run_sync
from segmented.stock.audit import end_drift, impossible_drift, ledger_drift, totals_drift
from segmented.stock.audit_orders import OrdersAudit, part_plan
from segmented.stock.fold import LedgerFold
from segmented.stock.ledger import PAGE, LedgerTrimmed, extend_plan
from segmented.stock.plans import scanned_plan
from segmented.stock.spill import Spill

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from segmented.models import Inspected, OrderRecord, PoolState, Transfer
    from segmented.orders.answers import ChangeRow, OrderRow, SegmentTotals
    from segmented.orders.database import OrderDatabase
    from segmented.plans import Plan
    from segmented.stock import Pool

NAMED_MAX: Final = 1_000
"""Maximum number of differences named in a report; `difference_count` counts all."""
TRIES_MAX: Final = 10


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
class BothReport:
    """The result of comparing both sides."""

    sku: str
    epoch: int
    differences: tuple[Difference, ...]
    """The first 1,000 differences."""
    difference_count: int
    by_kind: Mapping[str, int]
    """Number of differences of each kind found."""
    unsettled: int
    """Orders that the database has decided and the pool still has reserved: being decided now, or a reply was lost."""
    pool_count: int
    """Confirmed orders of the pool that were looked up in the database."""
    database_count: int
    """Orders of the database, void ones included, that were looked up in the pool."""
    stocked: int
    quota: int
    confirmed: int
    sold: int
    earlier: int
    """Units that the database sold in earlier epochs and that the pool counts neither as stock nor as confirmed."""
    unfinished: tuple[ChangeRow, ...]
    """Restocks and withdrawals that one side may lack. That is no difference: repeat them with the same id."""

    @property
    def is_clean(self) -> bool:
        """Return whether both sides agree about every order and every sum."""
        return not self.difference_count


def audit_both(pool: Pool, gate: OrderDatabase) -> BothReport:
    """Compare every order and the sums of a gated pool with its order database, in pages of 1,000.

    `pool.audit()` compares the pool with its own ledger: run both. Orders that are decided in between are left for the
    next audit. Raises PoolNotGated, PoolMissing, and InvalidInput if the database is another one.
    """
    for _ in range(TRIES_MAX):
        state = pool.state()
        if not state.gated:
            raise PoolNotGated(pool.sku)
        own_totals(gate, state)
        audit = BothAudit(pool, gate, BothProgress(state.epoch, state.lost))
        for _ in audit.pages():
            pass
        report = audit.report()
        if report is not None:
            return report
    message = f"the stock or the epoch of {pool.sku!r} changed {TRIES_MAX} times while it was audited: audit it again"
    raise StoreRefused(message)


@dataclass(slots=True)
class BothProgress:
    """How far a comparison of both sides has come: what another process needs to continue it."""

    epoch: int
    lost: int
    cursor: int = -1
    """Position in the scan of the pool's records: -1 before it, 0 after it."""
    sold_before: int = -1
    """Units sold by the segments' rows when the database's orders were begun; -1: they were not."""
    after: str = ""
    """The last order of the database that was compared."""
    sold: int = 0
    earlier: int = 0
    returned: int = -1
    """Units of all returns when the comparison was begun; -1: it was not."""
    pruned: int = -1
    """Units of all orders whose rows were deleted as old by then; -1: it was not."""


class BothAudit:
    """One comparison, for a pool that stays in its epoch."""

    def __init__(self, pool: Pool, gate: OrderDatabase, progress: BothProgress) -> None:
        """Begin a comparison, or continue one: the report then names only what is found from here on."""
        self._pool, self._gate, self._epoch = pool, gate, progress.epoch
        self._progress = progress
        self._found: list[Difference] = []
        self._named: set[str] = set()
        self._counts: Counter[str] = Counter()
        self._unsettled = self._pool_count = self._database_count = 0

    @property
    def found(self) -> tuple[Difference, ...]:
        """The first 1,000 differences so far."""
        return tuple(self._found)

    def pages(self) -> Iterator[None]:
        """Compare all orders, one page after the other; the progress is right after each of them."""
        if self._progress.returned < 0:
            self._progress.returned = self._gate.returns.units(self._pool.sku)
            self._progress.pruned = PruneRows(self._gate).units(self._pool.sku)
        yield from self._read_pool()
        if self._progress.sold_before < 0:
            self._progress.sold_before = self._gate.totals(self._pool.sku).sold
        yield from self._read_database()

    def report(self) -> BothReport | None:
        """Compare the sums, after all pages; None if the stock or the epoch changed, or orders have left a side."""
        progress = self._progress
        before, begun = self._pool.state(), self._gate.unfinished_changes(self._pool.sku)
        totals, moved = self._totals()
        noted = self._noted(begun)
        after = self._pool.state()
        is_quiet = stock_of(before) == stock_of(after) and begun == self._gate.unfinished_changes(self._pool.sku)
        is_quiet = is_quiet and progress.pruned == PruneRows(self._gate).units(self._pool.sku)
        if not is_quiet or (after.epoch, after.lost) != (progress.epoch, progress.lost):
            return None
        sums = Sums(progress.sold_before, progress.sold, progress.earlier - after.lost, self._returned())
        for difference in (
            *epoch_difference(self._epoch, totals),
            *sold_differences(before, after, totals, sums),
            *stock_difference(after, totals, sums, begun, noted, on_the_way=on_the_way(after, moved)),
        ):
            self._note(difference)
        return BothReport(
            sku=self._pool.sku,
            epoch=self._epoch,
            differences=tuple(self._found),
            difference_count=self._counts.total(),
            by_kind=dict(self._counts),
            unsettled=self._unsettled,
            pool_count=self._pool_count,
            database_count=self._database_count,
            stocked=after.stocked,
            quota=totals.quota,
            confirmed=after.confirmed,
            sold=totals.sold,
            earlier=sums.earlier,
            unfinished=begun,
        )

    def _totals(self) -> tuple[SegmentTotals, tuple[Transfer, ...]]:
        """Read the database's rows; of a shard, also what moved between it and the others, as of the same moment."""
        sku = self._pool.sku
        if isinstance(sku, Shard):
            return self._gate.transfers.read(sku, other_shards(self._pool, sku))
        return self._gate.totals(sku), ()

    def _read_pool(self) -> Iterator[None]:
        """Look the pool's confirmed orders up in the database. A scan may return an order twice, in different pages."""
        while self._progress.cursor != 0:
            operation = op.ScanKey(self._pool.sku, "orders", max(self._progress.cursor, 0))
            cursor, page = self._pool.store.execute(operation)
            found = tuple(dict(page))
            for first in range(0, len(found), op.BATCH_MAX):
                self._look_up(found[first : first + op.BATCH_MAX])
            self._progress.cursor = cursor
            yield

    def _look_up(self, ids: tuple[str, ...]) -> None:
        # Parsing all records would take a fourth of the audit's time: those that differ are parsed when judged.
        sold = [
            one.order_id
            for one in self._inspect(ids)
            if one.raw is not None and one.raw.startswith("c\t") and not one.raw.startswith("c\t0\t")
        ]
        self._pool_count += len(sold)
        found = self._gate.sold_among(self._pool.sku, _storable(sold))
        self._judge([one for one in sold if one not in found], {"pool only"})

    def _read_database(self) -> Iterator[None]:
        """Look the database's orders up in the pool. A void order that is confirmed there was found before."""
        progress = self._progress
        rows = self._gate.each_order(self._pool.sku, after=progress.after)
        while page := list(islice(rows, op.BATCH_MAX)):
            self._database_count += len(page)
            doubtful = []
            for row, one in zip(page, self._inspect([row.order_id for row in page]), strict=True):
                if row.state == CONFIRMED and is_sold_as(row, one.raw):
                    progress.sold += row.quantity
                    continue
                (record,) = parsed((one,)).values()
                if row.state == CONFIRMED:
                    progress.sold += row.quantity
                    if (row.epoch or 0) < self._epoch and (record is None or record.state != "confirmed"):
                        progress.earlier += row.quantity
                if judged(self._epoch, record, row) is not None:
                    doubtful.append(row.order_id)
            self._judge(doubtful, {"database only", "content", "unsettled"})
            progress.after = page[-1].order_id
            yield

    def _judge(self, order_ids: list[str], kinds: set[str]) -> None:
        """Read these orders again on both sides, and count those that still are of one of the kinds."""
        if not order_ids:
            return
        returning = {one.order_id for one in self._gate.returns.begun(self._pool.sku)}
        inspected = self._inspect(order_ids)
        rows = self._rows(order_ids)
        for one, record in zip(inspected, parsed(inspected).values(), strict=True):
            row = rows.get(one.order_id)
            kind = judged(self._epoch, record, row)
            if kind is None or kind not in kinds or one.order_id in self._named:
                continue
            if kind == "unsettled" or one.order_id in returning:
                self._unsettled += 1
            else:
                self._note(Difference(kind, one.order_id, said_by_pool(one, record), said_by_database(row)))

    def _returned(self) -> int:
        """Return the units that were returned since the comparison was begun, or that the pool may not have."""
        begun = sum(one.units for one in self._gate.returns.begun(self._pool.sku))
        return begun + self._gate.returns.units(self._pool.sku) - self._progress.returned

    def _note(self, difference: Difference) -> None:
        self._counts[difference.kind] += 1
        if len(self._found) < NAMED_MAX:
            self._found.append(difference)
            self._named.update([difference.order_id] if difference.order_id is not None else [])

    def _inspect(self, order_ids: Iterable[str]) -> tuple[Inspected, ...]:
        return self._pool.store.execute(op.InspectOrders(self._pool.sku, tuple(order_ids)))

    def _rows(self, order_ids: list[str]) -> dict[str, OrderRow]:
        """Read the rows of these ids; another program may have given the pool ids that no database can hold."""
        return self._gate.orders(self._pool.sku, _storable(order_ids))

    def _noted(self, begun: tuple[ChangeRow, ...]) -> set[str]:
        """Return which of these changes the pool has."""
        if not begun:
            return set()
        notes = run_sync(scanned_plan(self._pool.sku, "changes"), self._pool.store)
        return {change.change_id for change in begun} & notes.keys()


def _storable(order_ids: list[str]) -> list[str]:
    joined = "".join(order_ids)
    if joined.isascii() and "\0" not in joined:  # nearly always, and a fourth of the time of a check of each
        return order_ids
    return [*filter(_is_storable, order_ids)]


def _is_storable(order_id: str) -> bool:
    try:
        checked_id(order_id, "order id")
    except InvalidInput:
        return False
    return True


# --- differences: pure functions of what was read from both sides ---


@dataclass(frozen=True, slots=True)
class Sums:
    """Totals of the database's orders: of all together, not at one moment."""

    sold_before: int
    """Units sold by the segments' rows before the orders were read."""
    sold: int
    earlier: int
    returning: int = 0
    """Units that were returned since the orders were read, or that the pool may not have yet."""


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


# --- the workers' audit, in slices of bounded work ---
#
# A worker's task has a time limit, and a pool with 600,000 orders takes longer: the next slice goes on where the last
# ended, in any process. A slice reads up to 1,000 changes of the ledger and compares every record that they name;
# behind the last one the totals are compared. Then the order database is compared with the pool, page by page. How far
# it came is a key of the pool, which lapses after a day.
#
# An order that changes later is compared in the slice of its last change, so nothing is compared twice and nothing that
# changes is missed. Two things are left to `pool.audit()`, which does the whole of a ledger that has only one slice:
# records that no change names, and each customer's units.

NUMBERS: Final = (
    *("sequence", "chain", "opened", "restocked", "withdrawn", "sent", "received"),
    *("available", "reserved", "confirmed", "is_closed", "stock"),
)
"""Fields of a fold that the next slice needs as they are."""


@dataclass(frozen=True, slots=True)
class SliceReport:
    """The findings of one slice."""

    found: tuple[str, ...]
    """Drifts and differences, each as one line of text."""
    is_ended: bool
    """Whether all was compared: the next slice begins again."""


def audit_slice(pool: Pool, gate: OrderDatabase | None, *, is_over: Callable[[], bool]) -> SliceReport:
    """Audit a pool, and compare it with its order database if it has one, until `is_over` says so.

    Raises PoolMissing, and InvalidInput if the database is another one.
    """
    kept: dict[str, Any] = json.loads(pool.store.execute(op.ReadAudit(pool.sku)) or "{}")
    found: list[str] = []
    while True:
        kept, drift = _next(pool, gate, kept)
        found += drift
        with suppress(StoreRefused):  # a full server keeps nothing: then the next audit begins again
            pool.store.execute(op.KeepAudit(pool.sku, json.dumps(kept)))
        if not kept or is_over():
            return SliceReport(tuple(found), is_ended=not kept)


def _next(pool: Pool, gate: OrderDatabase | None, kept: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Audit one slice of the ledger, or compare one page with the database; returns how far that came."""
    if gate is not None and "both" in kept:
        return _compared(pool, gate, kept["both"])
    if not kept and _is_short(pool):
        report = pool.audit()
        drift = list(map(str, report.drift))
        if report.oversold or report.refused_wrongly:
            drift.append(f"{report.oversold} oversold, {report.refused_wrongly} refused wrongly")
    else:
        kept, drift = run_sync(_slice_plan(pool.sku, kept.get("fold")), pool.store)
        if kept:
            return kept, drift
    return {} if gate is None else {"both": None}, drift


def _is_short(pool: Pool) -> bool:
    start = pool.store.execute(op.ReadLedgerStart(pool.sku))
    return pool.state().sequence - start < PAGE


def _slice_plan(sku: str, kept: dict[str, Any] | None) -> Plan[tuple[dict[str, Any], list[str]]]:
    """Fold and compare up to 1,000 changes; nothing is kept behind the last one."""
    start = yield from perform(op.ReadLedgerStart(sku))
    state = yield from perform(op.ReadPool(sku))
    if state.unreadable or start < 1:
        return {}, [f"numbers cannot be read: {', '.join(state.unreadable) or 'ledger_start'}"]
    if kept is not None and (kept["sequence"] < start - 1 or kept["epoch"] != state.epoch):
        kept = None  # it was trimmed beyond that, or rebuilt
    fold = _fold(kept, start)
    end = min(state.sequence, fold.sequence + PAGE)
    try:
        yield from extend_plan(sku, fold, end)
        audit = OrdersAudit(state, fold, Spill(0), Spill(0))
        for number in range(fold.spill.part_count if fold.spill is not None else 0):
            yield from part_plan(audit, number)
    except LedgerTrimmed:
        return {}, []  # the next audit begins behind that
    after = yield from perform(op.ReadPool(sku))
    if after.lost != state.lost:  # records that this slice names were forgotten meanwhile
        return {}, []
    drift = [str(one) for one in (*audit.drift, *ledger_drift(fold), *impossible_drift(fold))]
    drift += [
        f"order {order_id}: its record is of change {sequence}, the ledger ends with {after.sequence}"
        for order_id, sequence in audit.later.items()
        if sequence > after.sequence
    ]
    drift += [f"order {order_id}: refused wrongly" for order_id in fold.refused_wrongly]
    if end < state.sequence:
        return {"fold": _kept(fold, state)}, drift
    return {}, [*drift, *map(str, (*end_drift(state), *totals_drift(state, fold)))]


def _fold(kept: dict[str, Any] | None, start: int) -> LedgerFold:
    if kept is None:
        return LedgerFold(sequence=start - 1, first_sequence=start, available_after=None, has_limit=False)
    numbers = {name: kept[name] for name in NUMBERS}
    fold = LedgerFold(**numbers, first_sequence=kept["first_sequence"], available_after=None, has_limit=False)
    fold.transfers = {(kind, other): (number, units) for kind, other, number, units in kept["transfers"]}
    fold.last_sent = {other: (number, units) for other, number, units in kept["last_sent"]}
    return fold


def _kept(fold: LedgerFold, state: PoolState) -> dict[str, Any]:
    return {name: getattr(fold, name) for name in NUMBERS} | {
        "epoch": state.epoch,
        # Orders whose earlier changes were in an earlier slice are judged as those from before a trim.
        "first_sequence": fold.sequence,
        "transfers": [[*place, *last] for place, last in fold.transfers.items()],
        "last_sent": [[other, *last] for other, last in fold.last_sent.items()],
    }


def _compared(pool: Pool, gate: OrderDatabase, kept: dict[str, Any] | None) -> tuple[dict[str, Any], list[str]]:
    """Compare one page, or the sums behind the last one, unless the stock changes meanwhile."""
    state = pool.state()
    own_totals(gate, state)
    progress = BothProgress(state.epoch, state.lost) if kept is None else BothProgress(**kept)
    audit = BothAudit(pool, gate, progress)
    for _ in audit.pages():
        return {"both": asdict(progress)}, list(map(str, audit.found))
    report = audit.report()
    return {}, [] if report is None else list(map(str, report.differences))
