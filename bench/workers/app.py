"""The app of the benchmark's workers: the library's app with all its settings, and one task that does nothing.

So the same processes run the empty task and the orders.
"""

from __future__ import annotations

import os
from pathlib import Path

from celery.signals import worker_ready

from bench.workers.processes import EMPTY, READY
from segmented.celery.app import app

__all__ = ["app"]


@app.task(name=EMPTY)
def empty() -> None:
    """Do nothing."""


@worker_ready.connect
def tell(**_: object) -> None:
    """Create the file that shows that the worker takes messages."""
    if READY in os.environ:
        Path(os.environ[READY]).touch()
