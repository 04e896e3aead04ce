"""The bodies of the tasks, the same for every contender."""

from __future__ import annotations

import time
import uuid
from typing import Any, Final

from bench.dedup_peers.journal import note
from bench.dedup_peers.settings import Settings

HELD_SECONDS: Final = 600.0
"""Seconds that a held run sleeps; it is killed long before."""


def charge(task: Any, order_id: str, quantity: int) -> dict[str, Any]:  # noqa: ANN401  # a Celery task of any base
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


def label(a: object, b: object) -> str:
    """Have the effect; its key in the journal distinguishes 1 from "1"."""
    settings = Settings.from_environment()
    key, run = f"{a!r}, {b!r}", uuid.uuid4().hex[:8]
    for event in ("began", "effect", "ended"):
        _note(settings, event, key, run, 0)
    return key


def gather(slots: list[Any]) -> int:
    """Count the slots with the result of a run, as a chord's callback or the end of a chain."""
    settings = Settings.from_environment()
    filled = [slot for slot in slots if isinstance(slot, dict) and "run" in slot]
    _note(settings, "gathered", str(len(filled)), uuid.uuid4().hex[:8], 0)
    return len(filled)


def hold_after_return(settings: Settings) -> None:
    """Sleep when everything is recorded and nothing is acknowledged."""
    _hold(settings, "", "", 0)


def _note(settings: Settings, event: str, key: str, run: str, attempt: int) -> None:
    note(settings.journal, event, key=key, run=run, attempt=attempt)


def _hold(settings: Settings, key: str, run: str, attempt: int) -> None:
    _note(settings, "held", key, run, attempt)
    time.sleep(HELD_SECONDS)
