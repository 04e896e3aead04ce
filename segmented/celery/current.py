"""The worker settings of this process: those given to `add_tasks`, or else those of the environment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from segmented.celery.refusal import settings_or_end

if TYPE_CHECKING:
    from segmented.celery.settings import WorkerSettings

_in_use: Final[list[WorkerSettings]] = []


def settings() -> WorkerSettings:
    """Return the current settings. The first call reads the environment, unless settings were given before."""
    if not _in_use:
        _in_use.append(settings_or_end())
    return _in_use[0]


def use(given: WorkerSettings | None) -> None:
    """Use these settings from now on; with None, read the environment again when they are needed."""
    _in_use[:] = [] if given is None else [given]
