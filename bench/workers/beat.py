"""Beat for the benchmark: `python -m bench.workers.beat`. It ends when its standard input does, and outlives nobody."""

from __future__ import annotations

import os
import signal
import sys
import threading

from bench.workers.app import app


def main() -> None:
    """Send what is due until told to end."""
    threading.Thread(target=_end_with_starter, daemon=True).start()
    app.Beat(loglevel="WARNING", pidfile=None).run()


def _end_with_starter() -> None:
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
