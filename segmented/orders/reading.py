"""Rows to values: every read of the order database."""

from __future__ import annotations

from dataclasses import fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import BigInteger, Text, any_, bindparam, cast, func, select
from sqlalchemy.dialects import postgresql

from segmented.models.shards import SHARD_MARK
from segmented.orders.answers import OrderRow, SegmentRow, SegmentTotals
from segmented.orders.deciding import Standing, StoredOrder
from segmented.orders.statements import LOCK_SEGMENTS, SELECT_STANDING, SELECT_TOTALS, given
from segmented.orders.tables import CONFIRMED, orders, segments

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection, Select

_COLUMNS: Final = tuple(field.name for field in fields(OrderRow))
_SELECT_ORDERS: Final = select(*(orders.c[name] for name in _COLUMNS)).where(orders.c.sku == given(orders.c.sku))

_SELECT_ONE: Final = _SELECT_ORDERS.where(orders.c.order_id == given(orders.c.order_id))
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


def lock_these(
    connection: Connection, statement: Select[Any], sku: str, numbers: Sequence[int]
) -> tuple[SegmentRow, ...]:
    """Read and lock some of the rows; `statement` selects them, in its database's dialect."""
    found = connection.execute(statement, {"given_sku": sku, "numbers": numbers})
    return tuple(SegmentRow(*row) for row in found)


def find_orders(
    connection: Connection, statement: Select[Any], sku: str, order_ids: Sequence[str]
) -> dict[str, StoredOrder]:
    """Read what repeats of these orders are compared with, by id; `statement` selects them."""
    found = connection.execute(statement, {"given_sku": sku, "order_ids": order_ids})
    return {order_id: StoredOrder(*content) for order_id, *content in found}


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
