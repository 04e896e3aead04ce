"""A worker takes the submitted orders of pools that name its queue and its step, or name none.

A pool of other workers is left alone: its orders stay in its outbox, for their own sweep.
"""

from __future__ import annotations

import logging
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from segmented.celery.current import settings
from segmented.celery.messages import TASK
from segmented.celery.publishing import queue_of
from segmented.models.assignments import Assignment
from segmented.models.shards import SHARD_MARK

if TYPE_CHECKING:
    from celery import Celery

    from segmented.errors import AssignedElsewhere

log = logging.getLogger(__name__)
SAID_MAX: Final = 10_000
APPS_MAX: Final = 16
_said: Final[set[tuple[str, str, str]]] = set()


def assignment_of(app: Celery) -> Assignment:
    """Return the queue that the app sends orders to, and the step of this worker."""
    return _assignment(app, settings().step)


@lru_cache(APPS_MAX)
def _assignment(app: Celery, step: str | None) -> Assignment:
    """Return the same, remembered: each message asks, and the routes of a running app do not change."""
    return Assignment(queue_of(app, TASK), step)


def refuse(error: AssignedElsewhere) -> None:
    """Log that a pool's orders are left to other workers: once for each pool, and again after a change of its names."""
    pool = (error.sku.partition(SHARD_MARK)[0], error.queue, error.step)
    if pool in _said:
        return
    if len(_said) >= SAID_MAX:
        _said.clear()
    _said.add(pool)
    log.error("%s", error)
