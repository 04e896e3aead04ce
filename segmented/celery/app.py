"""The ready-made Celery app (`celery -A segmented.celery.app worker`), configured by the environment."""

from __future__ import annotations

from segmented.celery.apps import make_app

app = make_app("segmented")
