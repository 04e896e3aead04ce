"""Celery workers that process submitted orders: the tasks, their settings, and a ready-made app that runs them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from segmented.imports import late

if TYPE_CHECKING:
    from segmented.celery.apps import add_tasks, make_app
    from segmented.celery.publishing import publisher
    from segmented.celery.settings import WorkerSettings

__all__ = ["WorkerSettings", "add_tasks", "make_app", "publisher"]

LATE: Final = {
    "WorkerSettings": "segmented.celery.settings",
    "add_tasks": "segmented.celery.apps",
    "make_app": "segmented.celery.apps",
    "publisher": "segmented.celery.publishing",
}
"""Names that are imported on first use, and their modules."""

if not TYPE_CHECKING:  # otherwise a type checker would accept any name
    __getattr__, __dir__ = late(__name__, LATE)
