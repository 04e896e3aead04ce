"""Run a deduplicated task in a worker: begin its run, or handle a copy or repeat of its message.

1. this message gets the run: the body works under a renewed lease, and its outcome is kept in one step with the end of
   the run;
2. the message has already ended (it was delivered again), or it repeats one that has: this task gets the kept outcome
   too, so that Celery stores it, advances the chord and sends what follows;
3. a later attempt of the message was published: this copy is an outdated retry, and is dropped;
4. another holder has this very message: it was delivered again while the first runs. One copy is republished,
   so that the message is not lost if that holder dies; further copies are dropped;
5. another message has the key: this one comes back, to take its outcome, or with `latest` and `serial` to
   run on its own;
6. a later call of `latest` has put this message off: it comes back when it is due.
"""

from __future__ import annotations

import logging
import os
import random
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NoReturn

from celery.exceptions import Ignore, Reject, Retry
from celery.states import READY_STATES, STARTED, SUCCESS
from kombu.utils import json

from segmented.dedup.celery.message import OnceHeader, due_in_ms, header_of, publish_text
from segmented.dedup.celery.publication import tell_in_worker
from segmented.dedup.run import Run, StoreEffect
from segmented.errors import (
    EffectUnknown,
    InFlight,
    InvalidInput,
    RunLost,
    SegmentedError,
    StoreError,
    StoreRefused,
    StoreUnavailable,
    WrongKind,
)
from segmented.models.dedup import KeyHeld, MessageCancelled, MessageEarly, OutcomeKept, PayloadDiffers, RunBegun
from segmented.protocol import CallNext, ReadRecord

if TYPE_CHECKING:
    from celery import Signature
    from celery.app.task import Context, Task

    from segmented.dedup.celery.rule import OncePlan
    from segmented.dedup.terms import NextAttempt
    from segmented.plans.drivers import Store

COPY_SECONDS: Final = 0.1
"""Minimum delay in seconds of a copy of a message that runs; it returns when the lease of that run may have ended."""
REQUEUE_SECONDS: Final = 0.5
"""Seconds before a message that cannot be published again is left with the broker."""
FOR_NOW: Final = ("used memory > 'maxmemory'", "NOREPLICAS", "MISCONF")
"""Parts of the refusals of a server that may take the same operation later."""
DOWN_SECONDS: Final = 5.0
"""Seconds after which a message returns if the records' server did not answer, or answered with an error."""

HELD_SECONDS: Final = 1.0
"""Seconds after which a message returns that runs once the key is free, and has another payload or task."""

ANSWERED: Final[dict[str, str]] = {}
"""Eager calls that got the outcome of another message, until their handle says so."""

log = logging.getLogger(__name__)


def spread(seconds: float) -> float:
    """Return a time about as long, so that many messages do not come back in one moment."""
    return seconds * random.uniform(0.8, 1.2)  # noqa: S311  # not a secret


@dataclass(frozen=True, slots=True)
class Execution:
    """One delivery of one message."""

    task: Task[..., Any]
    plan: OncePlan
    request: Context
    arguments: tuple[Any, ...]
    options: dict[str, Any]

    def execute(self) -> Any:  # noqa: ANN401  # any result of the task
        """Run the body, or handle a copy or repeat. Returns the result, or raises what Celery understands."""
        header = self._header()
        claim = self.plan.claim(header)
        runs_when_down = self.plan.settings.runs_when_down
        try:
            store = self._store(header)
            asked_at = store.clock.now()
            answer = store.execute(
                claim.beginning(
                    header.payload_print if self.plan.rule.answers else "",
                    attempt=self.request.retries or 0,
                    follows=header.follows,
                    round_number=header.round,
                    text=self._text(header) if self.plan.rule.kind == "serial" else "",
                )
            )
        except WrongKind:  # another kind of value has the key; to redeliver the message cannot help
            raise
        except StoreError as error:
            if runs_when_down:
                return self._unrecorded(error)
            self._come_back(header, spread(DOWN_SECONDS), error)
        match answer:
            case RunBegun():
                self._publish(answer.next_text)
                return self._begun(header, answer, Run(store, claim, (answer, asked_at), self.plan.form))
            case MessageEarly(due_in_ms):
                self._come_back(header, due_in_ms / 1000, None)
            case OutcomeKept():
                return self._repeated(header, answer)
            case KeyHeld():
                return self._waited(header, answer)
            case PayloadDiffers():
                self._refused(header, answer)
            case MessageCancelled():
                asked = vars(self.request).get("ignore_result")  # the class has a default, which nobody asked for
                is_stored = not (self.task.ignore_result if asked is None else asked)
                self.task.backend.mark_as_revoked(
                    header.message, "cancelled", request=self.request, store_result=is_stored
                )
                raise Ignore
        return self._drop(header)  # a superseded copy of its retries

    def _begun(self, header: OnceHeader, answer: RunBegun, run: Run) -> Any:  # noqa: ANN401  # any result of the task
        """Run the body, unless that of the run before ended well and its records could not be written."""
        before = answer.after
        is_same_work = before in {header.message, header.follows} or self.plan.terms.keep_ms
        if before and is_same_work and self._state_of(before) == SUCCESS:
            tell_in_worker(self.task, header.key, before, "answered")
            return self._finished(run, self.task.backend.get_result(before))
        if before:
            tell_in_worker(self.task, header.key, before, "taken over")
        expires: Any = self.request.expires
        if expires and not due_in_ms(self.plan.app, expires, None):
            self.request.expires = None  # a call that waits for it has a later one, and so do further attempts
        return self._with(answer.call).work(run)

    def _store(self, header: OnceHeader) -> Store:
        """Return the store. If the records' server refuses the connection, the message returns later."""
        try:
            return self.plan.store
        except StoreRefused as error:
            log.warning("message %s comes back in %g s: %s", header.message, DOWN_SECONDS, error)
            self._come_back(header, spread(DOWN_SECONDS), error)

    def _header(self) -> OnceHeader:
        message = str(self.request.id)
        header = header_of(vars(self.request), message)
        if header is None:
            identity = self.plan.identity(self.arguments, self.options)
            header = OnceHeader(message, identity.key, identity.payload_print)
        self.request.headers = header.carried(self.request.headers)  # its further attempts use the same record
        return header

    def _with(self, call: str) -> Execution:
        """Return this delivery with the arguments of the latest call, which its further attempts have, too."""
        if not call:
            return self
        arguments, options = json.loads(call)
        self.request.args, self.request.kwargs = arguments, options
        return replace(self, arguments=tuple(arguments), options=options)

    def _unrecorded(self, reason: StoreError) -> Any:  # noqa: ANN401  # any result of the task
        result = self.task.run(*self.arguments, **self.options)
        if isinstance(result, StoreEffect):
            raise reason  # there is no store for it
        return result

    # --- this message has the run ---

    def work(self, run: Run) -> Any:  # noqa: ANN401  # any result of the task
        """Run the body under its run."""
        self.request.once_run = run  # type: ignore[attr-defined]  # a request carries what its task needs
        self._track_started()
        try:
            result = self.task.run(*self.arguments, **self.options)
        except Exception as error:
            self._ended(run, error)
            raise
        except BaseException:  # the process is ending
            self._abandon(run)
            raise
        return result if self._is_put_off(run) else self._finished(run, result)

    def _track_started(self) -> None:
        task, request = self.task, self.request
        if getattr(task, "once_tracks_started", False) and not (request.is_eager or task.ignore_result):
            found = {"pid": os.getpid(), "hostname": request.hostname}
            try:
                task.backend.store_result(str(request.id), found, STARTED, request=request)
            except Exception:  # a backend may raise anything; the state is for show, and the work is not
                log.warning("the state STARTED of message %s cannot be stored", request.id, exc_info=True)

    def _ended(self, run: Run, error: Exception) -> None:
        attempt = int(self.request.retries or 0)
        match error:
            case _ if self._is_put_off(run):
                return
            case Retry() if self.request.is_eager:
                self._put_off(run, self.plan.next_attempt(attempt + 1, 0, None))
            case Reject() if error.requeue:  # type: ignore[attr-defined]  # its stubs do not know of it
                self._put_off(run, self.plan.next_attempt(attempt, 0, self.request.expires))
            case Retry() | Reject() | Ignore():  # it never returns to the queue
                self._abandon(run)
            case _:
                self._fail(run, error)

    def _finished(self, run: Run, result: object) -> object:
        if run.has_ended:  # the body did it
            self._publish(run.next_text)
            return result
        try:
            if not isinstance(result, StoreEffect):
                run.finish_or_owe(result)
                self._publish(run.next_text)
                return result
            if not self.plan.terms.keep_ms:
                message = f"task {self.plan.name!r} returned a StoreEffect, which needs unique(..., keep=seconds)"
                raise InvalidInput(message)
            return run.finish_with(result)
        except RunLost:
            if self._is_done_by_another(run):
                raise Ignore from None  # the other message stores the outcome
            raise
        except SegmentedError as error:
            if not run.has_ended:
                self._abandon(run)
            if isinstance(error, StoreUnavailable) or any(one in str(error) for one in FOR_NOW):
                self._come_back(self._header(), spread(DOWN_SECONDS), error)
            raise

    def _is_done_by_another(self, run: Run) -> bool:
        where = run.message_id if self.plan.terms.run_on == "message" else ""
        state = self.plan.store.execute(ReadRecord(run.claim.record, where))
        parts = (state.run, state.outcome) if state else ()
        return any(part is not None and part.message == run.message_id for part in parts)

    def _fail(self, run: Run, error: Exception) -> None:
        """Keep the failure, even if repeats do not get it: a copy of the message must not run again."""
        try:
            run.fail(error)
        except SegmentedError as failure:
            error.add_note(f"and afterwards: {failure}")
        self._publish(run.next_text)

    def _abandon(self, run: Run) -> None:
        with suppress(SegmentedError):  # it expires on its own
            run.abandon()
            self._call_next(run)

    def _call_next(self, run: Run) -> None:
        """Publish the next message that waits for a turn, after an end that does not tell it."""
        if self.plan.rule.kind == "serial":
            self._publish(self.plan.store.execute(CallNext(run.claim.record)))

    def _publish(self, text: str) -> None:
        """Publish a message whose turn it is, or that may be lost. If that fails, somebody does it later."""
        if not text:
            return
        try:
            publish_text(self.plan.app, text)
        except Exception:  # a broker may raise anything
            log.warning("the next message of task %s cannot be published", self.plan.name, exc_info=True)

    def _is_put_off(self, run: Run) -> bool:
        """Return whether the next attempt was published; the claim is then kept for it, whatever this one returned."""
        following: NextAttempt | None = getattr(self.request, "once_next", None)
        if following is not None:
            self._put_off(run, following)
        return following is not None

    def _put_off(self, run: Run, following: NextAttempt) -> None:
        """Keep the claim for the next attempt, or for this one again if it is requeued."""
        with suppress(SegmentedError):  # the next attempt takes over from this one, or the claim expires
            run.put_off(following)
            self._call_next(run)

    # --- this message does not have the run ---

    def _repeated(self, header: OnceHeader, outcome: OutcomeKept) -> Any:  # noqa: ANN401  # any result of the first message
        if (
            outcome.kind not in {"value", "effect"}
            and outcome.message == header.message
            and self._state_of(header.message) in READY_STATES
        ):
            raise Ignore  # the original error, or the result that the record could not keep
        tell_in_worker(self.task, header.key, outcome.message, "answered")
        if self.request.is_eager:
            ANSWERED[header.message] = outcome.message
        return self.plan.form.read(header.key, outcome)

    def _state_of(self, message: str) -> str:
        """Return the state of a message in the result backend; "" if it does not say."""
        try:
            return str(self.task.backend.get_state(message))
        except Exception:  # noqa: BLE001  # there is none, or it may raise anything
            return ""

    def _waited(self, header: OnceHeader, held: KeyHeld) -> Any:  # noqa: ANN401  # nothing, or an exception
        if held.resend:
            self._publish(held.text)
            tell_in_worker(self.task, header.key, held.message, "resent")
        if held.message == header.message:
            if not held.goes_round:
                self._drop(header)
            lapses = (held.free_in_ms or 0) / 1000
            return self._go_round(header, max(COPY_SECONDS, lapses), held)
        if held.state == "unknown":
            raise EffectUnknown(header.key, held.message)
        if not held.goes_round:
            self._drop(header)
        if self.plan.rule.answers and not header.is_put_off:
            header = replace(header, follows=held.message)
        return self._go_round(header, held.wait_ms / 1000, held)

    def _refused(self, header: OnceHeader, answer: PayloadDiffers) -> NoReturn:
        """Refuse another payload; but another task, or the task that published this next step, only has to end."""
        waits = header.is_put_off or self.plan.is_of_another_task(answer)
        if waits and not (answer.is_kept or self.request.is_eager):
            self._come_back(header, spread(HELD_SECONDS), None)
        raise self.plan.other_payload(header.key, answer)

    def _drop(self, header: OnceHeader) -> NoReturn:
        tell_in_worker(self.task, header.key, header.message, "dropped")
        raise Ignore

    def _go_round(self, header: OnceHeader, seconds: float, held: KeyHeld) -> NoReturn:
        if self.request.is_eager:
            raise InFlight(header.key, held.message, held.state, (held.free_in_ms or 0) / 1000)
        self._come_back(replace(header, round=held.next_round), seconds, None)

    def _come_back(self, header: OnceHeader, seconds: float, reason: SegmentedError | None) -> NoReturn:
        """Publish this message again under its id, for later. If that fails, leave it with the broker."""
        if self.request.is_eager and reason is not None:
            raise reason
        try:
            self._again(header, countdown=seconds).apply_async()
        except Exception as error:  # noqa: BLE001  # a broker may raise anything; it keeps the message
            time.sleep(REQUEUE_SECONDS)  # it delivers it again at once
            raise Reject(error, requeue=True) from reason
        raise Ignore from reason

    def _again(self, header: OnceHeader, **changed: Any) -> Signature:  # noqa: ANN401  # options of a signature
        if header.serializer:
            changed["serializer"] = header.serializer
        headers, retries = header.carried(self.request.headers), self.request.retries
        return self.task.signature_from_request(
            self.request, self.arguments, self.options, retries=retries, headers=headers, **changed
        )

    def _text(self, header: OnceHeader) -> str:
        """Return this message for a worker that calls it when it is its turn; "" if it has no form in JSON."""
        called = replace(header, round=header.round + 2)  # newer than the copy that comes back by itself
        try:
            text: str = json.dumps(self._again(called))
        except Exception:  # noqa: BLE001  # an encoder may raise anything
            return ""
        return text
