"""A process that publishes a deduplicated task, once or from a crowd of processes at one moment.

`python -m tests.support.workers.once_publisher <processes> <task> <argument>...`; see `once_app` for its environment.
"""

from __future__ import annotations

import os
import sys
import time

from tests.support.workers.once_app import app

app.loader.import_default_modules()  # those of the setting `imports`

LEAD_SECONDS = 0.5


def main(crowd: int, task: str, *arguments: str) -> None:
    """Publish; with a crowd, each from a process of its own, at a moment that all of them know."""
    moment = time.monotonic() + LEAD_SECONDS
    for _ in range(crowd - 1):
        if not os.fork():
            _publish(moment, task, arguments)
            os._exit(0)
    _publish(moment if crowd > 1 else 0.0, task, arguments)
    for _ in range(crowd - 1):
        os.wait()


def _publish(moment: float, task: str, arguments: tuple[str, ...]) -> None:
    time.sleep(max(0.0, moment - time.monotonic()))
    result = app.tasks[task].delay(*arguments)
    os.write(sys.stdout.fileno(), f"{result.id}\n".encode())


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
