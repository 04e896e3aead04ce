"""Ours: `Once`, keyed by the order, whose answer is kept for an hour."""

from __future__ import annotations

from typing import Final

from segmented.dedup.celery import Once, unique
from tests.conformance.dedup.app import add_tasks, make_app
from tests.conformance.dedup.settings import Settings

LEASE_SECONDS: Final = 5

settings = Settings.from_environment()
app = make_app(settings)
app.conf.once_url = settings.store
app.conf.once_namespace = "compared"
app.conf.once_when_down = settings.store_down

RULE: Final = unique(
    "{order_id}",
    keep=3600,
    ttl=settings.lease_seconds or LEASE_SECONDS,
    resend_after=2,
)
charge, label, gather = add_tasks(app, {"base": Once, "once": RULE}, {"base": Once, "once": "{a}:{b}"})
