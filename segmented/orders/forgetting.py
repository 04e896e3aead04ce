"""Drop records of finished orders from an open pool whose order database answers for them.

1. The pool notes that it will forget. Ten seconds later every process that sells has read that, and asks the database
   about orders that the pool does not know.
2. The ledger in the database says up to which change the grace time is over. Only what is relayed, and before the start
   of the pool's own ledger, may go.
3. The pool's records are read in pages, and looked up in the database. A record goes only if the database has decided
   the order in the same way. The records of refused orders, and of those whose id can be used again, go if the database
   has not sold the order: a repeat of one is a new attempt.
4. The database notes of the page's sold orders that the pool does not answer for them any more: their epoch is 0. So
   they are treated like orders that an earlier epoch of the pool sold. Units that a repeat takes go back.
5. One script drops the page's records, each only if it is still the one that was read, and counts their units.

Every step can be repeated, and any number of processes may do it at once.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from segmented import protocol as op
from segmented.clock import WallClock, in_seconds
from segmented.errors import InvalidInput
from segmented.ledger_lines import parse_record
from segmented.models import Settled
from segmented.orders.answers import stored_as
from segmented.orders.deciding import check_same
from segmented.orders.relaying import LedgerRows
from segmented.orders.tables import CONFIRMED, VOID
from segmented.orders.verifying import own_totals, when_verified
from segmented.protocol.archive import cannot_forget

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from segmented.clock import Duration
    from segmented.models import Inspected, Order
    from segmented.orders.answers import OrderRow
    from segmented.orders.database import OrderDatabase
    from segmented.protocol.archive import Forgot
    from segmented.stock import Pool

DEFAULT_GRACE: Final = 86_400.0
"""Seconds after an order's end in which the pool itself answers repeats."""
GRACE_MAX: Final = 10 * 366 * 86_400.0
NOTICE_MS: Final = 10_000
"""Milliseconds between the note that a pool will forget and its first dropped record."""
READ_AGAIN: Final = 3.0
"""Seconds after which a process that sells reads again whether a pool forgets: less than the notice."""
PAGE: Final = op.BATCH_MAX
SOLD: Final = "cs"
NOT_SOLD: Final = "xe"
AS_NEW: Final = "vf"
"""States of orders whose repeat is a new attempt, so the database need not know them."""

_FORGETFUL: Final[WeakKeyDictionary[Pool, tuple[bool, float]]] = WeakKeyDictionary()
"""Whether a pool forgets, and when that was read. It never ends once it has begun."""


@dataclass(frozen=True, slots=True)
class ForgetReport:
    """Counts of what one call dropped, and what is left."""

    sku: str
    orders: int
    """Records that this call dropped."""
    units: int
    """Sold units of these."""
    left: int
    """Records that the pool still has."""
    up_to: int
    """The last change whose order may be forgotten: it is relayed and trimmed, and its grace time is over."""
    wait_seconds: float
    """Seconds until the pool may forget, because it was the first call; 0 from then on."""
    not_relayed: int = 0
    """Records of finished orders that stay because the database lacks their last change."""
    not_trimmed: int = 0
    """Those that stay because the pool's ledger still has it."""
    in_grace: int = 0
    """Those that stay because their grace time is not over."""


def forget(
    pool: Pool,
    gate: OrderDatabase,
    *,
    grace: float = DEFAULT_GRACE,
    timeout: Duration | None = None,
    on_page: Callable[[int], None] | None = None,
) -> ForgetReport:
    """Drop the records of orders that ended `grace` seconds ago or earlier, in pages of up to 1,000. Safe to repeat.

    The database answers repeats of these orders from then on, and no unit is sold for one. `grace` 0 drops all that is
    relayed and trimmed. The first call for a pool drops nothing, and says in `wait_seconds` when the next one will.
    Ends after `timeout` seconds, with one page at least. `on_page` gets how many were dropped so far. A limit per
    customer goes on counting them. Raises InvalidInput for a pool without an order database, or whose ledger was not
    relayed and trimmed in this epoch.
    """
    if not 0 <= grace <= GRACE_MAX:
        raise InvalidInput(f"the grace time of {pool.sku!r} must be 0 to {GRACE_MAX:,.0f} s, not {grace:g} s")
    timeout = in_seconds(timeout)
    if timeout is not None and not timeout > 0:
        raise InvalidInput(f"the timeout of forgetting must be positive, not {timeout:g} s")
    clock = pool.store.clock
    until = None if timeout is None else clock.now() + timeout
    limits = _limits(pool, gate, grace)
    up_to = limits.old
    begun = _drop(pool, gate, up_to, ())
    orders = units = 0
    kept: Counter[str] = Counter()
    for inspected in _pages(pool) if not begun.wait_ms else ():
        finished = _finished(inspected)
        kept.update(limits.reason(sequence) for sequence, _ in finished.values())
        named = _decided(gate, pool.sku, {each: found for each, found in finished.items() if found[0] <= up_to})
        while named:
            gone = _drop(pool, gate, up_to, named)
            orders, units, named = orders + gone.orders, units + gone.units, named[max(1, gone.judged) :]
        if on_page is not None:
            on_page(orders)
        if until is not None and clock.now() >= until:
            break
    left = pool.state().order_count
    reasons = {name: kept[name] for name in ("not_relayed", "not_trimmed", "in_grace")}
    return ForgetReport(pool.sku, orders, units, left, up_to, begun.wait_ms / 1_000, **reasons)


def may_have_forgotten(pool: Pool) -> bool:
    """Return whether the pool may have dropped orders, so that the database must be asked about unknown ones."""
    now = pool.store.clock.now()
    known = _FORGETFUL.get(pool)
    if known is None or (not known[0] and now - known[1] >= READ_AGAIN):
        known = pool.state().forgotten is not None, now
        _FORGETFUL[pool] = known
    return known[0]


def is_known_to_remember(pool: Pool) -> bool:
    """Return whether `may_have_forgotten` is known to be false, without asking the pool."""
    known = _FORGETFUL.get(pool)
    return known is not None and not known[0] and pool.store.clock.now() - known[1] < READ_AGAIN


@dataclass(frozen=True, slots=True)
class _Limits:
    """The last change that is relayed, that is trimmed as well, and whose grace time is over as well."""

    relayed: int
    trimmed: int
    old: int

    def reason(self, sequence: int) -> str:
        """Return why a finished order with this last change stays; empty if it does not."""
        if sequence > self.relayed:
            return "not_relayed"
        if sequence > self.trimmed:
            return "not_trimmed"
        return "in_grace" if sequence > self.old else ""


def _limits(pool: Pool, gate: OrderDatabase, grace: float) -> _Limits:
    state = pool.state()
    if not state.gated:
        raise cannot_forget(pool.sku, "not_gated")
    own_totals(gate, state)
    relayed = state.relayed
    start = pool.store.execute(op.ReadLedgerStart(pool.sku))
    if relayed is None or relayed[0] != state.epoch or start <= 1:
        raise cannot_forget(pool.sku, "not_trimmed")
    trimmed = min(relayed[1], start - 1)
    if grace == 0:
        return _Limits(relayed[1], trimmed, trimmed)
    ended = datetime.fromtimestamp(WallClock().now(), UTC) - timedelta(seconds=grace)
    return _Limits(relayed[1], trimmed, LedgerRows(gate).last_before(pool.sku, 0, (state.epoch, trimmed), ended))


def _pages(pool: Pool) -> Iterator[tuple[Inspected, ...]]:
    cursor = -1
    while cursor != 0:
        cursor, found = pool.store.execute(op.ScanKey(pool.sku, "orders", max(cursor, 0)))
        ids = tuple(dict(found))
        for first in range(0, len(ids), PAGE):
            yield pool.store.execute(op.InspectOrders(pool.sku, ids[first : first + PAGE]))


def _finished(page: tuple[Inspected, ...]) -> dict[str, tuple[int, str]]:
    """Return the finished orders of a page: last change, and letter of their state (protocol/shared/pool.lua)."""
    found: dict[str, tuple[int, str]] = {}
    for one in page:
        record = None if one.raw is None else parse_record(one.order_id, one.raw)
        if record is not None and one.raw is not None and one.raw[:1] in SOLD + NOT_SOLD + AS_NEW:
            found[one.order_id] = record.sequence, one.raw[:1]
    return found


def _decided(gate: OrderDatabase, sku: str, found: Mapping[str, tuple[int, str]]) -> tuple[tuple[str, int], ...]:
    """Return those of these orders that may go by what the database says, once it has noted the sold ones."""
    if not found:
        return ()
    rows = gate.orders(sku, found)
    agreed = [order_id for order_id, (_, letter) in found.items() if _may_go(rows.get(order_id), letter)]
    gate.note_forgotten(sku, [order_id for order_id in agreed if found[order_id][1] in SOLD])
    return tuple((order_id, found[order_id][0]) for order_id in agreed)


def _may_go(row: OrderRow | None, letter: str) -> bool:
    if row is None:
        return letter in AS_NEW
    return (row.state == CONFIRMED) == (letter in SOLD)


def _drop(pool: Pool, gate: OrderDatabase, up_to: int, named: tuple[tuple[str, int], ...]) -> Forgot:
    operation = op.ForgetOrders(pool.sku, up_to, NOTICE_MS, named)
    return when_verified(pool, gate, lambda: pool.store.execute(operation))


# --- orders that the database has decided and the pool does not know: sold before a rebuild, or forgotten since ---


def may_know_more(pool: Pool, epoch: int) -> bool:
    """Return whether the database may have decided orders that the pool does not know."""
    return epoch > 1 or may_have_forgotten(pool)


def decided_before(
    pool: Pool, gate: OrderDatabase, order: Order, epoch: int, *, asked: int | None, voided: bool = True
) -> Settled | None:
    """Return the database's decision on an order that this pool sold before this `epoch`, or has forgotten.

    `asked` is the order's quantity if fewer units may be stored. Raises OrderMismatch.
    """
    if not may_know_more(pool, epoch):
        return None
    row = gate.orders(pool.sku, (order.order_id,)).get(order.order_id)
    return decision_of(pool, gate, order, row, epoch, asked=asked, voided=voided and may_have_forgotten(pool))


def decision_of(
    pool: Pool, gate: OrderDatabase, order: Order, row: OrderRow | None, epoch: int, *, asked: int | None, voided: bool
) -> Settled | None:
    """Return the same from the order's row, if there is one; with `voided`, a void is a decision in every epoch."""
    if row is None or not _is_unknown(row, epoch, voided=voided):
        return None
    if row.quantity < order.quantity and asked is None and _has_given_back(pool, gate, order, row):
        asked = order.quantity
    check_same(order, row, asked)
    return settled_by(row)


def _has_given_back(pool: Pool, gate: OrderDatabase, order: Order, row: OrderRow) -> bool:
    """Return whether the order had as many units as are asked for, and some were returned, or it was changed."""
    left = row.quantity if row.state == CONFIRMED else 0
    if left + gate.returns.units(pool.sku, order.order_id) == order.quantity:
        return True
    (record,) = pool.store.execute(op.ReadOrders(pool.sku, (order.order_id,)))
    return record is not None and record.asked == order.quantity and record.quantity == row.quantity


def _is_unknown(row: OrderRow, epoch: int, *, voided: bool) -> bool:
    """Return whether a pool of this `epoch` does not know a decision: an earlier sale, or with `voided` a void."""
    return voided if row.state == VOID else row.epoch is not None and row.epoch < epoch


def settled_by(row: OrderRow) -> Settled:
    """Return the database's decision as the pool's answer."""
    state = stored_as(row.state, row.segment)
    quantity = 0 if state == "returned" else row.quantity
    return Settled(row.order_id, state, quantity, row.segment or 0, row.fence, 0, replay=True)


def ended_before(pool: Pool, gate: OrderDatabase, order: Order, epoch: int) -> Settled | None:
    """Return the same decision on a sold order, after the pool has given back units that it took again."""
    before = decided_before(pool, gate, order, epoch, asked=order.quantity, voided=False)
    if before is not None:
        end_decided(pool, gate, {order.order_id: before})
    return before


def end_unknown(
    pool: Pool, gate: OrderDatabase, order_ids: tuple[str, ...], *, asks: bool
) -> tuple[dict[str, Settled], frozenset[str]]:
    """End orders that the database has decided and the pool does not know. Returns them, and all that it has decided.

    Without `asks` the database is asked only if it may have decided orders that the pool does not know.
    """
    epoch, forgets = pool.epoch(), may_have_forgotten(pool)
    if not (asks or may_know_more(pool, epoch)):
        return {}, frozenset()
    rows = gate.orders(pool.sku, order_ids)
    decided = {each: settled_by(row) for each, row in rows.items() if _is_unknown(row, epoch, voided=forgets)}
    end_decided(pool, gate, decided)
    return decided, frozenset(rows)


def end_decided(pool: Pool, gate: OrderDatabase, decided: Mapping[str, Settled]) -> None:
    """End what the pool has of orders that were decided before: units go back, and callers learn what was decided."""
    for sold_before in (True, False):  # the others were cancelled, or returned whole
        ids = tuple(order_id for order_id, one in decided.items() if (one.state == "confirmed") is sold_before)
        if ids:
            operation = op.SettleMany(pool.sku, "cancelled", ids, decided=True, sold_before=sold_before)
            when_verified(pool, gate, partial(pool.store.execute, operation))
