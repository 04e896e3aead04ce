"""Which periodic tasks beat sends, and how often."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from workers.settings import WorkerSettings

EXPIRES_MIN: Final = 5.0
"""Seconds that a message may wait for a worker: a shorter wait than that is usual, and not a reason to do nothing."""


def schedule(settings: WorkerSettings) -> dict[str, dict[str, Any]]:
    """Return Celery's `beat_schedule`; a task whose seconds are 0 is not in it.

    A message that no worker has taken before the next ones come is dropped when a worker does take it, so that workers
    that were stopped for a night do not begin with a night's worth of sweeps.
    """
    seconds = {
        "workers.sweep": settings.sweep_every,
        "workers.expire": settings.expire_every,
        "workers.relay": settings.relay_every,
        "workers.audit": settings.audit_every,
    }
    return {
        task: {
            "task": task,
            "schedule": every,
            "options": {"queue": settings.chores_queue, "expires": max(every, EXPIRES_MIN)},
        }
        for task, every in seconds.items()
        if every > 0
    }
