"""The reason of a declined order, and how far the outcomes of each sale were told."""

from __future__ import annotations

from alembic import op
from sqlalchemy import BigInteger, Column, Integer, PrimaryKeyConstraint, text

from segmented.orders.tables import LONG_TEXT, identifier

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Add the column, and create the table."""
    op.add_column("segmented_orders", Column("reason", LONG_TEXT))
    op.create_table(
        "segmented_outcomes",
        Column("sku", identifier(256), nullable=False),
        Column("shard", Integer, nullable=False, autoincrement=False),
        Column("epoch", Integer, nullable=False, server_default=text("1")),
        Column("sequence", BigInteger, nullable=False, server_default=text("0")),
        Column("line", Integer, nullable=False, server_default=text("0")),
        Column("dead_ms", BigInteger, nullable=False, server_default=text("0")),
        Column("caught_up", identifier(256), nullable=False, server_default=text("''")),
        PrimaryKeyConstraint("sku", "shard", name="segmented_outcomes_key"),
    )
