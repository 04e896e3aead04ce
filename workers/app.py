"""The Celery app, as `celery -A workers.app worker` finds it. Settings come from the environment: see `settings`."""

from __future__ import annotations

from celery import Celery

from workers.celery_settings import celery_settings
from workers.settings import WorkerSettings

settings = WorkerSettings()
app = Celery("workers", include=["workers.lifetime", "workers.tasks"])
app.conf.update(celery_settings(settings))
