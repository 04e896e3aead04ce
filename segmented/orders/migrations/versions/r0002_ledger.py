"""The table of relayed ledger entries."""

from __future__ import annotations

from alembic import op
from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Integer,
    PrimaryKeyConstraint,
    String,
    false,
)

from segmented.orders.tables import LONG_TEXT, MICROSECONDS, identifier

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Create the table and its index."""
    op.create_table(
        "segmented_ledger",
        Column("sku", identifier(256), nullable=False),
        Column("shard", Integer, nullable=False, autoincrement=False),
        Column("epoch", Integer, nullable=False, autoincrement=False),
        Column("sequence", BigInteger, nullable=False, autoincrement=False),
        Column("line", Integer, nullable=False, autoincrement=False),
        Column("kind", String(16), nullable=False),
        Column("order_id", identifier(256)),
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
    )
    op.create_index("segmented_ledger_orders", "segmented_ledger", ["sku", "order_id"])
