"""The worker of the benchmark: `python -m bench.dedup.worker URL` is a `celery worker` of one process, with its app.

It ends when its standard input does, so that it never outlives who started it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

from bench.dedup.tasks import make_app

OPTIONS = ("--pool=solo", "--loglevel=WARNING", "--without-gossip", "--without-mingle", "--without-heartbeat")


def main(url: str) -> None:
    """Work until told to end."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    make_app(url).worker_main(["worker", *OPTIONS])


def _end_with_parent() -> None:
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main(sys.argv[1])
