"""The table of outcomes."""

from __future__ import annotations

from django.db import migrations

from segmented.django.gate_tables import GateTables


class Migration(migrations.Migration):
    """Alembic's revision 0006."""

    dependencies = (("segmented", "0001_gate"),)
    operations = (GateTables("0006", "0005"),)
