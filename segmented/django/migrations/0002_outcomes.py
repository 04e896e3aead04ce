"""The reason of a declined order, and how far the outcomes of each sale were told."""

from __future__ import annotations

from typing import ClassVar

from django.db import migrations

from segmented.django.gate_tables import GateTables


class Migration(migrations.Migration):
    """The revision 0006 of the tables."""

    dependencies: ClassVar = [("segmented", "0001_gate")]
    operations: ClassVar = [GateTables("0006", "0005")]
