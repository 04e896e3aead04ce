"""Instruments a worker under test: a step that simulates work, and signal handlers that log messages outside Redis.

The worker loads it as its SEGMENTED_STEP; TORTURE_LOG names the log file.
"""

import os
import random
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from celery.signals import after_task_publish, task_postrun, task_prerun, task_received, worker_ready

from segmented.celery.messages import TASK
from segmented.models.submitted import BegunOrder
from tests.torture.event_log import LOG, LogWriter, number_of

WORK_SECONDS_MAX: Final = 0.001
"""Maximum seconds of work per order: long enough for many kills to hit the middle of it."""
_writer: Final = LogWriter(Path(os.environ[LOG]))
_random: Final = random.Random()  # work times differ from run to run, like the times of kills


def work(order: BegunOrder) -> None:
    """Simulate the work of an order. Its effect in pool and database comes later."""
    time.sleep(_random.random() * WORK_SECONDS_MAX)
    _writer.write(f"s {number_of(order.order.order_id)}")


@worker_ready.connect
def note_ready(**_: object) -> None:
    """Log that the worker takes messages."""
    _writer.write(f"w {time.monotonic_ns()}")


@task_received.connect
def note_received(request: Any = None, **_: object) -> None:  # noqa: ANN401  # Celery's request has no type
    """Log a message that the worker has received."""
    if request is not None and request.name == TASK:
        _writer.write(f"r {time.monotonic_ns()} {request.id}")


@task_prerun.connect
def note_begun(task_id: str = "", task: Any = None, args: Any = (), **_: object) -> None:  # noqa: ANN401  # as above
    """Log the orders of a message whose task starts."""
    if task is not None and task.name == TASK:
        _writer.write(f"b {time.monotonic_ns()} {task_id} {_numbers(args[0]['orders'])}")


@task_postrun.connect
def note_done(task_id: str = "", task: Any = None, **_: object) -> None:  # noqa: ANN401  # as above
    """Log that a message is finished."""
    if task is not None and task.name == TASK:
        _writer.write(f"d {time.monotonic_ns()} {task_id}")


@after_task_publish.connect
def note_published(sender: str = "", headers: Any = None, body: Any = None, **_: object) -> None:  # noqa: ANN401  # as above
    """Log a message that the broker has accepted."""
    if sender == TASK:
        _writer.write(f"p {time.monotonic_ns()} {headers['id']} {_numbers(body[0][0]['orders'])}")


def _numbers(order_ids: Iterable[str]) -> str:
    return " ".join(str(number_of(name)) for name in order_ids)
