"""The rows of returns: units of sold orders that a customer gave back, each once for its return id.

A return lowers the order's quantity and its segment's `sold` together with its own row, so the database never counts it
twice. The row stays `begun` until the pool has the units too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import (
    BigInteger,
    bindparam,
    case,
    cast,
    exists,
    func,
    insert,
    literal_column,
    select,
    text,
    true,
    update,
)
from sqlalchemy.exc import IntegrityError

from segmented.errors import ChangeMismatch
from segmented.models import plain_text
from segmented.orders.answers import Return
from segmented.orders.postgresql import first_value, one_trip, text_of
from segmented.orders.statements import OF_ORDER, OF_SEGMENT, STATE_CONFIRMED, STATE_VOID, Rows, changed_row, given
from segmented.orders.tables import BEGUN, CONFIRMED, DONE, changes, orders, returns, segments

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from segmented.orders.answers import State


@dataclass(frozen=True, slots=True)
class ReturnStored:
    """The return is stored, in the epoch that the rows had; the pool has its units once it is done."""

    epoch: int
    state: State
    customer_id: str | None
    """As the order's row has it."""
    quantity: int
    """Units that the order keeps."""


@dataclass(frozen=True, slots=True)
class NotReturned:
    """The order is void or has fewer units, or it has no row; nothing changed."""

    quantity: int | None
    """Units that are sold; None: the database has not decided the order."""


_UNITS: Final = bindparam("given_units", type_=orders.c.quantity.type)
_TAKE_BACK: Final = (
    update(orders)
    .where(
        *OF_ORDER,
        orders.c.state == STATE_CONFIRMED,
        orders.c.quantity >= _UNITS,
        ~exists().where(returns.c.sku == given(orders.c.sku), returns.c.return_id == given(returns.c.return_id)),
        ~exists().where(changes.c.sku == given(orders.c.sku), changes.c.change_id == given(returns.c.return_id)),
    )
    .values(
        state=case((orders.c.quantity > _UNITS, STATE_CONFIRMED), else_=STATE_VOID),
        quantity=case((orders.c.quantity > _UNITS, orders.c.quantity - _UNITS), else_=orders.c.quantity),
    )
)
_TAKEN: Final = select(orders.c.segment, orders.c.customer_id, orders.c.state, orders.c.quantity).where(*OF_ORDER)
_LOWER_SOLD: Final = update(segments).where(*OF_SEGMENT).values(sold=segments.c.sold - _UNITS)
_EPOCH: Final = select(segments.c.epoch).where(*OF_SEGMENT)
_ORDERS_SEGMENT: Final = select(orders.c.segment).where(*OF_ORDER)
_LOCK_SEGMENT: Final = (
    select(segments.c.segment)
    .where(segments.c.sku == given(segments.c.sku), segments.c.segment == _ORDERS_SEGMENT.scalar_subquery())
    .with_for_update()
)
_INSERT: Final = insert(returns).values(
    sku=given(returns.c.sku),
    return_id=given(returns.c.return_id),
    order_id=given(returns.c.order_id),
    units=_UNITS,
    state=BEGUN,
    epoch=given(returns.c.epoch),
)
_SELECT: Final = select(returns.c.order_id, returns.c.units, returns.c.state, returns.c.epoch).where(
    returns.c.sku == given(returns.c.sku), returns.c.return_id == given(returns.c.return_id)
)
_SELECT_CHANGE: Final = select(changes.c.kind).where(
    changes.c.sku == given(changes.c.sku), changes.c.change_id == bindparam("given_return_id")
)
_NOTE_SEQUENCE: Final = (
    update(segments)
    .where(
        segments.c.sku == given(segments.c.sku),
        segments.c.segment == _ORDERS_SEGMENT.scalar_subquery(),
        segments.c.epoch == given(segments.c.epoch),
        segments.c.sequence < given(segments.c.sequence),
    )
    .values(sequence=given(segments.c.sequence))
)
_FINISH: Final = (
    update(returns)
    .where(returns.c.sku == given(returns.c.sku), returns.c.return_id == given(returns.c.return_id))
    .values(state=literal_column(f"'{DONE}'"))
)

# PostgreSQL takes the three changes in one statement, and both notes of the end in another.
_TOOK_BACK: Final = _TAKE_BACK.returning(orders.c.segment, orders.c.customer_id, orders.c.state, orders.c.quantity).cte(
    "taken"
)
_LOWERED: Final = (
    update(segments)
    .where(segments.c.sku == given(segments.c.sku), segments.c.segment == _TOOK_BACK.c.segment)
    .values(sold=segments.c.sold - _UNITS)
    .returning(segments.c.epoch)
    .cte("lowered")
)
_INSERTED: Final = (
    insert(returns)
    .from_select(
        [returns.c.sku, returns.c.return_id, returns.c.order_id, returns.c.units, returns.c.state, returns.c.epoch],
        select(
            given(returns.c.sku),
            given(returns.c.return_id),
            given(returns.c.order_id),
            _UNITS,
            literal_column(f"'{BEGUN}'", returns.c.state.type),
            _LOWERED.c.epoch,
        ),
    )
    .returning(returns.c.epoch)
    .cte("inserted")
)
_STORE: Final = select(
    _TOOK_BACK.c.customer_id, _TOOK_BACK.c.state, _TOOK_BACK.c.quantity, _INSERTED.c.epoch
).select_from(_TOOK_BACK.join(_INSERTED, true()))
_AT_ONCE: Final = text_of(_LOCK_SEGMENT), text_of(_STORE)
_END: Final = text_of(
    _FINISH.where(
        # A crash that forgets the end leaves a return that is begun, and is finished again: no disk need be waited for.
        func.set_config(text("'synchronous_commit'"), text("'off'"), true()).is_not(None)  # until the statement's end
    )
    .add_cte(_NOTE_SEQUENCE.cte("noted"))
    .returning(returns.c.epoch)
)


class ReturnRows(Rows):
    """The rows of returns."""

    def begin(self, wanted: Return) -> ReturnStored | NotReturned:
        """Store a return, once for its id. Raises ChangeMismatch if the id belongs to another return."""

        def work(connection: Connection) -> ReturnStored | NotReturned:
            try:
                if connection.dialect.name == "postgresql":
                    return _stored_at_once(connection, _values(wanted)) or _found(connection, wanted)
                connection.exec_driver_sql(self._begin)
                stored = _stored(connection, _values(wanted))
            except IntegrityError:  # another call for the same id was faster
                stored = None
            if stored is not None:
                connection.commit()
                return stored
            connection.rollback()
            return _found(connection, wanted)

        return self._run(work)

    def finish(self, wanted: Return, epoch: int, sequence: int) -> None:
        """Note that the pool has the units, by which change of this epoch: a pool behind it has lost them."""

        def work(connection: Connection) -> None:
            values = _values(wanted) | {"given_epoch": epoch, "given_sequence": sequence}
            if connection.dialect.name == "postgresql":
                first_value(connection, _END, values)
                return
            connection.execute(_NOTE_SEQUENCE, values)
            connection.execute(_FINISH, values)

        self._run(work)

    def go_on(self, sku: str, return_ids: tuple[str, ...], epoch: int) -> None:
        """Note that the pool gets the units of these returns in a later epoch, also if it had them before its loss."""
        these = (returns.c.sku == sku, returns.c.return_id == bindparam("given_return_id"))
        moved = update(returns).where(*these).values(state=BEGUN, epoch=epoch)

        def work(connection: Connection) -> None:
            connection.execute(moved, [{"given_return_id": one} for one in return_ids])

        if return_ids:
            self._write(work)

    def begun(self, sku: str) -> tuple[Return, ...]:
        """Read the returns whose units the pool may lack; repeat them."""
        return self._run(lambda connection: begun_returns(connection, sku))

    def units(self, sku: str, order_id: str | None = None) -> int:
        """Return the units of all returns, or of those of one order."""
        summed = select(cast(func.coalesce(func.sum(returns.c.units), 0), BigInteger)).where(returns.c.sku == sku)
        if order_id is not None:
            summed = summed.where(returns.c.order_id == order_id)
        return self._run(lambda connection: connection.execute(summed).scalar_one())


def begun_returns(connection: Connection, sku: str, done_since: int | None = None) -> tuple[Return, ...]:
    """Read the returns whose units the pool may lack, sorted by their ids.

    They are those that are not done, and those that were done in the epoch `done_since` or later.
    """
    columns = (returns.c.sku, returns.c.order_id, returns.c.units, returns.c.return_id)
    lacking = returns.c.state == BEGUN
    if done_since is not None:
        lacking |= returns.c.epoch >= done_since
    chosen = select(*columns).where(returns.c.sku == sku, lacking).order_by(returns.c.return_id)
    return tuple(Return(*row) for row in connection.execute(chosen))


def _values(wanted: Return) -> dict[str, Any]:
    return {
        "given_sku": plain_text(wanted.sku),
        "given_order_id": wanted.order_id,
        "given_units": wanted.units,
        "given_return_id": wanted.return_id,
    }


def _stored(connection: Connection, values: dict[str, Any]) -> ReturnStored | None:
    """Lower the order and its segment's row, and insert the return. None: the order cannot give that many units.

    None also if its id was used. A restock locks all rows before it looks for a return of its id, and this looks for a
    restock after it has locked one, so one of the two finds the other.
    """
    connection.execute(_LOCK_SEGMENT, values)  # segments are locked before orders everywhere: no deadlock
    taken = changed_row(connection, _TAKE_BACK, _TAKEN, values)
    lowered = taken and changed_row(connection, _LOWER_SOLD, _EPOCH, values | {"given_segment": taken.segment})
    if taken is None or lowered is None:
        return None
    connection.execute(_INSERT, values | {"given_epoch": lowered.epoch})
    return ReturnStored(lowered.epoch, BEGUN, taken.customer_id, _kept(taken))


def _stored_at_once(connection: Connection, values: dict[str, Any]) -> ReturnStored | None:
    """Do the same in one round trip. The lock is a statement of its own: what it waited for, the next one sees."""
    found = one_trip(connection, _AT_ONCE, values)
    if found is None:
        return None
    customer_id, state, quantity, epoch = found
    return ReturnStored(epoch, BEGUN, customer_id, quantity if state == CONFIRMED else 0)


def _found(connection: Connection, wanted: Return) -> ReturnStored | NotReturned:
    known = connection.execute(_SELECT, _values(wanted)).one_or_none()
    row = connection.execute(_TAKEN, _values(wanted)).one_or_none()
    if known is not None:
        if (known.order_id, known.units) != (wanted.order_id, wanted.units):
            raise ChangeMismatch(wanted.sku, wanted.return_id)
        return ReturnStored(known.epoch, known.state, None if row is None else row.customer_id, _kept(row))
    if connection.execute(_SELECT_CHANGE, _values(wanted)).one_or_none() is not None:
        raise ChangeMismatch(wanted.sku, wanted.return_id)
    return NotReturned(None if row is None else _kept(row))


def _kept(row: Any) -> int:  # noqa: ANN401  # of an order, or None
    return row.quantity if row is not None and row.state == CONFIRMED else 0
