"""The tables of the first release, as `tables` has them: the next revision freezes here what this one made."""

from __future__ import annotations

from alembic import op
from alembic.operations.ops import CreateIndexOp, CreateTableOp

from segmented.orders.tables import FILL, metadata

revision = "r1"
down_revision = None


def upgrade() -> None:
    """Create the tables and their indexes."""
    for table in metadata.sorted_tables:
        op.invoke(CreateTableOp.from_table(table))
        for index in table.indexes:
            op.invoke(CreateIndexOp.from_index(index))
    if op.get_context().dialect.name == "postgresql":
        op.execute(FILL)
