"""Which processes still run, for tests that what they started is gone."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

import psutil

if TYPE_CHECKING:
    from collections.abc import Iterable

LOOK_SECONDS: Final = 0.02


def alive(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Return those that still run. One that only waits to be buried does not: some systems bury once a second."""
    return [process for process in processes if _is_alive(process)]


def outlasting(processes: Iterable[psutil.Process], seconds: float) -> list[psutil.Process]:
    """Wait until none of them runs, or the time is up; return those that still do."""
    deadline = time.monotonic() + seconds
    left = alive(processes)
    while left and time.monotonic() < deadline:
        threading.Event().wait(LOOK_SECONDS)
        left = alive(left)
    return left


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
