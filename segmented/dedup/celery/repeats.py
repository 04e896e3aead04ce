"""Tells repeats from runs, by a signal, a line in the worker's log, and an event for Flower and other monitors."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Literal

from celery.utils.dispatch import Signal

if TYPE_CHECKING:
    from celery import Task

Decision = Literal["returned", "answered", "dropped", "resent", "taken over"]

once_repeated = Signal(name="once_repeated", providing_args=["key", "message_id", "decision"])
"""Sent for each repeat, by the process that decides about it. The sender is the name of the task; `key` is the record's
key, `message_id` the first message.

| decision | what happened |
| --- | --- |
| `returned` | at publication: nothing was sent, and the caller got the handle of the first |
| `answered` | in a worker: the message got the outcome of the first |
| `dropped` | in a worker: another copy of the message, or a later attempt, is under way |
| `resent` | the first has waited for long, may be lost, and was published again |
| `taken over` | in a worker: the message runs in place of one whose worker died |
"""

WORDS: Final[dict[Decision, str]] = {
    "answered": "did not run: it repeats %s, and got its outcome (answered)",
    "dropped": "did not run: another copy or a later attempt of %s does (dropped)",
    "resent": "waits for %s, which may be lost and was published again (resent)",
    "taken over": "runs in place of %s, whose worker did not say how it ended (taken over)",
}
_log = logging.getLogger("segmented.dedup")


def tell(task: str, key: str, first: str, decision: Decision) -> None:
    """Tell the receivers of `once_repeated`."""
    once_repeated.send(sender=task, key=key, message_id=first, decision=decision)


def tell_in_worker(task: Task[..., Any], key: str, first: str, decision: Decision) -> None:
    """Tell the log, too, and monitors of a message that does not run: its state is REPEATED until it has another."""
    _log.info("task %s[%s] " + WORDS[decision], task.name, task.request.id, first)  # one of the four above
    tell(task.name, key, first, decision)
    if decision in {"answered", "dropped"} and task.app.conf.worker_send_task_events and not task.request.is_eager:
        with suppress(Exception):  # a broker may raise anything; the event is for show
            task.send_event("task-repeated", first=first, decision=decision)
