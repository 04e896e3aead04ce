"""Celery workers that take submitted orders: the tasks, their settings, and the app that runs them as it stands."""

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
"""Imported when asked for, and from where."""

if not TYPE_CHECKING:  # for a type checker every other name would exist, too
    __getattr__, __dir__ = late(__name__, LATE)
