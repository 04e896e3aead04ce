"""A scheduler for `celery beat` that may run on every machine: each entry is sent once a slot.

`celery -A shop beat -S segmented.celery.beat:Scheduler`, or `app.conf.beat_scheduler = "segmented"`.
"""

from segmented.celery.beat.schedule import Schedule
from segmented.celery.beat.scheduler import Scheduler

__all__ = ["Schedule", "Scheduler"]
