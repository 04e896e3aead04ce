"""Deduplicated Celery tasks: `@app.task(base=Once, once=OnceRule("{order_id}"))`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from segmented.imports import from_modules, late

if TYPE_CHECKING:
    from segmented.dedup.celery import signals
    from segmented.dedup.celery.result import OnceResult
    from segmented.dedup.celery.rule import OnceRule
    from segmented.dedup.celery.task import Once

__all__ = ["Once", "OnceResult", "OnceRule", "signals"]

LATE: Final = from_modules(
    {
        "segmented.dedup.celery.signals": "Once",  # the task needs these signals
        "segmented.dedup.celery.result": "OnceResult",
        "segmented.dedup.celery.rule": "OnceRule",
    }
)
"""Names that are imported on first use, and their modules."""

if not TYPE_CHECKING:  # otherwise a type checker would accept any name
    __getattr__, __dir__ = late(__name__, LATE)
