"""Confirm an order within the caller's own transaction: the caller's rows and the gate's are one commit.

It takes three steps, so that asyncio can run the middle one on its own connection: read the pool's record of the order;
take the units and insert the order in the transaction, or find how it was decided; tell the pool after the commit.
"""

from __future__ import annotations

from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, select

from segmented import protocol as op
from segmented.errors import InvalidInput, OrderMismatch, OrderQueued, OrderUnknown, PoolDiverged
from segmented.locks.sql_edge import is_in_autocommit, translated
from segmented.models import Order, checked_id
from segmented.orders import answers
from segmented.orders.callers import connected
from segmented.orders.database import lower_within
from segmented.orders.decided import settled_by
from segmented.orders.sale import REBUILDS_MAX, gated, record_of, tell_pool
from segmented.orders.standing import Claim, claim_of_record
from segmented.orders.statements import given
from segmented.orders.tables import orders, sales
from segmented.orders.versions import known_revision

if TYPE_CHECKING:
    from segmented.models import OrderRecord, Settled
    from segmented.orders.callers import Transaction
    from segmented.orders.database import OrderDatabase
    from segmented.stock import Pool
    from segmented.stock.sold import SoldState

CLAIMED: Final = frozenset({"reserved", "confirmed"})
"""States of the pool's record for which the database is asked, because it decides."""
TABLES: Final = "segmented_orders by 'segmented orders migrate --database URL'"
SELECT_FATE: Final = select(orders.c.state, orders.c.quantity, orders.c.segment).where(
    orders.c.sku == given(orders.c.sku), orders.c.order_id == given(orders.c.order_id)
)
"""Without times, which each caller's connection converts in its own way."""
_CHECKED: Final[WeakKeyDictionary[object, set[tuple[str, str]]]] = WeakKeyDictionary()
"""Engines and connections whose database was found to be the gate's, by the gate's database and the sku."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """An order as the pool has it, before its transaction."""

    order_id: str
    epoch: int
    record: OrderRecord | None
    sale_id: str
    """Identity of the sale, which the transaction's database must have."""

    def claim(self, sku: str) -> Claim | None:
        """Return what the database is asked to confirm; None if the pool does not know the order, or has ended it."""
        record = self.record
        if record is None or record.state not in CLAIMED:
            return None
        return claim_of_record(sku, record, self.epoch)


@dataclass(frozen=True, slots=True)
class Outcome:
    """State of the order in the transaction."""

    state: SoldState
    quantity: int
    replay: bool


def wanted(pool: Pool, gate: OrderDatabase, order_id: str) -> Wanted:
    """Read what the pool has of an order. Raises PoolNotGated, and OrderQueued."""
    pool = gated(pool, gate)
    order_id = checked_id(order_id, "order id")
    epoch = pool.epoch()
    record = record_of(pool, gate, order_id)
    if record is None and pool.store.execute(op.ReadSubmitted(pool.sku, (order_id,)))[0].order is not None:
        raise OrderQueued(order_id)
    return Wanted(order_id, epoch, record, pool.known_state().sale_id)


def decide(
    transaction: Transaction, gate: OrderDatabase, sku: str, asked: Wanted, *, is_stored: bool = False
) -> Outcome | answers.ConfirmAnswer | OrderMismatch:
    """Confirm the order in the transaction, or find how it ended; other answers concern the pool as a whole.

    An order that nobody knows becomes void: whoever reserves it later cannot sell it, since its payment is returned.

    If the transaction has stored the order (`is_stored`) with units that it gave back since, they go back here, too.

    Raises InvalidInput for a transaction that has not begun, or is of another database, StoreRefused for one that is
    aborted, TransactionConflict for one that lost a race, and StoreUnavailable.
    """
    what = f"order {asked.order_id!r} within a transaction"
    given = transaction if isinstance(transaction, Connection) else None
    with ExitStack() as stack, translated(what, given, table=TABLES):
        connection, owner = connected(transaction, stack)
        _check(connection, owner, gate, sku, asked)
        with gate.confirming.statements.whole(connection):
            return _decided(connection, gate, sku, asked, is_stored=is_stored)


def _decided(
    connection: Connection, gate: OrderDatabase, sku: str, asked: Wanted, *, is_stored: bool
) -> Outcome | answers.ConfirmAnswer | OrderMismatch:
    claim, read = asked.claim(sku), SELECT_FATE
    if claim is not None:
        answer = _confirmed(connection, gate, claim, asked)
        if isinstance(answer, answers.Confirmed):
            if is_stored:
                lower_within(connection, sku, asked.order_id, claim.order.quantity, asked.epoch)
            return Outcome("confirmed", claim.order.quantity, answer.replay and not is_stored)
        if not isinstance(answer, answers.Voided | None):
            return answer
        read = gate.confirming.statements.latest(SELECT_FATE)
    values = {"given_sku": sku, "given_order_id": asked.order_id}
    row = connection.execute(read, values).one_or_none()
    if row is None and asked.record is None:
        if gate.confirming.refuse_within(connection, sku, asked.order_id):
            return Outcome("unknown", 0, replay=False)
        row = connection.execute(gate.confirming.statements.latest(SELECT_FATE), values).one_or_none()
    if row is not None:
        state = answers.stored_as(row.state, row.segment)
        if state == "cancelled" and claim is None and asked.record is not None:
            state = asked.record.state
        return Outcome(state, row.quantity, replay=True)
    assert asked.record is not None  # noqa: S101  # else the order has a row
    return Outcome(asked.record.state, asked.record.quantity, replay=True)


def _confirmed(
    connection: Connection, gate: OrderDatabase, claim: Claim, asked: Wanted
) -> answers.ConfirmAnswer | OrderMismatch | None:
    """Confirm the order; None for a sold one that has fewer units in the database, because some are being returned."""
    try:
        return gate.confirming.confirm_within(connection, claim)
    except OrderMismatch as error:
        return None if asked.record is not None and asked.record.state == "confirmed" else error


def settle(
    pool: Pool, gate: OrderDatabase, asked: Wanted, answer: Outcome | answers.ConfirmAnswer | OrderMismatch
) -> Outcome | None:
    """Return the outcome; None if the order must be read again. Raises what the pool says.

    The transaction has locked the order's segment, and a change of the order waits for that: so a change that it has
    not waited for is in the pool by now.
    """
    if isinstance(answer, Outcome) and (answer.replay or answer.state != "confirmed"):
        return answer
    if isinstance(answer, Outcome | OrderMismatch):
        record, before = record_of(pool.plain, gate, asked.order_id), asked.record
        if record is not None and before is not None and record.quantity < before.quantity:
            return None  # it has given units back since
        if isinstance(answer, OrderMismatch):
            raise answer
        return answer
    pool = pool.plain
    if isinstance(answer, answers.EpochChanged) and pool.epoch(at_least=answer.epoch) != asked.epoch:
        return None
    tell_pool(pool, gate, Order(asked.order_id), answer, epoch=asked.epoch)  # raises
    raise PoolDiverged(pool.sku, asked.order_id, f"unexpected answer {answer}")


def told(pool: Pool, gate: OrderDatabase, asked: Wanted) -> Settled | None:
    """Confirm in the pool an order that the database has stored; None if it has not."""
    pool, record = gated(pool, gate), asked.record
    row = gate.orders(pool.sku, (asked.order_id,)).get(asked.order_id)
    if row is None:
        return None
    ended = settled_by(row)
    if ended.state == "confirmed" and record is not None:
        order = Order(asked.order_id, record.asked)
        with suppress(OrderUnknown):  # the pool has forgotten it since
            return tell_pool(pool, gate, order, answers.Confirmed(replay=True), epoch=row.epoch or pool.epoch())
    return ended


def overtaken(sku: str, order_id: str) -> PoolDiverged:
    """Return the error after too many rebuilds."""
    return PoolDiverged(sku, order_id, f"it was rebuilt {REBUILDS_MAX} times in a row")


def _check(connection: Connection, owner: object, gate: OrderDatabase, sku: str, asked: Wanted) -> None:
    """Raise InvalidInput unless the connection is in a transaction on the gate's database; reads once an owner."""
    if is_in_autocommit(connection):
        message = "within= needs a transaction, and this connection commits each statement by itself"
        raise InvalidInput(message)
    checked = _CHECKED.setdefault(owner, set())
    if (gate.where, sku) in checked:
        return
    is_there = known_revision(connection, gate.where) is not None
    sale_id = connection.execute(select(sales.c.sale_id).where(sales.c.sku == sku)).scalar() if is_there else None
    if sale_id is None or sale_id != asked.sale_id:
        message = (
            f"within= is a transaction of another database than {gate.where}, which has the rows of {sku!r}: "
            "begin it on an engine of that one"
        )
        raise InvalidInput(message)
    checked.add((gate.where, sku))
