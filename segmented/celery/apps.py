"""Celery apps that take submitted orders: one of the user's own with our tasks in it, or one that is only ours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from celery import Celery

from segmented.celery import current
from segmented.celery.celery_settings import celery_settings
from segmented.celery.schedule import schedule

if TYPE_CHECKING:
    from segmented.celery.settings import WorkerSettings

TASK_MODULES: Final = ("segmented.celery.tasks", "segmented.celery.chores", "segmented.celery.closing")
LIFETIME: Final = "segmented.celery.lifetime"


def add_tasks(app: Celery, settings: WorkerSettings | None = None) -> None:
    """Add the tasks that finish submitted orders to an app, and the periodic ones to its beat schedule.

    The app keeps its broker, queues, routes, serializer and worker settings: `task_routes` decides where messages go,
    the default queue takes what no route names. The tasks set for themselves that they are acknowledged late and
    store no result. `settings` says where stock and order database are; without it the variables SEGMENTED_URL,
    SEGMENTED_DATABASE and the others are read when the app is configured.

    Raises InvalidInput when the environment has a wrong value; the `celery` command ends with the sentence instead.
    """
    if settings is not None:
        current.use(settings)
    if getattr(app, "configured", False):  # celery-types does not know it
        _add(app.conf)
    app.on_after_configure.connect(_add, weak=False)  # again whenever a configuration is loaded


def make_app(name: str) -> Celery:
    """Return an app that does nothing but take orders, with all its settings from the environment.

    Its workers open their connections before they take a message, end with one sentence if they cannot, and keep
    messages that cannot be read.
    """
    settings = current.settings()
    app = Celery(name, include=[LIFETIME])
    app.conf.update(celery_settings(settings))
    add_tasks(app)
    return app


def _add(source: Any, **_: object) -> None:  # noqa: ANN401  # Celery's settings, untyped
    """Complete the app's configuration; `source` is what was just loaded."""
    source.include = [*source.include, *(module for module in TASK_MODULES if module not in source.include)]
    source.beat_schedule = {**schedule(current.settings()), **source.beat_schedule}
