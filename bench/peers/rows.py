"""Runs rows of the suite, each in its own process in the environment of its lock."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from segmented.errors import InvalidInput, SegmentedError

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT: Final = Path(__file__).resolve().parents[2]
MODULE: Final = "tests.contract.locks.run_row"
ROW_SECONDS: Final = 60.0
"""Seconds after which a hanging lock is stopped and has failed the row."""


def inventory(python: Path) -> dict[str, Any]:
    """Return all rows and this library's own contenders. Raises InvalidInput outside a working copy."""
    if not (ROOT / Path(*MODULE.split("."))).with_suffix(".py").is_file():
        message = f"the suite is not here: run this from a working copy of the repository, not in {ROOT}"
        raise InvalidInput(message)
    found: dict[str, Any] = _said(python, (), ROW_SECONDS) or {}
    return found


def run_row(
    python: Path, contender: str, row_id: str, urls: Sequence[str], *, seconds_max: float = ROW_SECONDS
) -> dict[str, Any] | None:
    """Run a row, and return the process's result, or None if it had to be stopped."""
    return _said(python, (contender, row_id, *urls), seconds_max)


def _said(python: Path, arguments: Sequence[str], seconds: float) -> dict[str, Any] | None:
    child = subprocess.Popen(  # noqa: S603  # our own module
        [str(python), "-m", MODULE, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        said, complaints = child.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
    if child.returncode != 0:
        last_words = (complaints.strip().splitlines() or [f"exit code {child.returncode}"])[-1]
        message = f"{' '.join(arguments[:2])} could not be run: {last_words}"
        raise SegmentedError(message)
    found: dict[str, Any] = json.loads(said.splitlines()[-1])
    return found
