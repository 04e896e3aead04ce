"""Alembic's entry: runs the migrations on the connection that `segmented.orders.migrate` has opened, or writes SQL."""

from __future__ import annotations

from alembic import context

from segmented.orders.tables import VERSION_TABLE

if context.is_offline_mode():
    context.configure(
        dialect_name=context.config.attributes["dialect"],
        version_table=VERSION_TABLE,
        literal_binds=True,
        transactional_ddl=False,  # the text runs in a transaction of its reader
    )
else:
    context.configure(connection=context.config.attributes["connection"], version_table=VERSION_TABLE)
with context.begin_transaction():
    context.run_migrations()
