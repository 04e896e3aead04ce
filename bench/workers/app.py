"""The app of the benchmark's workers: the workers' own, with all of its settings, and one task that does nothing.

So the empty task and the orders are worked off by the very same processes.
"""

from __future__ import annotations

import os
from pathlib import Path

from celery.signals import worker_ready

from bench.workers.app_names import EMPTY, READY
from segmented.celery.app import app

__all__ = ["app"]


@app.task(name=EMPTY)
def empty() -> None:
    """Do nothing."""


@worker_ready.connect
def tell(**_: object) -> None:
    """Say that messages are taken now."""
    if READY in os.environ:
        Path(os.environ[READY]).touch()
