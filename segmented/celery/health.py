"""A file whose time says that a worker goes on, for a liveness probe: `SEGMENTED_HEALTH_PATH`.

The main process of the worker touches it every second, unless a message has been in its hands for longer than the
visibility timeout: then its step hangs, or the process of the pool that has it does not run. If the main process itself
stands still, nobody touches the file either.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from celery import bootsteps
from celery.worker import state

from segmented.celery.current import settings
from segmented.files import check_writable

if TYPE_CHECKING:
    from segmented.celery.settings import WorkerSettings

EVERY: Final = 1.0
"""Seconds between two touches."""


def check(said: WorkerSettings) -> None:
    """Raise InvalidInput if the health file cannot be written."""
    if said.health_path is not None:
        check_writable(Path(said.health_path), "SEGMENTED_HEALTH_PATH")


class HealthFile(bootsteps.StartStopStep):
    """The step of Celery's worker that touches the file."""

    requires = ("celery.worker.components:Timer",)

    _repeated: Any = None

    def start(self, parent: Any) -> None:  # noqa: ANN401  # Celery's worker, untyped
        """Touch the file from now on, if the settings name one."""
        said = settings()
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
