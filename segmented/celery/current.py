"""The worker settings of this process: those given to `add_tasks`, or else those of the environment.

A worker whose settings are wrong exits with one sentence on standard error, and an exit code.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NoReturn

from segmented.celery.settings import WorkerSettings
from segmented.errors import InvalidInput, SegmentedError
from segmented.process import tell

EXIT_WRONG: Final = 2
"""The configuration is wrong: a restart cannot help."""
EXIT_UNREACHABLE: Final = 1
"""A server did not answer: a later start may succeed."""
_in_use: Final[list[WorkerSettings]] = []


def settings() -> WorkerSettings:
    """Return the current settings. The first call reads the environment, unless settings were given before."""
    if not _in_use:
        _in_use.append(settings_or_end())
    return _in_use[0]


def use(given: WorkerSettings | None) -> None:
    """Use these settings from now on; with None, read the environment again when they are needed."""
    _in_use[:] = [] if given is None else [given]


def settings_or_end() -> WorkerSettings:
    """Return the settings of the environment; wrong ones end a running command line.

    Other programs get InvalidInput. Otherwise Celery's own commands would show the user a traceback.
    """
    with ending_a_command():
        return WorkerSettings()


@contextmanager
def ending_a_command() -> Iterator[None]:
    """End a running command line with the error's sentence; other programs get the error."""
    try:
        yield
    except InvalidInput as error:
        if not _is_celery_command():
            raise
        end(error, EXIT_WRONG)


def end(reason: SegmentedError, exit_code: int) -> NoReturn:
    """Print the reason in one sentence, and exit. Celery lets SystemExit pass, but only logs other exceptions."""
    tell(str(reason))  # before Celery has set up its log
    raise SystemExit(exit_code) from None


def _is_celery_command() -> bool:
    """Return whether the command `celery` is loading the app: it then has a click context below its own group."""
    commands = sys.modules.get("celery.bin.celery")
    if commands is None:
        return False
    import click  # noqa: PLC0415  # either Celery has loaded it, or there is no context

    context = click.get_current_context(silent=True)
    return context is not None and context.find_root().command is commands.celery
