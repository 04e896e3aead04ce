"""The terms of each sale's pool, which are noted when a process meets the pool next."""

from __future__ import annotations

from alembic import op
from sqlalchemy import BigInteger, Column, String

from segmented.orders.tables import LONG_TEXT

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add the columns, without values: the terms of the open pools are not in the database."""
    for column in (
        Column("limit_per_customer", BigInteger),
        Column("profile", String(64)),
        Column("queue", LONG_TEXT),
        Column("step", LONG_TEXT),
    ):
        op.add_column("segmented_sales", column)
