"""The app's configuration."""

from __future__ import annotations

from django.apps import AppConfig
from django.core.checks import register
from django.db.backends.signals import connection_created

from segmented.django.conf import check, close_gates


class SegmentedConfig(AppConfig):
    """The app `segmented`: checks, a migration of the gate's tables, and a read-only admin."""

    name = "segmented.django"
    label = "segmented"
    verbose_name = "Segmented"

    def ready(self) -> None:
        """Register the checks of the settings, and what closes the gates."""
        register(check)
        connection_created.connect(close_gates)
