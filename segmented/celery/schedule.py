"""Which periodic tasks beat sends, and how often."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from segmented.celery.settings import WorkerSettings

CHORES: Final = ("segmented.sweep", "segmented.expire", "segmented.relay", "segmented.audit")


def schedule(settings: WorkerSettings) -> dict[str, dict[str, Any]]:
    """Return Celery's `beat_schedule`; a task whose seconds are 0 is not in it.

    No message has an `expires`: a worker whose clock is ahead of beat's would drop every one of them, and nothing would
    find lost messages. What a night without workers has piled up is dropped by its number instead, by the tasks.
    """
    seconds = (settings.sweep_every, settings.expire_every, settings.relay_every, settings.audit_every)
    return {task: {"task": task, "schedule": every} for task, every in zip(CHORES, seconds, strict=True) if every > 0}
