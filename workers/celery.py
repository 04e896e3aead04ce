"""The app of `celery -A workers worker`: start it unchanged, or copy this file and add your own tasks."""

from __future__ import annotations

from segmented.celery import make_app

app = make_app("workers")
