"""A scheduler for `celery beat` that may run on every machine: each entry is sent once a slot.

`celery -A shop beat -S segmented.celery.beat:Scheduler`, or `app.conf.beat_scheduler = "segmented"`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from segmented.imports import late

if TYPE_CHECKING:
    from segmented.celery.beat.schedule import Schedule as Schedule
    from segmented.celery.beat.scheduler import Scheduler as Scheduler

LATE: Final = {"Schedule": "segmented.celery.beat.schedule", "Scheduler": "segmented.celery.beat.scheduler"}
"""Names that are imported on first use, and their modules."""

if not TYPE_CHECKING:  # a type checker would otherwise accept any name
    __getattr__, __dir__, __all__ = late(__name__, LATE)
