"""Celery workers and beat as their user starts them, for tests: in a folder of their own, with these settings alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tests.support.paths import ROOT
from tests.support.workers.selling import until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

END_SECONDS: Final = 30.0
CELERY: Final = (sys.executable, "-m", "celery", "-A", "segmented.celery.app")


@dataclass(frozen=True, slots=True)
class Running:
    """A worker, or beat, and what it has said so far."""

    process: subprocess.Popen[bytes]
    said_in: Path

    def said(self) -> str:
        return self.said_in.read_text(errors="replace")

    def is_ready(self) -> bool:
        assert self.process.poll() is None, self.said()
        return " ready." in self.said()

    def end(self) -> None:
        """Ask it to end, and see that it does, in good order."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(END_SECONDS) == 0, self.said()


def clean_environment(folder: Path, settings: Mapping[str, str]) -> dict[str, str]:
    """Return our environment with these settings and no others; temporary files are in the folder."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("SEGMENTED_")}
    quiet = {"PYTHONWARNINGS": "ignore:You"}  # 're running the worker with superuser privileges, as a container does
    return {**ours, **quiet, "PYTHONPATH": str(ROOT), "TMPDIR": str(folder), **settings}


@contextmanager
def running(folder: Path, settings: Mapping[str, str], *words: str) -> Iterator[Running]:
    """Start `celery -A segmented.celery.app ...` in a folder; whatever is left of it at the end is killed."""
    home = folder / "home"
    home.mkdir(exist_ok=True)
    with (folder / "said").open("wb") as said:
        process = subprocess.Popen(
            [*CELERY, *words],
            cwd=home,
            env=clean_environment(folder, settings),
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    with process:
        try:
            yield Running(process, folder / "said")
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(END_SECONDS)


@contextmanager
def working(folder: Path, settings: Mapping[str, str], *options: str) -> Iterator[Running]:
    """Start a worker and wait until it asks for messages; it ends in good order with the block."""
    with running(folder, settings, "worker", "--loglevel", "INFO", *options) as worker:
        until(worker.is_ready)
        yield worker
        if worker.process.poll() is None:
            worker.end()


def refused(folder: Path, settings: Mapping[str, str], *words: str) -> tuple[int, str]:
    """Start something that cannot begin; return its exit code and all that it said."""
    with running(folder, settings, *words) as started:
        code = started.process.wait(END_SECONDS)
        return code, started.said()
