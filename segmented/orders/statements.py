"""The interface of the databases' different statements, those that they share, and every read: rows to values.

SQLAlchemy Core builds every text once, at import or when a gate is created. What every order needs is sent as ready
text, because composing it again would cost more than the database's driver does: the confirm, and the question whether
the order is decided, which a grant asks under its segment's lock.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import fields
from datetime import UTC, datetime
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from sqlalchemy import BigInteger, Text, any_, bindparam, case, cast, func, insert, literal_column, select, true, update
from sqlalchemy.dialects import postgresql

from segmented.models import Order
from segmented.models.ids import plain_text
from segmented.models.shards import SHARD_MARK
from segmented.orders.answers import OrderRow, SegmentRow, SegmentTotals
from segmented.orders.deciding import Standing, StoredOrder
from segmented.orders.tables import CONFIRMED, VOID, orders, sales, segments

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from contextlib import AbstractContextManager

    from sqlalchemy import BindParameter, Column, ColumnElement, Connection, Insert, Row, Select, Update

    from segmented.orders.answers import Confirmed
    from segmented.orders.deciding import Claim, Decision, QuotaMove


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

    these_segments: Select[Any]
    """Selects some of a sku's rows of segments, ascending, and locks them inside a transaction."""

    these_orders: Select[Any]
    """Selects what repeats of these orders are compared with."""

    def creating(self, connection: Connection) -> AbstractContextManager[None]:
        """Open a transaction, or hold a lock, in which no other process creates tables."""

    def confirm(self, connection: Connection, values: dict[str, Any]) -> int | None:
        """Take the units and insert the order, inside a transaction. Returns the row's sequence; None: no change."""

    def confirm_alone(self, connection: Connection, values: dict[str, Any]) -> int | None:
        """Do the same in a transaction of its own."""

    def confirm_within(self, connection: Connection, values: dict[str, Any]) -> int | None:
        """Do the same inside the caller's transaction; None also for an order that has a row."""

    def whole(self, _connection: Connection) -> AbstractContextManager[None]:
        """Let the block's statements in the caller's transaction be stored together, or none of them.

        Nothing is to be done where a failed statement aborts the transaction (PostgreSQL), and where no statement
        waits for another transaction once one has written (SQLite).
        """
        return nullcontext()

    def read_within(self, connection: Connection, values: dict[str, Any]) -> Standing:
        """Read the input of `classify` in the caller's transaction, after `confirm_within` has changed nothing."""
        return read_standing(connection, values)

    def latest(self, read: Select[Any]) -> Select[Any]:
        """Return a read in the caller's transaction that shows what others have committed since it began.

        Any read does, on PostgreSQL under READ COMMITTED (under REPEATABLE READ the insert failed), and on SQLite,
        where nobody has committed since the transaction wrote.
        """
        return read

    def confirm_plain(self, connection: Connection, claims: Sequence[Claim]) -> list[Confirmed] | None:
        """Confirm an envelope in one statement, a transaction of its own. None: nothing changed.

        Raises IntegrityError if an order has a row, and DataError for a value that cannot be stored: nothing changed.
        """

    def lock_these(self, connection: Connection, sku: str, numbers: Sequence[int]) -> tuple[SegmentRow, ...]:
        """Lock the rows of these segments, inside a transaction, ascending, and return the existing ones."""
        found = connection.execute(self.these_segments, {"given_sku": sku, "numbers": numbers})
        return tuple(SegmentRow(*row) for row in found)

    def has_order(self, connection: Connection, values: dict[str, Any]) -> bool:
        """Return whether the order has a row."""

    def find_orders(self, connection: Connection, sku: str, order_ids: Sequence[str]) -> dict[str, StoredOrder]:
        """Read the existing orders among these, by id."""
        found = connection.execute(self.these_orders, {"given_sku": sku, "order_ids": order_ids})
        return {order_id: StoredOrder(*content) for order_id, *content in found}

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


OF_ORDER: Final = (orders.c.sku == given(orders.c.sku), orders.c.order_id == given(orders.c.order_id))
OF_SEGMENT: Final = (segments.c.sku == given(segments.c.sku), segments.c.segment == given(segments.c.segment))
"""The conditions that choose one row."""


def take_units(*, fenced: bool) -> Update:
    """Build the update that raises `sold`, if epoch, fence and quota allow it."""
    quantity = given(orders.c.quantity)
    statement = update(segments).where(
        *OF_SEGMENT,
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
    return update(segments).where(*OF_SEGMENT).values(sold=segments.c.sold - given(orders.c.quantity))


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
    order = select(orders.c.state, orders.c.quantity, orders.c.customer_id).where(*OF_ORDER).subquery()
    row = select(segments.c.epoch.label("row_epoch"), segments.c.fence.label("row_fence")).where(*OF_SEGMENT).subquery()
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


SELECT_HAS_ORDER: Final[Select[int]] = select(literal_column("1")).where(*OF_ORDER)


def select_orders(are_these: ColumnElement[bool]) -> Select[tuple[str, str, int, str | None]]:
    """Build the select of the content with which a repeat of an order is compared."""
    columns = select(orders.c.order_id, orders.c.state, orders.c.quantity, orders.c.customer_id)
    return columns.where(orders.c.sku == given(orders.c.sku), are_these)


_MOVE_QUOTA: Final = (
    update(segments).where(*OF_SEGMENT).values(quota=segments.c.quota + bindparam("change", type_=BigInteger))
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


_COLUMNS: Final = tuple(field.name for field in fields(OrderRow))
_SELECT_ORDERS: Final = select(*(orders.c[name] for name in _COLUMNS)).where(orders.c.sku == given(orders.c.sku))

_SELECT_ONE: Final = _SELECT_ORDERS.where(OF_ORDER[1])
"""A list of parameters is expanded at each execution; one parameter is not."""

_SELECT_THESE: Final = _SELECT_ORDERS.where(orders.c.order_id.in_(bindparam("order_ids", expanding=True)))

_SELECT_ARRAY: Final = _SELECT_ORDERS.where(
    orders.c.order_id == any_(bindparam("order_ids", type_=postgresql.ARRAY(Text())))
)
"""One parameter, on PostgreSQL: expanding 1,000 of them takes as long as reading the rows."""

_SOLD_THESE, _SOLD_ARRAY = (
    these.with_only_columns(orders.c.order_id).where(orders.c.state == CONFIRMED)
    for these in (_SELECT_THESE, _SELECT_ARRAY)
)

_SELECT_AFTER: Final = (
    _SELECT_ORDERS.where(orders.c.order_id > given(orders.c.order_id))
    .order_by(orders.c.order_id)
    .limit(bindparam("page_size"))
)

_SELECT_CONFIRMED_UNITS: Final = select(cast(func.coalesce(func.sum(orders.c.quantity), 0), BigInteger)).where(
    orders.c.sku == given(orders.c.sku), orders.c.state == CONFIRMED
)

_SELECT_CONFIRMED_AFTER: Final = (
    select(orders.c.order_id, orders.c.quantity)
    .where(
        orders.c.sku == given(orders.c.sku),
        orders.c.state == CONFIRMED,
        orders.c.order_id > given(orders.c.order_id),
    )
    .order_by(orders.c.order_id)
    .limit(bindparam("page_size"))
)


def read_standing(connection: Connection, values: dict[str, Any]) -> Standing:
    """Read the input of `classify`, in one step."""
    return Standing(*connection.execute(SELECT_STANDING, values).one())


def read_names(connection: Connection, base: str) -> list[str]:
    """Read the names with segment rows that are a sku or a shard of it, whatever its layout."""
    shards = segments.c.sku.startswith(base + SHARD_MARK, autoescape=True)
    found = connection.execute(select(segments.c.sku).where((segments.c.sku == base) | shards).distinct()).scalars()
    return sorted(name for name in found if name.partition(SHARD_MARK)[0] == base)  # SQLite's LIKE knows no case


def read_totals(connection: Connection, sku: str) -> SegmentTotals:
    """Read a sku's segment rows, ascending, and the identity of its sale, in one step."""
    found = connection.execute(SELECT_TOTALS, {"given_sku": sku}).all()
    rows = tuple(SegmentRow(*row[:-1]) for row in found)
    sale_id = found[0][-1] if found else None
    return SegmentTotals(sum(row.quota for row in rows), sum(row.sold for row in rows), rows, sale_id or "")


def lock_segments(connection: Connection, sku: str) -> tuple[SegmentRow, ...]:
    """Read a sku's segment rows, and keep them unchanged until the transaction ends.

    Reads twice: the first read does not see rows inserted while it waited for its locks. After the second none can be
    added, because an insert needs the locks of all others first.
    """
    connection.execute(LOCK_SEGMENTS, {"given_sku": sku}).all()
    return tuple(SegmentRow(*row) for row in connection.execute(LOCK_SEGMENTS, {"given_sku": sku}))


def move_quota(connection: Connection, sku: str, moves: Iterable[QuotaMove]) -> None:
    """Change the quota of locked rows."""
    values = [{"given_sku": sku, "given_segment": move.segment, "change": move.change} for move in moves]
    if values:
        connection.execute(_MOVE_QUOTA, values)


def read_orders(connection: Connection, *, sku: str, order_ids: Sequence[str]) -> list[OrderRow]:
    """Read the existing orders among these."""
    if len(order_ids) == 1:
        found = connection.execute(_SELECT_ONE, {"given_sku": sku, "given_order_id": order_ids[0]})
    else:
        these = _SELECT_ARRAY if connection.dialect.name == "postgresql" else _SELECT_THESE
        found = connection.execute(these, {"given_sku": sku, "order_ids": list(order_ids)})
    return [_order_row(row) for row in found.all()]


def read_sold(connection: Connection, *, sku: str, order_ids: Sequence[str]) -> set[str]:
    """Read which of these orders are confirmed: an audit needs no more, and their rows take as long as its rest."""
    these = _SOLD_ARRAY if connection.dialect.name == "postgresql" else _SOLD_THESE
    return {*connection.execute(these, {"given_sku": sku, "order_ids": list(order_ids)}).scalars()}


def read_orders_after(connection: Connection, *, sku: str, order_id: str, page_size: int) -> list[OrderRow]:
    """Read the next orders, sorted by their ids' bytes."""
    values = {"given_sku": sku, "given_order_id": order_id, "page_size": page_size}
    return [_order_row(row) for row in connection.execute(_SELECT_AFTER, values).all()]


def read_confirmed_units(connection: Connection, sku: str) -> int:
    """Add up the confirmed order rows, independently of the segment rows."""
    return int(connection.execute(_SELECT_CONFIRMED_UNITS, {"given_sku": sku}).scalar_one())


def read_confirmed_after(connection: Connection, *, sku: str, order_id: str, page_size: int) -> list[tuple[str, int]]:
    """Read id and units of the next confirmed orders, sorted by their ids' bytes."""
    values = {"given_sku": sku, "given_order_id": order_id, "page_size": page_size}
    return [(found, units) for found, units in connection.execute(_SELECT_CONFIRMED_AFTER, values)]


def _order_row(row: Sequence[Any]) -> OrderRow:
    found = dict(zip(_COLUMNS, row, strict=True))
    return OrderRow(**found | {"created_at": in_utc(found["created_at"])})


def in_utc(moment: datetime) -> datetime:
    """Return a time of the database with its zone."""
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)  # SQLite has no zone
