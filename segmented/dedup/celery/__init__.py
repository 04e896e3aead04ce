"""Deduplicated Celery tasks: `@app.task(base=Once, once=OnceRule("{order_id}"))`."""

from segmented.dedup.celery import signals  # connects what workers tell
from segmented.dedup.celery.result import OnceResult
from segmented.dedup.celery.rule import OnceRule
from segmented.dedup.celery.task import Once

__all__ = ["Once", "OnceResult", "OnceRule", "signals"]
