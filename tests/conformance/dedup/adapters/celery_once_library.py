"""celery-once: `QueueOnce`, keyed by the order; a repeat is an answer (`graceful`), as most of its users have it."""

from __future__ import annotations

from celery_once import QueueOnce

from tests.conformance.dedup.app import add_tasks, make_app
from tests.conformance.dedup.settings import Settings

settings = Settings.from_environment()
app = make_app(settings)
app.conf.ONCE = {"backend": "celery_once.backends.Redis", "settings": {"url": settings.store}}
lease = {} if settings.lease_seconds is None else {"timeout": settings.lease_seconds}
charge, label, gather = add_tasks(
    app,
    {"base": QueueOnce, "once": {"graceful": True, "keys": ["order_id"], **lease}},
    {"base": QueueOnce, "once": {"graceful": True}},
)
