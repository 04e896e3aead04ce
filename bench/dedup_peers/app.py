"""The Celery app that every contender starts from; it favours none of them."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from celery import Celery
from celery.signals import task_postrun, worker_ready

from bench.dedup_peers.bodies import hold_after_return
from bench.dedup_peers.journal import note
from bench.dedup_peers.settings import CHARGE

if TYPE_CHECKING:
    from bench.dedup_peers.settings import Settings

OWNER_CHECK_SECONDS: Final = 1.0


def make_app(settings: Settings) -> Celery:
    """Create the app, with the settings that Celery recommends for tasks that must not be lost."""
    app = Celery("dedup", broker=settings.broker, backend=settings.results)
    app.conf.update(
        broker_transport_options={
            "visibility_timeout": settings.visibility_seconds,
            "unacked_restore_interval": 1,
            "unacked_restore_throttle": 1,
            "socket_connect_timeout": 2,
        },
        visibility_timeout=settings.visibility_seconds,
        task_acks_late=settings.acks_late,
        task_reject_on_worker_lost=True,
        task_time_limit=settings.time_limit,
        task_publish_retry=False,
        worker_prefetch_multiplier=1,
        broker_connection_retry_on_startup=True,
    )
    # Kept by the app: a signal holds its receivers weakly.
    receivers: list[Any] = [_announce(settings)]
    worker_ready.connect(receivers[0])
    if settings.hold_at == "returned":
        receivers.append(_hold(settings))
        task_postrun.connect(receivers[1])
    app.receivers = receivers  # type: ignore[attr-defined]  # only to keep a reference
    return app


def _announce(settings: Settings) -> Any:  # noqa: ANN401  # a receiver of any signal
    def announce(**_: object) -> None:
        note(settings.journal, "ready")
        threading.Thread(target=_leave_with, args=(settings.owner_pid,), daemon=True).start()

    return announce


def _hold(settings: Settings) -> Any:  # noqa: ANN401  # a receiver of any signal
    def hold(sender: Any, **_: object) -> None:  # noqa: ANN401  # the task
        if sender.name == CHARGE:
            hold_after_return(settings)

    return hold


def _leave_with(owner_pid: int) -> None:
    """End this worker when its parent process has ended, so that no worker is left behind."""
    while os.getppid() == owner_pid:
        time.sleep(OWNER_CHECK_SECONDS)
    os._exit(1)
