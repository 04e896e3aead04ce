"""A Celery app with periodic tasks, for beats and a worker in processes of their own, some of which die or stop.

`celery -A tests.support.workers.beat_app beat` reads the environment: `BEAT_APP` is JSON of `Setup`. A process with
`fail` set meets its fate at that point, once; these are wrapped around the library, which knows nothing of them:

| point | fate |
| --- | --- |
| `killed_before` | killed after it has claimed a slot, before it publishes |
| `killed_after` | killed after it has published, before it notes that |
| `stopped_before` | stopped by SIGSTOP after it has claimed a slot, until the test lets it go on |
"""

import json
import os
import signal
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

from celery import Celery

from segmented.dedup.celery import Once, unique

NAME: Final = "BEAT_APP"


@dataclass(frozen=True)
class Setup:
    broker: str
    schedule: str
    log: str
    entries: dict[str, dict[str, Any]]
    fail: str = ""
    clock_ahead: float = 0.0
    conf: dict[str, Any] = field(default_factory=dict)

    def environment(self) -> dict[str, str]:
        return {NAME: json.dumps(asdict(self))}


class FailingCelery(Celery):
    """Dies or stops around a publication, and may have another clock."""

    beat_setup: Setup
    has_failed = False

    def now(self) -> datetime:
        return super().now() + timedelta(seconds=self.beat_setup.clock_ahead)

    def send_task(self, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401  # as Celery's own
        self._fail_at("killed_before", signal.SIGKILL)
        self._fail_at("stopped_before", signal.SIGSTOP)
        sent = super().send_task(*arguments, **options)
        self._fail_at("killed_after", signal.SIGKILL)
        return sent

    def _fail_at(self, point: str, fate: signal.Signals) -> None:
        if self.beat_setup.fail == point and not self.has_failed:
            self.has_failed = True
            os.kill(os.getpid(), fate)


def build(setup: Setup) -> Celery:
    app = FailingCelery("shop", broker=setup.broker)
    app.beat_setup = setup
    app.conf.update(
        beat_scheduler="segmented.celery.beat:Scheduler",
        beat_schedule=setup.entries,
        beat_url=setup.schedule,
        once_url=setup.schedule,
        broker_connection_retry_on_startup=True,
        **setup.conf,
    )

    @app.task(base=Once, once=unique(None, keep=3600), name="shop.note", bind=True)
    def note(task: Any) -> None:  # noqa: ANN401  # Celery's task
        with Path(setup.log).open("a", encoding="utf-8") as log:
            log.write(f"{task.request.id}\n")

    return app


if NAME in os.environ:
    app = build(Setup(**json.loads(os.environ[NAME])))
