"""The handle of a deduplicated task, and how repeats are distinguished from runs.

Every repeat gets the handle of the first message. A signal, a line in the worker's log, and an event for Flower and
other monitors report it.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Literal

from celery import states
from celery.result import AsyncResult
from celery.utils.dispatch import Signal

from segmented.errors import DedupError
from segmented.protocol import CancelMessage

if TYPE_CHECKING:
    from celery import Task

if TYPE_CHECKING:
    from segmented.dedup.celery.plan import OncePlan
    from segmented.dedup.outcomes import OutcomeForm
    from segmented.models.dedup import OutcomeKept, RecordName

    CeleryResult = AsyncResult[Any]
else:
    CeleryResult = AsyncResult  # before Celery 5.7 it is no generic class


class OnceResult(CeleryResult):
    """A Celery result handle of the message that has the key. Handles with equal ids are equal."""

    once_key: str | None = None
    """The record's key, as `segmented dedup list` shows it; None if the handle was created from an id alone."""
    is_repeat = False
    """Whether the call is a repeat of another message: nothing was published, or a message that gets its outcome."""
    first_id: str | None = None
    """The message that runs for this call: its own id, or that of the first; None for a handle made from an id."""

    def revoke(self, *arguments: Any, **passed_on: Any) -> None:  # noqa: ANN401  # Celery's signature
        """Revoke the task as Celery does, and free its key at once unless a worker is running it.

        Celery keeps its own revocations in the memory of workers. This one is written to the record, so a worker that
        starts later refuses the message too. A handle created from an id alone does only what Celery does.
        """
        super().revoke(*arguments, **passed_on)
        if self._record is not None and self._plan is not None:
            terms = self._plan.terms
            self._plan.store.execute(CancelMessage(self._record, self.id, terms.remember_ms, terms.run_on))

    _record: RecordName | None = None
    _plan: OncePlan | None = None

    def belongs(self, plan: OncePlan, record: RecordName) -> OnceResult:
        """Set the record, so that `revoke` can free it."""
        self.once_key, self._plan, self._record = record.key, plan, record
        return self

    def ended(self, key: str, outcome: OutcomeKept, form: OutcomeForm) -> OnceResult:
        """Set the outcome that the record keeps, so that the result backend is not asked."""
        status: str = states.SUCCESS
        result: Any = None
        try:
            result = form.read(key, outcome)
        except DedupError as error:
            status, result = states.FAILURE, error
        self._cache: dict[str, Any] = {
            "status": status,
            "result": result,
            "traceback": None,
            "children": [],
            "task_id": self.id,
        }
        return self


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
