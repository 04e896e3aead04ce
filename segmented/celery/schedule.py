"""Which periodic tasks beat sends, and how often."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from segmented.celery.settings import WorkerSettings


def schedule(settings: WorkerSettings) -> dict[str, dict[str, Any]]:
    """Return Celery's `beat_schedule`; a task whose seconds are 0 is not in it.

    No message has an `expires`: a worker whose clock is ahead of beat's would drop every one of them, and nothing would
    find lost messages. What a night without workers has piled up is dropped by its number instead, by the tasks.
    """
    seconds = {
        "segmented.sweep": settings.sweep_every,
        "segmented.expire": settings.expire_every,
        "segmented.relay": settings.relay_every,
        "segmented.audit": settings.audit_every,
    }
    return {
        task: {
            "task": task,
            "schedule": every,
            "options": {"queue": settings.chores_queue},
        }
        for task, every in seconds.items()
        if every > 0
    }
