"""The interface of the databases' different statements, and the statements that they share.

SQLAlchemy Core builds every text once, at import or when a gate is created. What every order needs is sent as ready
text, because composing it again would cost more than the database's driver does: the confirm, and the question whether
the order is decided, which a grant asks under its segment's lock.
"""

from __future__ import annotations

from dataclasses import fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from sqlalchemy import BigInteger, bindparam, case, cast, func, insert, literal_column, select, true, update

from segmented.models import Order
from segmented.models.ids import plain_text
from segmented.orders.tables import CONFIRMED, VOID, orders, sales, segments

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from sqlalchemy import BindParameter, Column, ColumnElement, Connection, Insert, Row, Select, Update

    from segmented.orders.answers import Confirmed, SegmentRow
    from segmented.orders.deciding import Claim, Decision, Standing, StoredOrder


CLAIMED: Final[dict[str, Callable[[Claim], Any]]] = {
    **{field.name: attrgetter(f"order.{field.name}") for field in fields(Order)},
    **{name: attrgetter(name) for name in ("segment", "epoch", "fence")},
}
"""The columns whose values a claim has, and how each is read. An order's fields have columns of their names."""
ORDER_COLUMNS: Final = [orders.c.sku, orders.c.state, *(orders.c[name] for name in CLAIMED)]
"""The columns of a confirmed order."""


class Statements(Protocol):
    """One database's own statements."""

    begin: str
    """Opens a transaction; connections are in autocommit otherwise."""

    undoes_tables: bool
    """Whether a transaction that is rolled back takes back the tables that it created."""

    def creating(self, connection: Connection) -> AbstractContextManager[None]:
        """Open a transaction, or hold a lock, in which no other process creates tables."""

    def confirm(self, connection: Connection, values: dict[str, Any]) -> int | None:
        """Take the units and insert the order, inside a transaction. Returns the row's sequence; None: no change."""

    def confirm_alone(self, connection: Connection, values: dict[str, Any]) -> int | None:
        """Do the same in a transaction of its own."""

    def confirm_within(self, connection: Connection, values: dict[str, Any]) -> int | None:
        """Do the same inside the caller's transaction; None also for an order that has a row."""

    def whole(self, connection: Connection) -> AbstractContextManager[None]:
        """Let the block's statements in the caller's transaction be stored together, or none of them."""

    def read_within(self, connection: Connection, values: dict[str, Any]) -> Standing:
        """Read the input of `classify` in the caller's transaction, after `confirm_within` has changed nothing."""

    def latest(self, read: Select[Any]) -> Select[Any]:
        """Return a read in the caller's transaction that shows what others have committed since it began."""

    def confirm_plain(self, connection: Connection, claims: Sequence[Claim]) -> list[Confirmed] | None:
        """Confirm an envelope in one statement, a transaction of its own. None: nothing changed.

        Raises IntegrityError if an order has a row, and DataError for a value that cannot be stored: nothing changed.
        """

    def lock_these(self, connection: Connection, sku: str, numbers: Sequence[int]) -> tuple[SegmentRow, ...]:
        """Lock the rows of these segments, inside a transaction, ascending, and return the existing ones."""

    def has_order(self, connection: Connection, values: dict[str, Any]) -> bool:
        """Return whether the order has a row."""

    def find_orders(self, connection: Connection, sku: str, order_ids: Sequence[str]) -> dict[str, StoredOrder]:
        """Read the existing orders among these, by id."""

    def store_many(self, connection: Connection, decision: Decision) -> bool:
        """Write the decision, inside a transaction. False: a row has changed since the read, roll back.

        An order that has a row raises IntegrityError: roll back.
        """

    def void(self, connection: Connection, values: dict[str, Any]) -> bool:
        """Insert the void in a transaction of its own. False: the order already has a row."""


class SeveralStatements(Statements, Protocol):
    """What SQLite and MySQL share: no statement there writes two tables, so a confirm is several."""

    _insert: str
    _change: str
    _has_order: str

    def confirm_alone(self, connection: Connection, values: dict[str, Any]) -> int | None:
        """Confirm in a transaction of its own; the caller's connection rolls it back when it raises."""
        connection.exec_driver_sql(self.begin)
        changed = self.confirm(connection, values)
        connection.commit()
        return changed

    def confirm_plain(self, connection: Connection, claims: Sequence[Claim]) -> list[Confirmed] | None:  # noqa: ARG002  # nothing is confirmed
        """Change nothing: an envelope in one statement would write two tables."""
        return None

    def has_order(self, connection: Connection, values: dict[str, Any]) -> bool:
        """Return whether the order has a row."""
        return connection.exec_driver_sql(self._has_order, values).scalar() is not None

    def store_many(self, connection: Connection, decision: Decision) -> bool:
        """Write the decision. An order that has a row raises IntegrityError: roll back."""
        rows = changed_values(decision)
        if connection.exec_driver_sql(self._change, rows).rowcount != len(rows):
            return False
        claims = sorted(decision.confirmed, key=lambda claim: claim.order.order_id.encode())  # as all lock them
        connection.exec_driver_sql(self._insert, [given_values(claim) for claim in claims])
        return True


def given(column: Column[Any]) -> BindParameter[Any]:
    """Return the parameter for the caller's value of a column."""
    return bindparam(f"given_{column.name}", type_=column.type)


def order_values(sku: str, order: Order, reason: str | None = None) -> dict[str, Any]:
    """Return the parameters of an order without a segment, and why it is void."""
    return {
        "given_sku": plain_text(sku),
        "given_order_id": order.order_id,
        "given_quantity": order.quantity,
        "given_segment": None,
        "given_reason": reason,
    }


def given_values(claim: Claim) -> dict[str, Any]:
    """Return the parameters of a claim."""
    found = {f"given_{name}": read(claim) for name, read in CLAIMED.items()}
    return found | {"given_sku": plain_text(claim.sku), "given_sequence": claim.sequence}


def take_units(*, fenced: bool) -> Update:
    """Build the update that raises `sold`, if epoch, fence and quota allow it."""
    quantity = given(orders.c.quantity)
    statement = update(segments).where(
        segments.c.sku == given(segments.c.sku),
        segments.c.segment == given(segments.c.segment),
        segments.c.epoch == given(segments.c.epoch),
        segments.c.sold + quantity <= segments.c.quota,
    )
    sequence = given(segments.c.sequence)
    changes: dict[str, ColumnElement[Any]] = {
        "sold": segments.c.sold + quantity,
        "sequence": case((segments.c.sequence < sequence, sequence), else_=segments.c.sequence),
    }
    if fenced:
        statement = statement.where(segments.c.fence <= given(segments.c.fence))
        changes["fence"] = given(segments.c.fence)
    return statement.values(changes)


def changed_row(connection: Connection, change: Update, read: Select[Any], values: dict[str, Any]) -> Row[Any] | None:
    """Change a locked row, and return what `read` selects of it; None if its conditions did not let it change."""
    if connection.dialect.update_returning:
        return connection.execute(change.returning(*read.selected_columns), values).one_or_none()
    return connection.execute(read, values).one() if connection.execute(change, values).rowcount else None


def give_back() -> Update:
    """Build the update that undoes `take_units` in the same transaction, for an order that has a row already."""
    of_it = (segments.c.sku == given(segments.c.sku), segments.c.segment == given(segments.c.segment))
    return update(segments).where(*of_it).values(sold=segments.c.sold - given(orders.c.quantity))


def change_row() -> Update:
    """Build the update of a row, if it is unchanged since the read."""
    changing = (segments.c.quota, segments.c.sold, segments.c.fence)
    read = (segments.c.sku, segments.c.segment, segments.c.epoch, *changing)
    changes = {
        column.name: bindparam(f"new_{column.name}", type_=column.type) for column in (*changing, segments.c.sequence)
    }
    return update(segments).where(*(column == given(column) for column in read)).values(changes)


def changed_values(decision: Decision) -> list[dict[str, Any]]:
    """Return the parameters of `change_row` for each changed row."""
    return [
        {
            "given_sku": decision.confirmed[0].sku,
            "given_segment": before.segment,
            "given_quota": before.quota,
            "given_sold": before.sold,
            "given_fence": before.fence,
            "given_epoch": before.epoch,
            "new_quota": after.quota,
            "new_sold": after.sold,
            "new_fence": after.fence,
            "new_sequence": after.sequence,
        }
        for before, after in ((change.before, change.after) for change in decision.changes)
    ]


STATE_CONFIRMED: Final = literal_column(f"'{CONFIRMED}'", orders.c.state.type)
STATE_VOID: Final = literal_column(f"'{VOID}'", orders.c.state.type)


def insert_confirmed() -> Insert:
    """Build the insert of a confirmed order."""
    return insert(orders).values(confirmed_values())


def confirmed_values() -> dict[str, Any]:
    """Return the columns of a confirmed order."""
    return {column.name: given(column) for column in ORDER_COLUMNS} | {"state": STATE_CONFIRMED}


def void_values() -> dict[str, Any]:
    """Return the columns of a void."""
    return {
        "sku": given(orders.c.sku),
        "order_id": given(orders.c.order_id),
        "quantity": given(orders.c.quantity),
        "state": STATE_VOID,
        "reason": given(orders.c.reason),
    }


def _select_standing() -> Select[Any]:
    totals = (
        select(
            cast(func.coalesce(func.sum(segments.c.quota), 0), BigInteger).label("total"),
            cast(func.coalesce(func.sum(segments.c.sold), 0), BigInteger).label("sold"),
        )
        .where(segments.c.sku == given(segments.c.sku))
        .subquery()
    )
    order = (
        select(orders.c.state, orders.c.quantity, orders.c.customer_id)
        .where(orders.c.sku == given(orders.c.sku), orders.c.order_id == given(orders.c.order_id))
        .subquery()
    )
    row = (
        select(segments.c.epoch.label("row_epoch"), segments.c.fence.label("row_fence"))
        .where(segments.c.sku == given(segments.c.sku), segments.c.segment == given(segments.c.segment))
        .subquery()
    )
    return select(order, row, totals).select_from(totals.outerjoin(order, true()).outerjoin(row, true()))


SELECT_STANDING: Final = _select_standing()
"""Always one row: the input of `classify`, read atomically."""

SELECT_SEGMENTS: Final = (
    select(
        segments.c.segment, segments.c.quota, segments.c.sold, segments.c.fence, segments.c.epoch, segments.c.sequence
    )
    .where(segments.c.sku == given(segments.c.sku))
    .order_by(segments.c.segment)
)

SELECT_TOTALS: Final = SELECT_SEGMENTS.add_columns(
    select(sales.c.sale_id).where(sales.c.sku == given(segments.c.sku)).scalar_subquery()
)

LOCK_SEGMENTS: Final = SELECT_SEGMENTS.with_for_update()
"""Locks ascending, like all other statements, to avoid deadlocks. On SQLite BEGIN IMMEDIATE has already locked."""


SELECT_HAS_ORDER: Final[Select[int]] = select(literal_column("1")).where(
    orders.c.sku == given(orders.c.sku), orders.c.order_id == given(orders.c.order_id)
)


def select_orders(are_these: ColumnElement[bool]) -> Select[tuple[str, str, int, str | None]]:
    """Build the select of the content with which a repeat of an order is compared."""
    columns = select(orders.c.order_id, orders.c.state, orders.c.quantity, orders.c.customer_id)
    return columns.where(orders.c.sku == given(orders.c.sku), are_these)


MOVE_QUOTA: Final = (
    update(segments)
    .where(segments.c.sku == given(segments.c.sku), segments.c.segment == given(segments.c.segment))
    .values(quota=segments.c.quota + bindparam("change", type_=BigInteger))
)


AnswerT = TypeVar("AnswerT")


class Database(Protocol):
    """Runs work on a connection of its own. Work may run twice: a repeat finds what the first run did."""

    begin: str
    """Opens a transaction; connections are in autocommit otherwise."""

    def run(self, work: Callable[[Connection], AnswerT]) -> AnswerT:
        """Return the work's result; each of its statements is a transaction."""

    def write(self, work: Callable[[Connection], AnswerT]) -> AnswerT:
        """Return the result of work in one transaction, after its commit."""


class Rows:
    """Rows of one kind."""

    def __init__(self, database: Database) -> None:
        """Create for the rows of a database."""
        self._run, self._write, self._begin = database.run, database.write, database.begin
