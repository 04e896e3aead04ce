"""Where `celery -A segmented.celery.app` looks for the app."""

from __future__ import annotations

from segmented.celery.app import app

__all__ = ["app"]
