"""The Celery app that every contender starts from, and its tasks; it favours none of them."""

from __future__ import annotations

import os
import threading
import time
import uuid
from typing import TYPE_CHECKING, Any, Final

from celery import Celery
from celery.signals import task_postrun, worker_ready

from tests.conformance.dedup.settings import CHARGE, GATHER, LABEL, Settings, note

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]

OWNER_CHECK_SECONDS: Final = 1.0
HELD_SECONDS: Final = 600.0
"""Seconds that a held run sleeps; it is killed long before."""


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
        receivers.append(_holding(settings))
        task_postrun.connect(receivers[1])
    app.receivers = receivers  # type: ignore[attr-defined]  # only to keep a reference
    return app


def _announce(settings: Settings) -> Any:  # noqa: ANN401  # a receiver of any signal
    def announce(**_: object) -> None:
        note(settings.journal, "ready")
        threading.Thread(target=_leave_with, args=(settings.owner_pid,), daemon=True).start()

    return announce


def _holding(settings: Settings) -> Any:  # noqa: ANN401  # a receiver of any signal
    def hold(sender: Any, **_: object) -> None:  # noqa: ANN401  # the task
        if sender.name == CHARGE:
            _hold(settings, "", "", 0)  # everything is recorded, and nothing is acknowledged

    return hold


def _leave_with(owner_pid: int) -> None:
    """End this worker when its parent process has ended, so that no worker is left behind."""
    while os.getppid() == owner_pid:
        time.sleep(OWNER_CHECK_SECONDS)
    os._exit(1)


def _bare(body: Callable[..., Any]) -> Callable[..., Any]:
    return body


def add_tasks(
    app: Celery,
    charge_options: Mapping[str, Any],
    label_options: Mapping[str, Any],
    *,
    charge_wrap: Wrap = _bare,
    label_wrap: Wrap = _bare,
) -> tuple[Any, Any, Any]:
    """Add the tasks `charge`, `label` and `gather`, and return them.

    The first two have a contender's own options, or its decorator of the body.
    """

    @app.task(bind=True, name=CHARGE, **charge_options)
    @charge_wrap
    def charge(self: Any, order_id: str, quantity: int = 1) -> dict[str, Any]:  # noqa: ANN401  # the task itself
        """Charge an order."""
        return _charge(self, order_id, quantity)

    @app.task(name=LABEL, **label_options)
    @label_wrap
    def label(a: object, b: object = None) -> str:
        """Have the effect; its key in the journal distinguishes 1 from "1"."""
        settings = Settings.from_environment()
        key, run = f"{a!r}, {b!r}", uuid.uuid4().hex[:8]
        for event in ("began", "effect", "ended"):
            _note(settings, event, key, run, 0)
        return key

    @app.task(name=GATHER)
    def gather(slots: list[Any]) -> int:
        """Count the slots with the result of a run, as a chord's callback or the end of a chain."""
        settings = Settings.from_environment()
        filled = [slot for slot in slots if isinstance(slot, dict) and "run" in slot]
        _note(settings, "gathered", str(len(filled)), uuid.uuid4().hex[:8], 0)
        return len(filled)

    return charge, label, gather


def _charge(task: Any, order_id: str, quantity: int) -> dict[str, Any]:  # noqa: ANN401  # a Celery task of any base
    """Retry as often as configured, then have the effect once, and return the id of the run."""
    settings = Settings.from_environment()
    run, attempt = uuid.uuid4().hex[:8], int(task.request.retries)
    _note(settings, "began", order_id, run, attempt)
    if attempt < settings.retries:
        if settings.hold_at == "retry":
            task.retry(countdown=0, throw=False)
            _hold(settings, order_id, run, attempt)
        _note(settings, "retry", order_id, run, attempt)
        raise task.retry(countdown=1)
    time.sleep(settings.seconds_before)
    _note(settings, "effect", order_id, run, attempt)
    if settings.hold_at == "effect":
        _hold(settings, order_id, run, attempt)
    time.sleep(settings.seconds_after)
    _note(settings, "ended", order_id, run, attempt)
    return {"order": order_id, "quantity": quantity, "run": run}


def _note(settings: Settings, event: str, key: str, run: str, attempt: int) -> None:
    note(settings.journal, event, key=key, run=run, attempt=attempt)


def _hold(settings: Settings, key: str, run: str, attempt: int) -> None:
    _note(settings, "held", key, run, attempt)
    time.sleep(HELD_SECONDS)
