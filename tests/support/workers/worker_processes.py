"""Celery workers and beat as their user starts them, for tests: in a folder of their own, with these settings alone."""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.support.paths import ROOT
from tests.support.processes import END_SECONDS, Logged
from tests.support.workers.selling import until

CELERY: Final = (sys.executable, "-m", "celery", "-A", "segmented.celery.app")


class Running(Logged):
    """A worker, or beat, and what it has said so far."""

    def is_ready(self) -> bool:
        assert self.process.poll() is None, self.said()
        return " ready." in self.said()


def clean_environment(folder: Path, settings: Mapping[str, str]) -> dict[str, str]:
    """Return our environment with these settings and no others; temporary files are in the folder."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("SEGMENTED_")}
    quiet = {"PYTHONWARNINGS": "ignore:You"}  # 're running the worker with superuser privileges, as a container does
    return {**ours, **quiet, "PYTHONPATH": str(ROOT), "TMPDIR": str(folder), "XDG_RUNTIME_DIR": "", **settings}


@contextmanager
def running(folder: Path, settings: Mapping[str, str], *words: str) -> Iterator[Running]:
    """Start `celery -A segmented.celery.app ...` in a folder; whatever is left of it at the end is killed."""
    home = folder / "home"
    home.mkdir(exist_ok=True)
    (folder / "said").unlink(missing_ok=True)
    started = Running([*CELERY, *words], folder / "said", cwd=home, environment=clean_environment(folder, settings))
    try:
        yield started
    finally:
        started.kill()


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
