"""The app of `celery -A workers worker`: start it as it is, or copy this file and add tasks of your own."""

from __future__ import annotations

from segmented.celery import make_app

app = make_app("workers")
