"""The app of the comparison, for a beat of either scheduler: it notes each message in a file, and may fail.

It imports nothing of this project: the other scheduler's environment has other packages. `BEAT_CASE` is JSON: `conf` of
the app, `log`, and `fail`: "stop" (SIGSTOP in the first publication) or seconds that the first publication takes.
"""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

from celery import Celery

SAID = json.loads(os.environ["BEAT_CASE"])


class Noting(Celery):
    """Notes what is sent, and by which process."""

    has_failed = False

    def send_task(self, name: str, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401  # as Celery's own
        if SAID["fail"] and not self.has_failed:
            self.has_failed = True
            if SAID["fail"] == "stop":
                os.kill(os.getpid(), signal.SIGSTOP)
            else:
                time.sleep(SAID["fail"])
        sent = super().send_task(name, *arguments, **options)
        with Path(SAID["log"]).open("a", encoding="utf-8") as log:
            log.write(f"{time.time()} {os.getpid()} {name}\n")
        return sent


app = Noting("shop")
app.conf.update(SAID["conf"])
