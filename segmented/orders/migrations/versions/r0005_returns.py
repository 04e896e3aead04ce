"""The returns: units of sold orders that customers gave back."""

from __future__ import annotations

from alembic import op
from sqlalchemy import BigInteger, CheckConstraint, Column, Integer, PrimaryKeyConstraint, String

from segmented.orders.tables import MICROSECONDS, created_now, identifier

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "segmented_returns",
        Column("sku", identifier(256), nullable=False),
        Column("return_id", identifier(256), nullable=False),
        Column("order_id", identifier(256), nullable=False),
        Column("units", BigInteger, nullable=False),
        Column("state", String(16), nullable=False),
        Column("epoch", Integer, nullable=False),
        Column("created_at", MICROSECONDS, nullable=False, server_default=created_now()),
        PrimaryKeyConstraint("sku", "return_id", name="segmented_returns_key"),
        CheckConstraint("state IN ('begun', 'done')", name="segmented_returns_state_known"),
        CheckConstraint("units >= 1 AND epoch >= 1", name="segmented_returns_in_range"),
    )
