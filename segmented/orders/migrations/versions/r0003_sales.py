"""The identities of sales.

A sale that is there already gets the time of its opening, which older copies of the database have too.
"""

from __future__ import annotations

from datetime import UTC, datetime

from alembic import op
from sqlalchemy import Column, DateTime, MetaData, PrimaryKeyConstraint, String, Table, insert, select

from segmented.orders.tables import MICROSECONDS, created_now, identifier

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Create the table, with a row for each sale whose opening is noted."""
    sales = op.create_table(
        "segmented_sales",
        Column("sku", identifier(256), nullable=False),
        Column("sale_id", String(64), nullable=False),
        Column("created_at", MICROSECONDS, nullable=False, server_default=created_now()),
        PrimaryKeyConstraint("sku", name="segmented_sales_key"),
    )
    if op.get_context().as_sql:
        return  # as text, for tables that are made now: no sale is there
    changes = Table(
        "segmented_changes",
        MetaData(),
        Column("sku", identifier(256)),
        Column("change_id", identifier(256)),
        Column("created_at", DateTime(timezone=True)),
    )
    connection = op.get_bind()
    opened = connection.execute(select(changes.c.sku, changes.c.created_at).where(changes.c.change_id == ""))
    rows = [{"sku": sku, "sale_id": f"opened {_in_utc(moment).isoformat()}"} for sku, moment in opened]
    if rows:
        connection.execute(insert(sales), rows)


def _in_utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
