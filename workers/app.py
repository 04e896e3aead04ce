"""The Celery app of `celery -A workers worker` and `celery -A workers beat`, with settings from the environment."""

from __future__ import annotations

from celery import Celery

from workers.celery_settings import celery_settings
from workers.refusal import settings_or_end
from workers.schedule import schedule

settings = settings_or_end()
app = Celery("workers", include=["workers.lifetime", "workers.tasks", "workers.chores"])
app.conf.update(celery_settings(settings), beat_schedule=schedule(settings))
