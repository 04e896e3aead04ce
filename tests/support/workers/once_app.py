"""A Celery app of deduplicated tasks, for workers and publishers in processes of their own, some of which die.

`celery -A tests.support.workers.once_app worker` reads the environment: `ONCE_APP` is JSON of `Setup`. A process with
`fail` set ends with its whole group, by SIGKILL, at that point; these are wrapped around the library, which knows
nothing of them:

| point | where |
| --- | --- |
| `after_claim` | a publisher has the key, and has sent nothing |
| `after_publish` | a message was sent, and its publisher knows nothing of it |
| `after_retry_publish` | the next attempt was sent; this one is not put off, stored or acknowledged |
| `in_body` | the run has begun, and the body has noted that it works |
| `after_finish` | the outcome is kept; Celery has neither stored the result nor acknowledged the message |
| `before_ack` | the result is stored; the message is not acknowledged |
"""

import time
from types import ModuleType
from typing import Any

import kombu.transport.redis
from celery import Celery
from celery.signals import task_postrun

from segmented.dedup.celery import Once, execution
from tests.support.workers.once_bodies import add_tasks
from tests.support.workers.once_steps import Setup


class FailingCelery(Celery):
    """Dies before or after it has sent a message."""

    once_setup: Setup

    def send_task(self, name: str, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401  # as Celery's own
        is_retry = bool(options.get("retries"))
        if not is_retry:
            self.once_setup.fail_at("after_claim")
        sent = super().send_task(name, *arguments, **options)
        self.once_setup.fail_at("after_retry_publish" if is_retry else "after_publish")
        return sent


class Failing(Once):
    """Dies after the outcome was kept."""

    abstract = True
    app: Any

    def __call__(self, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401  # as Celery's own
        try:
            return super().__call__(*arguments, **options)
        finally:
            self.app.once_setup.fail_at("after_finish")


def build(setup: Setup) -> FailingCelery:
    """Make an app with all tasks."""
    made = FailingCelery("once", broker=setup.broker, backend=setup.backend, set_as_current=False)
    made.once_setup = setup
    made.conf.update(
        once_url=setup.records,
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        task_publish_retry=False,
        worker_prefetch_multiplier=1,
        worker_cancel_long_running_tasks_on_connection_loss=True,
        broker_connection_retry_on_startup=True,
        broker_transport_options={
            "visibility_timeout": setup.visibility,
            "unacked_restore_interval": 0.2,
            "unacked_restore_throttle": 1,
            "polling_interval": 0.2,
            "max_retries": 1,
            "interval_start": 0,
            "interval_step": 0.1,
        },
    )
    made.conf.update(setup.conf)
    add_tasks(made, Failing, setup.lease)
    return made


def set_apart(setup: Setup) -> None:
    """Change the clock of this process, and its patience with records that are away."""
    transport: ModuleType = kombu.transport.redis
    if setup.clock_ahead:
        transport.time = lambda: time.time() + setup.clock_ahead  # type: ignore[attr-defined]  # what it imported
    execution.DOWN_SECONDS = setup.down_seconds  # type: ignore[misc]  # it is final for everybody else


app = build(Setup.here())
set_apart(app.once_setup)


@task_postrun.connect
def _die_before_acknowledging(**_: object) -> None:
    app.once_setup.fail_at("before_ack")
