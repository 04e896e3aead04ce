"""Celery workers that process submitted orders: the tasks, their settings, and a ready-made app that runs them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from segmented.imports import late

if TYPE_CHECKING:
    from segmented.celery.apps import add_tasks as add_tasks, make_app as make_app
    from segmented.celery.messages import publisher as publisher
    from segmented.celery.settings import WorkerSettings as WorkerSettings

LATE: Final = {
    "WorkerSettings": "segmented.celery.settings",
    "add_tasks": "segmented.celery.apps",
    "make_app": "segmented.celery.apps",
    "publisher": "segmented.celery.messages",
}
"""Names that are imported on first use, and their modules."""

if not TYPE_CHECKING:  # a type checker would otherwise accept any name
    __getattr__, __dir__, __all__ = late(__name__, LATE)
