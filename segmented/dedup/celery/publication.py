"""Publish a deduplicated task: claim its key first, and decide about a repeat.

1. the key is free: the message is published, with a header that names its record;
2. the key is taken, or its outcome kept: nothing is published, and the caller gets the handle of the first. A repeat
   whose own id needs an outcome (in a chord, group or chain, with callbacks, or with a task id that the caller chose)
   is still published, as a follower: the worker gives it the outcome of the first. With `latest`, the arguments of a
   repeat replace those of the message that waits;
3. the key was used with another payload: OtherPayload;
4. the message of the key has waited for long: it is published again under its own id, since it may be lost;
5. a task publishes its own next step, under the key that it holds: that message is published, and runs after it, if
   the rule keeps no result, which would answer it;
6. Celery continues a chain or calls back in a worker: a refusal would fail the task before it, which is done. So the
   message is published without a claim, and the worker that gets it decides.

Every repeat gets the handle of the first message. A signal, a line in the worker's log, and an event for Flower and
other monitors report it.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from celery import states
from celery.result import AsyncResult
from celery.utils import uuid
from celery.utils.dispatch import Signal

from segmented.dedup.celery.message import OnceHeader, due_in_ms, expires_in_ms, json_text, publish_text
from segmented.errors import (
    DedupError,
    InvalidInput,
    OtherPayload,
    SegmentedError,
    StoreError,
    StoreUnavailable,
    WrongKind,
)
from segmented.events.traces import CURRENT
from segmented.models.dedup import KeyClaimed, KeyHeld, OutcomeKept, PayloadDiffers, RecordName
from segmented.protocol import CancelMessage, ClaimKey

if TYPE_CHECKING:
    from collections.abc import Callable

    from celery import Task

    from segmented.dedup.celery.rule import OncePlan
    from segmented.dedup.celery.settings import Configured
    from segmented.dedup.identity import Identity
    from segmented.dedup.outcomes import OutcomeForm

    CeleryResult = AsyncResult[Any]
else:
    CeleryResult = AsyncResult  # before Celery 5.7 it is no generic class

Decision = Literal["returned", "answered", "dropped", "resent", "taken over"]
WORDS: Final[dict[Decision, str]] = {
    "answered": "did not run: it repeats %s, and got its outcome (answered)",
    "dropped": "did not run: another copy or a later attempt of %s does (dropped)",
    "resent": "waits for %s, which may be lost and was published again (resent)",
    "taken over": "runs in place of %s, whose worker did not say how it ended (taken over)",
}
_log = logging.getLogger("segmented.dedup")
CANVAS: Final = ("task_id", "group_id", "chord", "chain", "link", "link_error")
"""Options that make a caller wait for the outcome under the message's own id."""
Answer = KeyClaimed | KeyHeld | OutcomeKept | PayloadDiffers


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


@dataclass(slots=True)  # not frozen, which takes twice as long
class Publication:
    """One call of `apply_async`."""

    plan: OncePlan
    settings: Configured
    identity: Identity
    options: dict[str, Any]
    """The options given to `apply_async`, including links."""
    arguments: tuple[Any, Any]
    """The positional and the named arguments of the call."""
    send: Callable[[dict[str, Any]], AsyncResult[Any]]
    """Publishes with options; everything else stays the same."""
    handle: Callable[[str], OnceResult]
    """Creates the handle of a message id."""
    record: RecordName = field(init=False)

    def __post_init__(self) -> None:
        """Name the record of the call."""
        self.record = RecordName(self.settings.namespace, self.identity.key)

    def publish(self) -> AsyncResult[Any]:
        """Claim the key and publish, or answer as the rule says."""
        message = self.options.get("task_id") or uuid()
        if self.plan.rule.kind == "serial":  # every message runs, so nothing is claimed
            return self._sent(self._header(message))
        try:
            return self._decided(message)
        except (OtherPayload, StoreError):
            if "parent_id" not in self.options:  # Celery names it when it continues a canvas, and only then
                raise
            return self._sent(self._header(message))

    def _decided(self, message: str) -> AsyncResult[Any]:
        claimed = self._changed(self._header(message, is_claimed=True))
        answer = self._claimed(message, claimed)
        match answer:
            case KeyClaimed():
                return self._first(message, answer, claimed)
            case StoreError():
                if not self.settings.runs_when_down:
                    raise answer
                return self._sent(self._header(message))  # the worker checks again
            case KeyHeld(first) | PayloadDiffers(first) if self._is_next_step_of(first):
                return self._sent(self._header(message, is_put_off=True))
            case PayloadDiffers():
                raise self.plan.other_payload(self.identity.key, answer)
        return self._repeat(message, answer)

    def _is_next_step_of(self, message: str) -> bool:
        """Return whether the caller is the body of the message that has the key, and the rule lets a repeat wait."""
        running = self.plan.app.current_worker_task
        if running is None or running.request.id != message or running.request.is_eager:
            return False
        return not self.plan.terms.keep_ms

    # --- the first message ---

    def _claimed(self, message: str, options: dict[str, Any]) -> Answer | StoreError:
        """Claim the key; returns the error of a server that is down for now, or answers with an error.

        Raises StoreRefused if the server refuses the connection, and WrongKind: neither passes by itself.
        """
        operation = self._claiming(message, options)
        try:
            store = self.settings.store
        except StoreUnavailable as error:
            return error
        try:
            return store.execute(operation, deadline=store.clock.now() + self.settings.timeout)
        except WrongKind:
            raise
        except StoreError as error:
            return error

    def _claiming(self, message: str, options: dict[str, Any]) -> ClaimKey:
        plan, terms = self.plan, self.plan.terms
        is_latest = plan.rule.kind == "latest"
        expires, eta, countdown = (self.options.get(name) for name in ("expires", "eta", "countdown"))
        delay_ms = plan.quiet_ms if is_latest else due_in_ms(plan.app, eta, countdown)
        return ClaimKey(
            self.record,
            message,
            self.identity.payload_print,
            plan.name,
            plan.waits_ms(expires, delay_ms),
            terms.remember_ms,
            delay_ms=delay_ms,
            delay_max_ms=plan.at_most_ms,
            resend_ms=terms.resend_ms,
            is_blocked_by_run=not is_latest,
            expires_ms=expires_in_ms(plan.app, expires),
            text=plan.text(self.arguments, options),
            call_text=self._call_text() if is_latest else "",
        )

    def _call_text(self) -> str:
        arguments, options = self.arguments
        try:
            return json_text([arguments or (), options or {}])
        except Exception as error:
            message = f"the arguments of {self.plan.name!r} cannot be written as JSON, which latest(...) needs: {error}"
            raise InvalidInput(message) from error

    def _first(self, message: str, answer: KeyClaimed, options: dict[str, Any]) -> AsyncResult[Any]:
        is_latest = self.plan.rule.kind == "latest"
        quiet = {"countdown": answer.delay_ms / 1000, "eta": None} if is_latest and answer.delay_ms else {}
        try:
            return self._known(self.send({**options, **quiet}), message)
        except BaseException:
            # It is unknown whether it was sent. The caller gets an error, so the message must never begin.
            if not self._is_of_outbox():
                with suppress(SegmentedError):
                    self.settings.store.execute(self._cancelling(message))
            raise

    def _is_of_outbox(self) -> bool:
        """Return whether the message is sent again, under its id, if this fails: only the outbox names no parent."""
        return self.options.get("parent_id", "") is None

    def _cancelling(self, message: str) -> CancelMessage:
        terms = self.plan.terms
        return CancelMessage(self.record, message, terms.remember_ms, terms.run_on)

    def _header(
        self, message: str, *, follows: str = "", is_claimed: bool = False, is_put_off: bool = False
    ) -> OnceHeader:
        return OnceHeader(
            message,
            self.identity.key,
            self.identity.payload_print,
            follows=follows,
            is_claimed=is_claimed,
            is_put_off=is_put_off,
            namespace=self.record.namespace,
            serializer=str(self.options.get("serializer") or ""),
        )

    def _changed(self, header: OnceHeader, **changed: object) -> dict[str, Any]:
        given = self.options.get("headers")
        headers = {**CURRENT.traces.here(), **header.carried(given)}
        return {**self.options, **changed, "task_id": header.message, "headers": headers}

    def _sent(self, header: OnceHeader, **changed: object) -> AsyncResult[Any]:
        return self._known(self.send(self._changed(header, **changed)), header.follows or header.message)

    def _known(self, result: Any, first: str) -> AsyncResult[Any]:  # noqa: ANN401  # any handle
        result.is_repeat, result.first_id = result.id != first, first
        belongs = getattr(result, "belongs", None)  # an eager result belongs to none
        if belongs is not None:
            belongs(self.plan, self.record)
        return result  # type: ignore[no-any-return]  # a handle

    # --- a repeat ---

    def _repeat(self, message: str, answer: KeyHeld | OutcomeKept) -> AsyncResult[Any]:
        key = self.identity.key
        if isinstance(answer, KeyHeld) and answer.resend:
            self._resend(answer)
        if any(self.options.get(name) for name in CANVAS):
            return self._sent(self._header(message, follows=answer.message))
        tell(self.plan.name, key, answer.message, "returned")
        first = self.handle(answer.message)
        self._known(first, answer.message)
        first.is_repeat = True
        return first.ended(key, answer, self.plan.form) if isinstance(answer, OutcomeKept) else first

    def _resend(self, answer: KeyHeld) -> None:
        tell(self.plan.name, self.identity.key, answer.message, "resent")
        if answer.text:
            publish_text(self.plan.app, answer.text)
            return
        header = self._header(answer.message, is_claimed=True)
        own = dict.fromkeys(CANVAS)  # callers that wait for the repeat's id do not wait for this one
        self._sent(header, **own, retries=answer.attempt, countdown=None, eta=None)
