"""The Celery app that runs as it stands (`celery -A segmented.celery.app worker`), configured by the environment."""

from __future__ import annotations

from celery import Celery

from segmented.celery.celery_settings import celery_settings
from segmented.celery.refusal import settings_or_end
from segmented.celery.schedule import schedule

settings = settings_or_end()
app = Celery("segmented", include=["segmented.celery.lifetime", "segmented.celery.tasks", "segmented.celery.chores"])
app.conf.update(celery_settings(settings), beat_schedule=schedule(settings))
