"""How a worker ends that cannot begin: one sentence on standard error, and an exit code."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NoReturn

from segmented.celery.settings import WorkerSettings
from segmented.errors import InvalidInput, SegmentedError

if TYPE_CHECKING:
    from collections.abc import Iterator

EXIT_WRONG: Final = 2
"""What was said is wrong: to start again is no use."""
EXIT_UNREACHABLE: Final = 1
"""A server did not come: another time may cure it."""


def settings_or_end() -> WorkerSettings:
    """Return the settings of the environment; where a command line is being run, wrong ones end it.

    In any other program InvalidInput is raised. Celery would show its own commands' user a traceback.
    """
    with ending_a_command():
        return WorkerSettings()


@contextmanager
def ending_a_command() -> Iterator[None]:
    """Where a command line is being run, let what is wrong end it with its sentence; else it is raised."""
    try:
        yield
    except InvalidInput as error:
        if not _is_celery_command():
            raise
        end(error, EXIT_WRONG)


def end(reason: SegmentedError, exit_code: int) -> NoReturn:
    """Say why, in one sentence, and end. Celery lets SystemExit pass where it only logs other exceptions."""
    print(f"segmented: {reason}", file=sys.stderr, flush=True)  # noqa: T201  # before Celery has set up its log
    raise SystemExit(exit_code) from None


def _is_celery_command() -> bool:
    """Is the command `celery` loading the app? It has a click context then, below its own group of commands."""
    commands = sys.modules.get("celery.bin.celery")
    if commands is None:
        return False
    import click  # noqa: PLC0415  # Celery has loaded it already, or there is nothing to ask

    context = click.get_current_context(silent=True)
    return context is not None and context.find_root().command is commands.celery
