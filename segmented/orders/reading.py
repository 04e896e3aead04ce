"""Rows to values: every read of the order database."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import BigInteger, bindparam, cast, func, select

from segmented.orders.answers import OrderRow, SegmentRow
from segmented.orders.deciding import StoredOrder
from segmented.orders.standing import Standing
from segmented.orders.statements import LOCK_SEGMENTS, SELECT_SEGMENTS, SELECT_STANDING, given
from segmented.orders.tables import CONFIRMED, orders

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection, RowMapping, Select

_SELECT_ORDERS: Final = select(
    orders.c.sku,
    orders.c.order_id,
    orders.c.state,
    orders.c.quantity,
    orders.c.segment,
    orders.c.fence,
    orders.c.epoch,
    orders.c.customer_id,
    orders.c.created_at,
).where(orders.c.sku == given(orders.c.sku))

_SELECT_THESE: Final = _SELECT_ORDERS.where(orders.c.order_id.in_(bindparam("order_ids", expanding=True)))

_SELECT_AFTER: Final = (
    _SELECT_ORDERS.where(orders.c.order_id > given(orders.c.order_id))
    .order_by(orders.c.order_id)
    .limit(bindparam("page_size"))
)

_SELECT_CONFIRMED_UNITS: Final = select(cast(func.coalesce(func.sum(orders.c.quantity), 0), BigInteger)).where(
    orders.c.sku == given(orders.c.sku), orders.c.state == CONFIRMED
)


def read_standing(connection: Connection, values: dict[str, Any]) -> Standing:
    """Read what `classify` needs, in one step."""
    return Standing(*connection.execute(SELECT_STANDING, values).one())


def read_segments(connection: Connection, sku: str) -> tuple[SegmentRow, ...]:
    """Read a sku's segment rows, ascending."""
    return tuple(SegmentRow(*row) for row in connection.execute(SELECT_SEGMENTS, {"given_sku": sku}))


def lock_segments(connection: Connection, sku: str) -> tuple[SegmentRow, ...]:
    """Read the same, and keep the rows as they are until the transaction ends.

    Twice: rows that were inserted while the first waited for its locks are not in what it saw. After the second none
    can come, because who inserts one locks all others first.
    """
    connection.execute(LOCK_SEGMENTS, {"given_sku": sku}).all()
    return tuple(SegmentRow(*row) for row in connection.execute(LOCK_SEGMENTS, {"given_sku": sku}))


def lock_these(
    connection: Connection, statement: Select[Any], sku: str, numbers: Sequence[int]
) -> tuple[SegmentRow, ...]:
    """Read some of the rows, and keep them as they are; `statement` names them, in its database's words."""
    found = connection.execute(statement, {"given_sku": sku, "numbers": numbers})
    return tuple(SegmentRow(*row) for row in found)


def find_orders(
    connection: Connection, statement: Select[Any], sku: str, order_ids: Sequence[str]
) -> dict[str, StoredOrder]:
    """Read what repeats of these orders are compared with, by id; `statement` names them likewise."""
    found = connection.execute(statement, {"given_sku": sku, "order_ids": order_ids})
    return {order_id: StoredOrder(*content) for order_id, *content in found}


def read_orders(connection: Connection, *, sku: str, order_ids: Sequence[str]) -> list[OrderRow]:
    """Read the orders that exist among these."""
    found = connection.execute(_SELECT_THESE, {"given_sku": sku, "order_ids": order_ids})
    return [_order_row(row) for row in found.mappings()]


def read_orders_after(connection: Connection, *, sku: str, order_id: str, page_size: int) -> list[OrderRow]:
    """Read the next orders in the order of their ids' bytes."""
    values = {"given_sku": sku, "given_order_id": order_id, "page_size": page_size}
    return [_order_row(row) for row in connection.execute(_SELECT_AFTER, values).mappings()]


def read_confirmed_units(connection: Connection, sku: str) -> int:
    """Add up the confirmed order rows, whatever the segment rows say."""
    return int(connection.execute(_SELECT_CONFIRMED_UNITS, {"given_sku": sku}).scalar_one())


def _order_row(row: RowMapping) -> OrderRow:
    return OrderRow(**(dict(row) | {"created_at": in_utc(row["created_at"])}))


def in_utc(moment: datetime) -> datetime:
    """Return a time of the database with its zone."""
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)  # SQLite stores UTC, bare
