"""Alembic's entry: runs the migrations on the connection that `segmented.orders.migrate` has opened."""

from __future__ import annotations

from alembic import context

from segmented.orders.versions import VERSION_TABLE

context.configure(connection=context.config.attributes["connection"], version_table=VERSION_TABLE)
with context.begin_transaction():
    context.run_migrations()
