"""`Once`: the base class of deduplicated tasks, and the signal handlers of their workers.

A revoked or expired message frees its key; an ending process closes its connections. A worker's parent process also
learns when a run was ended from outside, and frees the key of that message at once.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from billiard.einfo import ExceptionWithTraceback  # type: ignore[attr-defined]  # its stubs do not know of it
from billiard.exceptions import TimeLimitExceeded, WorkerLostError
from celery import Task
from celery.signals import task_revoked, worker_ready
from celery.utils import uuid
from celery.worker.request import Request
from celery.worker.state import revoked

from segmented.dedup.celery.execution import ANSWERED, Execution
from segmented.dedup.celery.message import due_in_ms, header_of
from segmented.dedup.celery.publication import OnceResult, Publication
from segmented.dedup.celery.rule import OncePlan, body_of, checked_rule
from segmented.errors import InvalidInput, SegmentedError
from segmented.events.traces import CURRENT, HEADER
from segmented.process import Guard
from segmented.protocol import CancelMessage, ReadRecord

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from celery import Celery
    from celery.app.task import Context
    from celery.result import AsyncResult, EagerResult

    from segmented.dedup.celery.rule import OnceRule
    from segmented.dedup.run import Run

_log = logging.getLogger("segmented.dedup")
_guard = Guard()


def _bound_already(name: object) -> str:
    return (
        f"task {name!r} was made with another rule, or none: give it where the task is made, as in "
        '@app.task(base=Once, once=unique("{order_id}"))'
    )


class OnceType(type):
    """Refuses a rule for a task class that Celery has bound, as `Once` does for a task."""

    def __setattr__(cls, name: str, value: object) -> None:
        """Refuse it: messages of the task would not be found under their keys."""
        if name == "once" and vars(cls).get("__bound__"):
            raise InvalidInput(_bound_already(vars(cls)["name"]))
        super().__setattr__(name, value)


class Once(Task, metaclass=OnceType):  # type: ignore[type-arg]  # its stubs make it generic, which the class itself is not
    """A task that runs once per key, however often it is published or delivered.

    ```python
    app.conf.update(once_url="redis://localhost:6379/2")


    @app.task(base=Once, once=unique("{order_id}", keep="1h"))
    def charge(order_id: str, amount: int) -> str: ...


    charge.delay("o-7", 5)  # runs
    charge.delay("o-7", 5)  # the same handle, and for an hour the same result
    charge.delay("o-7", 6)  # OtherPayload
    ```

    Checked at publication and again in the worker, so that neither a redelivery nor a publisher without this library
    can bypass it. If a worker dies in the middle, its effects outside Redis and SQL may be repeated: see
    `once_run.provider_key`. A direct call, `charge("o-7", 5)`, is an ordinary function call.
    """

    abstract = True
    once: ClassVar[OnceRule | str | None] = None
    """The rule; a text is short for `unique(text)`. A task says `once=None` if it is to run for every message."""
    _made_plan: ClassVar[OncePlan | None] = None
    Request = "segmented.dedup.celery.task:OnceRequest"

    def __setattr__(self, name: str, value: object) -> None:
        """Refuse a rule for a task that was made without it: its messages would not be found under their keys."""
        if name == "once":
            raise InvalidInput(_bound_already(self.name))
        super().__setattr__(name, value)

    @classmethod
    def bind(cls, app: Celery) -> Celery:
        """Check the rule against the task's arguments when Celery finalizes the app, or at once with `lazy=False`.

        Raises InvalidInput for a task that has this base and no rule. Tasks of an app whose `task_cls` it is, Celery's
        own among them, need none.
        """
        bound: Celery = super().bind(app)
        if cls._planned(app) is not None and cls.track_started:
            # Celery would overwrite the outcome of a message with STARTED when a copy of it arrives.
            cls.track_started, cls.once_tracks_started = False, True
        return bound

    once_tracks_started: ClassVar[bool] = False
    """Whether a run stores the state STARTED when it begins, as Celery's `track_started` asks."""

    @classmethod
    def _planned(cls, app: Celery) -> OncePlan | None:
        """Return the plan, created by the first caller; None for an ordinary task.

        Celery registers a task shortly before it binds it, so another thread may publish it in between.
        """
        if cls.once is None:
            cls._refuse_silence(app)
            return None
        cls._refuse_bypass()
        with _guard.lock:
            plan: OncePlan | None = vars(cls).get("_made_plan")  # not a parent's, which has another name and body
            if plan is None or plan.app is not app:
                name = str(cls.name)
                rule = checked_rule(name, cls.once)
                plan = cls._made_plan = OncePlan(app, name, body_of(cls), rule)
                type.__setattr__(cls, "once", rule)  # so that the task's `once` shows its keys
            return plan

    @classmethod
    def _refuse_bypass(cls) -> None:
        """Refuse a `__call__` as Flask's pages show it, which calls `self.run` in a context of the application."""
        for part in cls.__mro__[: cls.__mro__.index(Once)]:
            code = getattr(vars(part).get("__call__"), "__code__", None)
            if code is not None and "run" in code.co_names and "super" not in code.co_names:
                raise InvalidInput(
                    f"task {cls.name!r} would run for every message, since {part.__name__}.__call__ calls self.run: "
                    "let it return super().__call__(*args, **kwargs)"
                )

    @classmethod
    def _refuse_silence(cls, app: Celery) -> None:
        own = cls.__mro__[: cls.__mro__.index(Once)]
        if app.Task not in own and not any("once" in vars(part) for part in own):
            raise InvalidInput(
                f"task {cls.name!r} has base=Once and no once=..., so it would run for every message: give it a rule, "
                'such as once=unique("{order_id}"), or once=None'
            )

    @property
    def once_run(self) -> Run:
        """The run of the current message: its fencing token, its `provider_key`, and the ways to end it.

        Raises InvalidInput if there is none: in a plain call, or when `once_when_down` let the task run without
        records.
        """
        run: Run | None = getattr(self.request, "once_run", None)
        if run is None:
            raise InvalidInput(f"there is no run: {self.name!r} was called as a function, or without its records")
        return run

    def once_key(self, *arguments: Any, **passed_on: Any) -> str:  # noqa: ANN401  # any task arguments
        """Return the record's key of a call with these arguments, as `segmented dedup explain` takes it."""
        return self.once_plan.identity(arguments, passed_on).key

    @property
    def once_plan(self) -> OncePlan:
        """The plan for publication and execution. Raises TypeError for a task without a rule."""
        plan = self._plan_if_any
        if plan is None:
            raise TypeError(f"task {self.name!r} has no once")
        return plan

    @property
    def _plan_if_any(self) -> OncePlan | None:
        return vars(type(self)).get("_made_plan") or self._planned(self.app)

    def __call__(self, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401  # any result of the task
        """Run the task: in a worker under the record, otherwise as a plain call."""
        plan, request = self._plan_if_any, self.request
        if plan is None or request.called_directly or getattr(request, "once_begun", False):
            return super().__call__(*arguments, **options)
        request.once_begun = True  # type: ignore[attr-defined]  # a body that calls its own task means a plain call
        headers = {HEADER: getattr(request, HEADER, None)}
        with CURRENT.traces.working(f"process {self.name}", headers, {}):
            return Execution(self, plan, request, arguments, options).execute()

    def apply_async(  # as Celery's own, and `once_key`
        self,
        args: Any = None,  # noqa: ANN401  # as Celery's own
        kwargs: Any = None,  # noqa: ANN401  # as Celery's own
        task_id: str | None = None,
        producer: Any = None,  # noqa: ANN401  # as Celery's own
        link: Any = None,  # noqa: ANN401  # as Celery's own
        link_error: Any = None,  # noqa: ANN401  # as Celery's own
        shadow: str | None = None,
        once_key: str | None = None,
        **passed_on: Any,  # noqa: ANN401  # as Celery's own
    ) -> AsyncResult[Any]:
        """Publish as Celery does, unless it is a repeat. `once_key` is an explicit key that replaces the rule's.

        With the option `once=False`, or the app's setting `once_off`, the call runs whatever other calls do: it has a
        key of its own, so that only copies of its message are recognised.

        Raises OtherPayload for a key that was used with another payload, and StoreUnavailable if the records cannot be
        reached and `once_when_down` is `refuse`.
        """
        is_off = not passed_on.pop("once", True)
        given = {"task_id": task_id, "link": link, "link_error": link_error, **passed_on}

        def send(changed: dict[str, Any]) -> AsyncResult[Any]:
            return super(Once, self).apply_async(args, kwargs, producer=producer, shadow=shadow, **changed)

        is_sent_before = task_id is not None and header_of(passed_on, task_id) is not None
        plan = self._plan_if_any
        if plan is None or is_sent_before:  # an attempt, or a republished copy, keeps its claim
            sent = send(given)
            if plan is not None:
                self._note_attempt(plan, given, (args, kwargs))
            return sent
        settings = plan.settings
        chosen = (task_id or uuid()) if is_off or settings.is_off else once_key
        identity = plan.identity(args, kwargs, given=chosen)
        given.setdefault("expires", self.expires)
        return Publication(plan, settings, identity, given, (args, kwargs), send, self.AsyncResult).publish()

    def apply(self, *arguments: Any, **passed_on: Any) -> EagerResult[Any]:  # noqa: ANN401  # as Celery's own
        """Run the task here, under its record, as Celery does in eager mode."""
        done: Any = super().apply(*arguments, **passed_on)
        done.first_id = ANSWERED.pop(done.id, done.id)
        done.is_repeat = done.first_id != done.id
        return done  # type: ignore[no-any-return]  # Celery's own, with what every handle has here

    def AsyncResult(self, task_id: str, **passed_on: Any) -> OnceResult:  # noqa: ANN401, N802  # Celery's own name
        """Return the handle of a message id."""
        return OnceResult(task_id, backend=self.backend, task_name=self.name, app=self.app, **passed_on)

    def _note_attempt(self, plan: OncePlan, sent: Mapping[str, Any], arguments: tuple[Any, Any]) -> None:
        """Record on the current message that its next attempt was published, also by `retry(throw=False)`."""
        request, attempt = self.request, sent.get("retries") or 0
        if request.id == sent["task_id"] and attempt > (request.retries or 0):
            due_ms = due_in_ms(self.app, sent.get("eta"), sent.get("countdown"))
            following = plan.next_attempt(attempt, due_ms, sent.get("expires"), plan.text(arguments, sent))
            request.once_next = following  # type: ignore[attr-defined]  # a request carries what its task needs

    def once_free(
        self,
        message: str,
        args: Sequence[Any] | None,
        kwargs: Mapping[str, Any] | None,
        *,
        fields: Mapping[str, Any],
        is_dead: bool,
    ) -> None:
        """Prevent a message from beginning, and free its key; with `is_dead` also from a run that is over.

        `fields` are those of its request, headers among them.
        Called by the worker. If it fails, this is logged, and the key expires on its own.
        """
        plan = self._plan_if_any
        if plan is None:
            return
        try:
            header = header_of(fields, message)
            record = plan.record(plan.identity(args, kwargs).key) if header is None else plan.record_of(header)
            plan.store.execute(
                CancelMessage(record, message, plan.terms.remember_ms, plan.terms.run_on, is_dead=is_dead)
            )
        except (SegmentedError, TypeError):  # it expires on its own; arguments that do not fit the task have no key
            _log.warning("once.not_freed", extra={"task": self.name, "message_id": message}, exc_info=True)

    def once_is_outlived(self, message: str, fields: Mapping[str, Any]) -> bool:
        """Return whether a call waits for an expired message that has not expired itself. Called by the worker."""
        plan, header = self._plan_if_any, header_of(fields, message)
        if plan is None or header is None:
            return False
        try:
            state = plan.store.execute(ReadRecord(plan.record_of(header)))
        except SegmentedError:
            _log.warning("once.expiry_unread", extra={"task": self.name, "message_id": message}, exc_info=True)
            return False
        seat = None if state is None else state.seat
        return seat is not None and seat.message == message and seat.is_outlived


@task_revoked.connect
def free_revoked(
    sender: object = None,
    request: Context | None = None,
    *,
    terminated: bool = False,
    **_: Any,  # noqa: ANN401  # Celery's signature
) -> None:
    """Free the key of a message that will not run."""
    if not isinstance(sender, Once) or request is None:
        return
    sender.once_free(str(request.id), request.args, request.kwargs, fields=vars(request), is_dead=bool(terminated))


@worker_ready.connect
def compare_rules(sender: Any = None, **_: object) -> None:  # noqa: ANN401  # the consumer of a worker
    """Log which rules make other keys than those that workers and publishers had before."""
    for task in sender.app.tasks.values():
        if isinstance(task, Once) and task.once is not None:
            try:
                task.once_plan.compare_rule()
            except SegmentedError as error:  # the records cannot be reached, and every task says so itself
                _log.warning("once.rule_unread", extra={"task": task.name, "error": str(error)})
                return


class OnceRequest(Request):
    """The request of a deduplicated task. A message that will not return frees its key before its end is announced."""

    task: Any  # a `Once`, with attributes that Celery's stubs lack, and some that came with Celery 5.6 and 5.7

    def maybe_expire(self) -> Literal[True] | None:
        """Return whether the message has expired for all calls that wait for it."""
        if not super().maybe_expire():
            return None
        if not self.task.once_is_outlived(self.id, self.request_dict):
            return True
        revoked.discard(self.id)
        return None

    def on_failure(self, exc_info: Any, send_failed_event: Any = True, return_ok: Any = False) -> Any:  # noqa: ANN401, FBT002  # Celery's signature
        """Free the key of a task whose process died, or is about to be ended at its hard time limit."""
        error = exc_info.exception
        error = error.exc if isinstance(error, ExceptionWithTraceback) else error
        task, comes_back = self.task, True
        if isinstance(error, WorkerLostError):
            comes_back = (task.acks_late and task.reject_on_worker_lost) or getattr(task, "retry_on_worker_lost", False)
        elif isinstance(error, TimeLimitExceeded):
            comes_back = task.acks_late and not getattr(task, "acks_on_timeout", task.acks_on_failure_or_timeout)
        if not comes_back:
            task.once_free(self.id, self.args, self.kwargs, fields=self.request_dict, is_dead=True)
        return super().on_failure(exc_info, send_failed_event, return_ok)
