"""Celery apps that process submitted orders: the user's own app with these tasks added, or a ready-made one.

The ready-made one touches a file whose time says that its worker goes on, for a liveness probe.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Final

from celery import Celery, bootsteps
from celery.worker import state

from segmented.celery import current
from segmented.celery.celery_settings import celery_settings, schedule
from segmented.celery.current import ending_a_command
from segmented.celery.settings import WorkerSettings, check_apart
from segmented.errors import InvalidInput
from segmented.files import check_writable

TASK_MODULES: Final = ("segmented.celery.tasks", "segmented.celery.chores")
LIFETIME: Final = "segmented.celery.lifetime"
EVERY: Final = 1.0
"""Seconds between two touches of the health file."""


def add_tasks(app: Celery, settings: WorkerSettings | None = None) -> None:
    """Add the tasks that finish submitted orders to an app, and the periodic tasks to its beat schedule.

    The app keeps its broker, queues, routes, serializer and worker settings: `task_routes` decides where messages go,
    and the default queue takes the rest. The tasks themselves set late acknowledgement and store no result. `settings`
    names the stock and the order database; without it the variables SEGMENTED_URL, SEGMENTED_DATABASE and the others
    are read when the app is configured.

    Raises InvalidInput if the environment has a wrong value or the app's broker is on the stock's server; the `celery`
    command ends with the sentence instead.
    """
    if not isinstance(app, Celery):
        raise InvalidInput(f"add_tasks takes a Celery app, not {type(app).__name__}")
    if settings is not None:
        current.use(settings)
    if getattr(app, "configured", False):  # celery-types lacks it
        _add(app.conf)
    app.on_after_configure.connect(_add, weak=False)  # again whenever a configuration is loaded


def make_app(name: str) -> Celery:
    """Return an app that only processes orders, with all its settings from the environment.

    Its workers open their connections before they take a message, exit with one sentence if they cannot, and keep
    messages that cannot be read.
    """
    settings = current.settings()
    app = Celery(name, include=[LIFETIME])
    with ending_a_command():
        app.conf.update(celery_settings(settings))
    add_tasks(app)
    app.steps["worker"].add(HealthFile)
    return app


def check_broker(source: Any) -> None:  # noqa: ANN401  # as below
    """Raise InvalidInput if the broker of an app's configuration is not separate from the stock."""
    for broker in filter(None, (source.broker_read_url, source.broker_write_url)):
        urls = broker if isinstance(broker, str) else ";".join(broker)
        check_apart(current.settings(), urls, "the broker of the Celery app")


def _add(source: Any, **_: object) -> None:  # noqa: ANN401  # Celery's settings, untyped
    """Complete the app's configuration; `source` is the configuration that was just loaded."""
    source.include = [*source.include, *(module for module in TASK_MODULES if module not in source.include)]
    source.beat_schedule = {**schedule(current.settings()), **source.beat_schedule}
    with ending_a_command():
        check_broker(source)


def check_health_file(said: WorkerSettings) -> None:
    """Raise InvalidInput if the health file cannot be written."""
    if said.health_path is not None:
        check_writable(Path(said.health_path), "SEGMENTED_HEALTH_PATH")


class HealthFile(bootsteps.StartStopStep):
    """The step of Celery's worker that touches the file of `SEGMENTED_HEALTH_PATH` every second.

    It stops doing so while a message has been in the worker's hands for longer than the visibility timeout: then its
    step hangs, or the process of the pool that has it does not run. If the main process itself stands still, nobody
    touches the file either.
    """

    requires = ("celery.worker.components:Timer",)

    _repeated: Any = None

    def start(self, parent: Any) -> None:  # noqa: ANN401  # Celery's worker, untyped
        """Touch the file from now on, if the settings name one."""
        said = current.settings()
        self._since: dict[str, float] = {}
        if said.health_path is not None:
            file, longest = Path(said.health_path), said.visibility_timeout
            self._look(file, longest)
            self._repeated = parent.timer.call_repeatedly(EVERY, self._look, (file, longest))

    def stop(self, _: Any) -> None:  # noqa: ANN401  # as above
        """Let the file age while the messages in hand are finished."""
        if self._repeated is not None:
            self._repeated.cancel()

    def _look(self, file: Path, longest: float) -> None:
        """Touch the file unless a message has been here too long. Messages with a time in the future do not count."""
        now = time.monotonic()
        self._since = {request.id: self._since.get(request.id, now) for request in tuple(state.reserved_requests)}
        if all(now - since <= longest for since in self._since.values()):
            file.touch()
