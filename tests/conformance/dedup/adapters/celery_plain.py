"""Celery without a library, and without its own check of redelivered messages."""

from __future__ import annotations

from tests.conformance.dedup.app import add_tasks, make_app
from tests.conformance.dedup.settings import Settings

app = make_app(Settings.from_environment())
charge, label, gather = add_tasks(app, {}, {})
