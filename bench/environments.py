"""Virtual environments of other libraries, created from pinned requirements, and again when those change."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from segmented.errors import SegmentedError

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT: Final = Path(__file__).parents[1]
MAKE_SECONDS: Final = 300
STAMP: Final = "made-from"


@dataclass(frozen=True, slots=True)
class Environment:
    """A virtual environment with pinned packages."""

    name: str
    folder: Path
    """Folder of its file of requirements."""

    @property
    def requirements(self) -> Path:
        """Return the file of pinned requirements."""
        return self.folder / f"requirements-{self.name}.txt"


def interpreter_of(peer: Environment, folder: Path) -> Path:
    """Return the interpreter of the peer's environment under `folder`. Raises SegmentedError if creating it fails."""
    environment = folder / peer.name
    python = environment / "bin" / "python"
    if is_made(peer, folder):
        return python
    shutil.rmtree(environment, ignore_errors=True)
    _run(peer, [sys.executable, "-m", "venv", str(environment)])
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _run(peer, [*pip, "--no-deps", "--requirement", str(peer.requirements)])
    (environment / STAMP).write_text(_digest(peer), encoding="utf-8")
    return python


def is_made(peer: Environment, folder: Path) -> bool:
    """Return whether its environment exists with the present requirements."""
    stamp = folder / peer.name / STAMP
    return stamp.is_file() and stamp.read_text(encoding="utf-8") == _digest(peer)


def _digest(peer: Environment) -> str:
    return hashlib.sha256(peer.requirements.read_bytes() + sys.version.encode()).hexdigest()


def _run(peer: Environment, command: Sequence[str]) -> None:
    plain = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=MAKE_SECONDS, env=plain)  # noqa: S603  # our own
    except subprocess.CalledProcessError as error:
        message = f"the environment of {peer.name} cannot be made: {last_line(error.stderr, 'no reason given')}"
        raise SegmentedError(message) from error
    except subprocess.TimeoutExpired as error:
        raise SegmentedError(f"the environment of {peer.name} was not made within {MAKE_SECONDS} s") from error


def last_line(said: str, otherwise: str) -> str:
    """Return the last line of a process's output, which says why it failed."""
    return (said.strip().splitlines() or [otherwise])[-1].strip()
