"""The table of relayed ledger entries: a row per change. docs/reference/orders-tables.md explains the columns."""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Index,
    Integer,
    PrimaryKeyConstraint,
    String,
    Table,
    false,
)

from segmented.models import ORDER_ID_BYTES_MAX
from segmented.orders.tables import LONG_TEXT, MICROSECONDS, SKU_LENGTH_MAX, identifier, metadata

KIND_LENGTH_MAX: Final = 16

ledger = Table(
    "segmented_ledger",
    metadata,
    Column("sku", identifier(SKU_LENGTH_MAX), nullable=False),
    Column("shard", Integer, nullable=False, autoincrement=False),
    Column("epoch", Integer, nullable=False, autoincrement=False),
    Column("sequence", BigInteger, nullable=False, autoincrement=False),
    Column("line", Integer, nullable=False, autoincrement=False),
    Column("kind", String(KIND_LENGTH_MAX), nullable=False),
    Column("order_id", identifier(ORDER_ID_BYTES_MAX)),
    Column("quantity", BigInteger, nullable=False),
    Column("customer_id", LONG_TEXT),
    Column("changed_at", MICROSECONDS, nullable=False),
    Column("segment", Integer),
    Column("parts", LONG_TEXT),
    Column("fence", BigInteger),
    Column("note", LONG_TEXT),
    Column("chain", String(16), nullable=False),
    Column("is_lost", Boolean, nullable=False, server_default=false()),
    PrimaryKeyConstraint("sku", "shard", "epoch", "sequence", "line", name="segmented_ledger_key"),
    CheckConstraint("shard >= 0 AND epoch >= 1 AND sequence >= 1 AND line >= 0", name="segmented_ledger_in_range"),
    Index("segmented_ledger_orders", "sku", "order_id"),
)
