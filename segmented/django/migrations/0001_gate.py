"""The tables of the gate, by the Alembic revisions, and the models of the admin, which have no tables."""

from __future__ import annotations

from django.db import migrations, models

from segmented.django.gate_tables import GateTables, OnceTables

OPTIONS = {"managed": False, "default_permissions": ("view",)}


def shown(name: str, key: str) -> migrations.CreateModel:
    """Return a model without a table."""
    fields = [(key, models.CharField(primary_key=True, max_length=256, serialize=False))]
    return migrations.CreateModel(name, fields, dict(OPTIONS))


class Migration(migrations.Migration):
    """A later revision of the tables comes with a migration of its own: `GateTables(that_revision, the_one_before)`."""

    initial = True
    operations = (
        GateTables("r1"),
        OnceTables(),
        shown("Pool", "sku"),
        shown("Order", "order_id"),
        shown("HeldKey", "key"),
    )
