"""Celery beat for the benchmark: `python -m bench.workers.beat`. It ends when its standard input ends."""

from __future__ import annotations

import os
import signal
import sys
import threading

from bench.workers.app import app


def main() -> None:
    """Send due tasks until standard input ends."""
    threading.Thread(target=_end_with_starter, daemon=True).start()
    app.Beat(loglevel="WARNING", pidfile=None).run()


def _end_with_starter() -> None:
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
