"""The migrations of the tables, as Alembic revisions. `segmented.orders.migrate` runs them."""
