"""The tables of the gate: segments, orders and changes."""

from __future__ import annotations

from alembic import op
from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Integer,
    PrimaryKeyConstraint,
    String,
    text,
)

from segmented.orders.tables import LONG_TEXT, MICROSECONDS, created_now, identifier

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "segmented_segments",
        Column("sku", identifier(256), nullable=False),
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
    if op.get_context().dialect.name == "postgresql":
        op.execute("ALTER TABLE segmented_segments SET (fillfactor = 10)")
    op.create_table(
        "segmented_orders",
        Column("sku", identifier(256), nullable=False),
        Column("order_id", identifier(256), nullable=False),
        Column("state", String(16), nullable=False),
        Column("quantity", BigInteger, nullable=False),
        Column("segment", Integer),
        Column("fence", BigInteger),
        Column("epoch", Integer),
        Column("customer_id", LONG_TEXT),
        Column("created_at", MICROSECONDS, nullable=False, server_default=created_now()),
        PrimaryKeyConstraint("sku", "order_id", name="segmented_orders_key"),
        CheckConstraint("state IN ('confirmed', 'void')", name="segmented_orders_state_known"),
        CheckConstraint("quantity >= 1", name="segmented_orders_quantity_positive"),
        CheckConstraint(
            "state = 'void' OR (segment IS NOT NULL AND epoch IS NOT NULL)", name="segmented_orders_confirmed_somewhere"
        ),
    )
    op.create_table(
        "segmented_changes",
        Column("sku", identifier(256), nullable=False),
        Column("change_id", identifier(256), nullable=False),
        Column("kind", String(16), nullable=False),
        Column("units", BigInteger, nullable=False),
        Column("state", String(16), nullable=False),
        Column("epoch", Integer, nullable=False),
        Column("created_at", MICROSECONDS, nullable=False, server_default=created_now()),
        PrimaryKeyConstraint("sku", "change_id", name="segmented_changes_key"),
        CheckConstraint("kind IN ('restocked', 'withdrawn', 'opened')", name="segmented_changes_kind_known"),
        CheckConstraint("state IN ('begun', 'done', 'undone')", name="segmented_changes_state_known"),
        CheckConstraint("units >= 0 AND epoch >= 1", name="segmented_changes_in_range"),
    )
