"""Celery's beat for the library's app, which ends with its parent: `python -m bench.beat`."""

from __future__ import annotations

import os
import sys
import threading

from segmented.celery.app import app


def _end_with_stdin() -> None:
    while os.read(sys.stdin.fileno(), 4_096):
        pass
    os._exit(0)


if __name__ == "__main__":
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    app.start(argv=["beat", "--loglevel", "WARNING", "--pidfile="])
