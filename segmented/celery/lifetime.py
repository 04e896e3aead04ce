"""A worker of the ready-made app opens its connections first, keeps unreadable messages, and can end with its starter.

Start-up errors exit here: Celery lets SystemExit pass, but only logs other exceptions of its signals.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import sys
import threading
from typing import Any, Final, Protocol

from celery.concurrency import get_implementation
from celery.signals import task_rejected, task_unknown, worker_init, worker_process_init

from segmented.celery import health, telemetry
from segmented.celery.connections import connections, disconnect, open_when_there
from segmented.celery.current import EXIT_UNREACHABLE, EXIT_WRONG, end, settings
from segmented.celery.messages import keep_rejected, keep_unknown
from segmented.celery.tasks import on_outcome, step, store_with
from segmented.errors import InvalidInput, SegmentedError

GRACE_SECONDS: Final = 5.0
"""Seconds to finish the current order once the starter is gone."""
EXIT_ABANDONED: Final = 1

log = logging.getLogger(__name__)

task_unknown.connect(keep_unknown)
task_rejected.connect(keep_rejected)


class _Worker(Protocol):
    """Options of Celery's worker, which it announces before it creates its pool."""

    pool_cls: Any
    concurrency: int | str


@worker_init.connect
def begin(sender: _Worker, **_: object) -> None:
    """Open the connections before the first message is requested, so that a wrong address fails at the start."""
    if settings().ends_with_stdin:
        threading.Thread(target=_end_with_stdin, name="segmented-starter", daemon=True).start()
    kind = get_implementation(sender.pool_cls).__module__
    if kind == "celery.concurrency.gevent":
        _require_patches()
    try:
        health.check(settings())
        telemetry.begin(settings(), is_prefork=kind == "celery.concurrency.prefork")
        step()
        on_outcome()
        store_with()
        open_when_there(pool_size=_tasks_at_once(sender))
    except InvalidInput as error:
        end(error, EXIT_WRONG)
    except SegmentedError as error:
        end(error, EXIT_UNREACHABLE)
    if kind == "celery.concurrency.prefork":
        disconnect()  # it was only a test: no child may inherit the connections


@worker_process_init.connect
def begin_child(**_: object) -> None:
    """Open the connections of a pool's child. If that fails now, the first order tries again."""
    try:
        connections()
    except SegmentedError as error:
        log.warning("this process has no connections yet: %s", error)


def _tasks_at_once(worker: _Worker) -> int:
    """Return the value of the command line or the settings; `auto` means the number of processors."""
    return worker.concurrency if isinstance(worker.concurrency, int) else os.cpu_count() or settings().concurrency


def _require_patches() -> None:
    from gevent import monkey  # noqa: PLC0415  # its pool was requested, so it is installed

    if not monkey.is_module_patched("socket"):
        message = (
            "SEGMENTED_POOL is gevent: say `-P gevent` on the command line, too, or Celery prepares nothing for it"
        )
        end(InvalidInput(message), EXIT_WRONG)


def _end_with_stdin() -> None:
    """Wait until the pipe closes, also by a SIGKILL of the starter; then end, within a time limit."""
    stdin = sys.stdin.fileno()
    select.select([stdin], [], [])  # under gevent, a read alone would block all greenlets
    while os.read(stdin, 4_096):
        select.select([stdin], [], [])
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(GRACE_SECONDS)
    os._exit(EXIT_ABANDONED)
