"""Celery with `worker_deduplicate_successful_tasks`: a redelivered message of a task that succeeded is skipped."""

from __future__ import annotations

from tests.conformance.dedup.adapters.celery_plain import app, charge, gather, label

__all__ = ["app", "charge", "gather", "label"]

app.conf.worker_deduplicate_successful_tasks = True
