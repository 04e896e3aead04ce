"""The tables: a row per segment, order, change, and sale. docs/reference/orders-tables.md explains the columns."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import (
    DDL,
    BigInteger,
    CheckConstraint,
    Column,
    DateTime,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    event,
    text,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from segmented.models import ORDER_ID_BYTES_MAX

SKU_LENGTH_MAX: Final = 256
CONFIRMED: Final = "confirmed"
VOID: Final = "void"
RESTOCKED: Final = "restocked"
WITHDRAWN: Final = "withdrawn"
OPENED: Final = "opened"
BEGUN: Final = "begun"
DONE: Final = "done"
UNDONE: Final = "undone"
OPENING_ID: Final = ""
"""The change id of a pool's opening; callers cannot pass it."""

SALE_ID_LENGTH_MAX: Final = 64
PROFILE_LENGTH_MAX: Final = 64

FILLFACTOR: Final = 10
"""Percent of a segment page filled at first; the rest is for new versions of rows, which change with every order."""


class database_now(FunctionElement[Any]):  # noqa: N801  # reads as the SQL function it stands for
    """The time by the database's clock."""

    type = DateTime(timezone=True)
    inherit_cache = True


@compiles(database_now)
def _now(*_: object, **__: object) -> str:
    return "CURRENT_TIMESTAMP"


@compiles(database_now, "sqlite")
def _now_with_milliseconds(*_: object, **__: object) -> str:
    return "(strftime('%Y-%m-%d %H:%M:%f', 'now'))"


class random_id(FunctionElement[Any]):  # noqa: N801  # reads as the SQL function it stands for
    """32 random hexadecimal digits."""

    type = String(SALE_ID_LENGTH_MAX)
    inherit_cache = True


@compiles(random_id, "postgresql")
def _random_uuid(*_: object, **__: object) -> str:
    return "replace(CAST(gen_random_uuid() AS text), '-', '')"


@compiles(random_id, "sqlite")
def _random_blob(*_: object, **__: object) -> str:
    return "lower(hex(randomblob(16)))"


def identifier(length: int) -> String:
    """Return a text type that sorts by bytes everywhere, so that rows are locked and read in one order."""
    in_mysql = String(length, collation="utf8mb4_bin")
    in_postgresql = String(length, collation="C")
    return String(length).with_variant(in_postgresql, "postgresql").with_variant(in_mysql, "mysql", "mariadb")


metadata = MetaData()

segments = Table(
    "segmented_segments",
    metadata,
    Column("sku", identifier(SKU_LENGTH_MAX), nullable=False),
    Column("segment", Integer, nullable=False, autoincrement=False),
    Column("quota", BigInteger, nullable=False),
    Column("sold", BigInteger, nullable=False, server_default=text("0")),
    Column("fence", BigInteger, nullable=False, server_default=text("0")),
    Column("epoch", Integer, nullable=False),
    Column("sequence", BigInteger, nullable=False, server_default=text("0")),
    PrimaryKeyConstraint("sku", "segment", name="segmented_segments_key"),
    CheckConstraint("sold >= 0", name="segmented_segments_sold_not_negative"),
    CheckConstraint("sold <= quota", name="segmented_segments_never_oversold"),
    CheckConstraint("segment >= 0 AND fence >= 0 AND epoch >= 1", name="segmented_segments_in_range"),
)
# An option of the table, `postgresql_with`, exists from SQLAlchemy 2.1 on.
_FILL: Final[Any] = DDL(f"ALTER TABLE segmented_segments SET (fillfactor = {FILLFACTOR})")  # type: ignore[no-untyped-call]  # it has no types
FILL: Final = _FILL.execute_if(dialect="postgresql")
event.listen(segments, "after_create", FILL)

orders = Table(
    "segmented_orders",
    metadata,
    Column("sku", identifier(SKU_LENGTH_MAX), nullable=False),
    Column("order_id", identifier(ORDER_ID_BYTES_MAX), nullable=False),
    Column("state", String(16), nullable=False),
    Column("quantity", BigInteger, nullable=False),
    Column("segment", Integer),
    Column("fence", BigInteger),
    Column("epoch", Integer),
    Column("customer_id", Text),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=database_now()),
    Column("reason", Text),
    PrimaryKeyConstraint("sku", "order_id", name="segmented_orders_key"),
    CheckConstraint(f"state IN ('{CONFIRMED}', '{VOID}')", name="segmented_orders_state_known"),
    CheckConstraint("quantity >= 1", name="segmented_orders_quantity_positive"),
    CheckConstraint(
        f"state = '{VOID}' OR (segment IS NOT NULL AND epoch IS NOT NULL)", name="segmented_orders_confirmed_somewhere"
    ),
)

changes = Table(
    "segmented_changes",
    metadata,
    Column("sku", identifier(SKU_LENGTH_MAX), nullable=False),
    Column("change_id", identifier(ORDER_ID_BYTES_MAX), nullable=False),
    Column("kind", String(16), nullable=False),
    Column("units", BigInteger, nullable=False),
    Column("state", String(16), nullable=False),
    Column("epoch", Integer, nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=database_now()),
    PrimaryKeyConstraint("sku", "change_id", name="segmented_changes_key"),
    CheckConstraint(f"kind IN ('{RESTOCKED}', '{WITHDRAWN}', '{OPENED}')", name="segmented_changes_kind_known"),
    CheckConstraint(f"state IN ('{BEGUN}', '{DONE}', '{UNDONE}')", name="segmented_changes_state_known"),
    CheckConstraint("units >= 0 AND epoch >= 1", name="segmented_changes_in_range"),
)

returns = Table(
    "segmented_returns",
    metadata,
    Column("sku", identifier(SKU_LENGTH_MAX), nullable=False),
    Column("return_id", identifier(ORDER_ID_BYTES_MAX), nullable=False),
    Column("order_id", identifier(ORDER_ID_BYTES_MAX), nullable=False),
    Column("units", BigInteger, nullable=False),
    Column("state", String(16), nullable=False),
    Column("epoch", Integer, nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=database_now()),
    PrimaryKeyConstraint("sku", "return_id", name="segmented_returns_key"),
    CheckConstraint(f"state IN ('{BEGUN}', '{DONE}')", name="segmented_returns_state_known"),
    CheckConstraint("units >= 1 AND epoch >= 1", name="segmented_returns_in_range"),
)

outcomes = Table(
    "segmented_outcomes",
    metadata,
    Column("sku", identifier(SKU_LENGTH_MAX), nullable=False),
    Column("shard", Integer, nullable=False, autoincrement=False),
    Column("epoch", Integer, nullable=False, server_default=text("1")),
    Column("sequence", BigInteger, nullable=False, server_default=text("0")),
    Column("line", Integer, nullable=False, server_default=text("0")),
    Column("dead_ms", BigInteger, nullable=False, server_default=text("0")),
    Column("caught_up", identifier(ORDER_ID_BYTES_MAX), nullable=False, server_default=text("''")),
    PrimaryKeyConstraint("sku", "shard", name="segmented_outcomes_key"),
)

sales = Table(
    "segmented_sales",
    metadata,
    Column("sku", identifier(SKU_LENGTH_MAX), nullable=False),
    Column("sale_id", String(SALE_ID_LENGTH_MAX), nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=database_now()),
    Column("limit_per_customer", BigInteger),
    Column("profile", String(PROFILE_LENGTH_MAX)),
    Column("queue", Text),
    Column("step", Text),
    PrimaryKeyConstraint("sku", name="segmented_sales_key"),
)
"""The identity of each sale, which its pool notes: a database that has another one is not the pool's. And the terms of
its pool, for one whose keys are lost; without a profile they are not known.
"""
