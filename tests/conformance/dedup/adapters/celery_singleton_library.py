"""celery-singleton: `Singleton`, unique on the order; a repeat gets the first's handle, its default."""

from __future__ import annotations

from celery_singleton import Singleton

from tests.conformance.dedup.app import add_tasks, make_app
from tests.conformance.dedup.settings import Settings

settings = Settings.from_environment()
app = make_app(settings)
app.conf.singleton_backend_url = settings.store
charge, label, gather = add_tasks(
    app, {"base": Singleton, "unique_on": "order_id", "lock_expiry": settings.lease_seconds}, {"base": Singleton}
)
