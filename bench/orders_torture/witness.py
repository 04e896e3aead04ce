"""Inside a worker that is tortured: the step that stands for the work, and what goes into the log outside Redis.

Loaded by the worker as its SEGMENTED_STEP; the file to append to is named by TORTURE_LOG.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from celery.signals import after_task_publish, task_postrun, task_prerun, task_received, worker_ready

from bench.orders_torture.lines import LOG, Writer, number_of
from segmented.celery.envelopes import TASK

if TYPE_CHECKING:
    from collections.abc import Iterable

    from segmented.models.submitted import BegunOrder

WORK_SECONDS_MAX: Final = 0.001
"""What the work of one order takes at most: long enough for many a kill to come in the middle of it."""
_writer: Final = Writer(Path(os.environ[LOG]))
_random: Final = random.Random()  # how long the work takes differs from run to run, as when the kills come


def work(order: BegunOrder) -> None:
    """Do the work of an order. Its effect, in pool and database, comes after it."""
    time.sleep(_random.random() * WORK_SECONDS_MAX)
    _writer.write(f"s {number_of(order.order.order_id)}")


@worker_ready.connect
def note_ready(**_: object) -> None:
    """Say that messages are taken now."""
    _writer.write(f"w {time.monotonic_ns()}")


@task_received.connect
def note_received(request: Any = None, **_: object) -> None:  # noqa: ANN401  # Celery's request has no type
    """Note a message that has left the broker."""
    if request is not None and request.name == TASK:
        _writer.write(f"r {time.monotonic_ns()} {request.id}")


@task_prerun.connect
def note_begun(task_id: str = "", task: Any = None, args: Any = (), **_: object) -> None:  # noqa: ANN401  # as above
    """Note the orders of a message that is begun."""
    if task is not None and task.name == TASK:
        _writer.write(f"b {time.monotonic_ns()} {task_id} {_numbers(args[0]['orders'])}")


@task_postrun.connect
def note_done(task_id: str = "", task: Any = None, **_: object) -> None:  # noqa: ANN401  # as above
    """Note that a message is done with."""
    if task is not None and task.name == TASK:
        _writer.write(f"d {time.monotonic_ns()} {task_id}")


@after_task_publish.connect
def note_published(sender: str = "", headers: Any = None, body: Any = None, **_: object) -> None:  # noqa: ANN401  # as above
    """Note a message that the broker has taken."""
    if sender == TASK:
        _writer.write(f"p {time.monotonic_ns()} {headers['id']} {_numbers(body[0][0]['orders'])}")


def _numbers(order_ids: Iterable[str]) -> str:
    return " ".join(str(number_of(name)) for name in order_ids)
