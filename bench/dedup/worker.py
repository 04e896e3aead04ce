"""The worker of the benchmark: `python -m bench.dedup.worker URL` is a `celery worker` of one process, with its app.

It ends when its standard input ends, so that it never outlives its parent.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

from bench.dedup.tasks import make_app

OPTIONS = ("--pool=solo", "--loglevel=WARNING", "--without-gossip", "--without-mingle", "--without-heartbeat")


def main(url: str) -> None:
    """Run the worker until standard input ends."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    make_app(url).worker_main(["worker", *OPTIONS])


def _end_with_parent() -> None:
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main(sys.argv[1])
