"""When a worker begins and ends: its connections are closed at its end, and it may end with whoever started it."""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Final

from celery.signals import worker_init, worker_process_shutdown, worker_shutdown

from workers.app import settings
from workers.connections import disconnect

GRACE_SECONDS: Final = 5.0
"""For the order in hand, once the starter is gone."""
EXIT_ABANDONED: Final = 1


@worker_init.connect
def follow_starter(**_: object) -> None:
    """Watch the pipe that the starter holds open, if there is one."""
    if settings.ends_with_stdin:
        threading.Thread(target=_end_with_stdin, name="segmented-starter", daemon=True).start()


@worker_process_shutdown.connect
@worker_shutdown.connect
def close_connections(**_: object) -> None:
    """Close what this process opened: a pool's child at its own end, any other worker at the worker's."""
    disconnect()


def _end_with_stdin() -> None:
    """Block until the pipe ends, which a SIGKILL of the starter brings about too; then end, within bounds."""
    while os.read(sys.stdin.fileno(), 4_096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(GRACE_SECONDS)
    os._exit(EXIT_ABANDONED)
