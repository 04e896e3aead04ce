"""`Once`: the base class of deduplicated tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from celery import Task
from celery.exceptions import TimeLimitExceeded

from segmented.dedup.celery.execution import Execution
from segmented.dedup.celery.header import header_of
from segmented.dedup.celery.plan import OncePlan, body_of, checked_rule
from segmented.dedup.celery.publication import Publication
from segmented.dedup.celery.result import OnceResult
from segmented.operations import CancelMessage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from celery import Celery
    from celery.result import AsyncResult

    from segmented.dedup.celery.rule import OnceRule
    from segmented.dedup.run import Run


class Once(Task):  # type: ignore[type-arg]  # its stubs make it generic, which the class itself is not
    """A task that runs once a key, however often it is published or delivered.

    ```python
    app.conf.update(once_url="redis://localhost:6379/2")


    @app.task(base=Once, once=OnceRule("{order_id}", keep=3600))
    def charge(order_id: str, amount: int) -> str: ...


    charge.delay("o-7", 5)  # runs
    charge.delay("o-7", 5)  # the same handle, and for an hour the same result
    charge.delay("o-7", 6)  # OtherPayload
    ```

    Checked at publication and again in the worker, so that neither a redelivery nor a publisher without this library
    gets round it. What is done outside Redis and SQL may still be done twice by a worker that dies in the middle: see
    `ExternalEffect`. A plain call, `charge("o-7", 5)`, is a plain call.
    """

    abstract = True
    once: ClassVar[OnceRule | str | None] = None
    """The rule; a text is short for `OnceRule(text)`. None: an ordinary task."""
    _once_plan: ClassVar[OncePlan | None] = None

    @classmethod
    def bind(cls, app: Celery) -> Celery:
        """Check the rule against the task's arguments. Celery does so when the app is finalized, or at once with
        `lazy=False`.
        """  # noqa: D205  # one sentence in two lines
        bound: Celery = super().bind(app)
        if cls.once is not None:
            name = str(cls.name)
            cls._once_plan = OncePlan(app, name, body_of(cls), checked_rule(name, cls.once))
        return bound

    @property
    def once_run(self) -> Run:
        """The run of the message in hand: its fencing token, its `provider_key`, what it is to finish with."""
        return self.request.once_run  # type: ignore[attr-defined, no-any-return]  # set by the execution

    def once_key(self, *arguments: Any, **passed_on: Any) -> str:  # noqa: ANN401  # the task's own arguments
        """Return the record's key of a call with these arguments, as `segmented dedup explain` takes it."""
        return self._plan.identity(arguments, passed_on).key

    @property
    def _plan(self) -> OncePlan:
        if self._once_plan is None:
            message = f"task {self.name!r} has no once"
            raise TypeError(message)
        return self._once_plan

    def __call__(self, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401  # the task's own
        """Run: in a worker under the record, else as a plain call."""
        if self._once_plan is None or self.request.called_directly:
            return super().__call__(*arguments, **options)
        return Execution(self, self._once_plan, self.request, arguments, options).execute()

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
        """Publish as Celery does, unless it is a repeat. `once_key` is an explicit key in place of the rule's.

        Raises OtherPayload for a key that was used with another payload, InFlight where the rule says so, and
        StoreUnavailable when the records cannot be reached and `once_when_down` is `refuse`.
        """
        given = {"task_id": task_id, "link": link, "link_error": link_error, **passed_on}

        def send(changed: dict[str, Any]) -> AsyncResult[Any]:
            return super(Once, self).apply_async(args, kwargs, producer=producer, shadow=shadow, **changed)

        is_sent_before = task_id is not None and header_of(passed_on.get("headers"), task_id) is not None
        if self._once_plan is None or is_sent_before:  # an attempt, or a copy that goes round, keeps its claim
            return send(given)
        identity = self._once_plan.identity(args, kwargs, given=once_key)
        return Publication(self._once_plan, identity, given, send, self.AsyncResult).publish()

    def AsyncResult(self, task_id: str, **passed_on: Any) -> OnceResult:  # noqa: ANN401, N802  # Celery's own name
        """Return the handle of a message id."""
        return OnceResult(task_id, backend=self.backend, task_name=self.name, app=self.app, **passed_on)

    def on_failure(self, exc: Exception, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:  # noqa: ANN401  # as Celery's own
        """Free the key of a task that ran over its hard time limit: the worker ends its process."""
        if isinstance(exc, TimeLimitExceeded):
            self.once_cancel(task_id, args, kwargs, headers=None, is_dead=self._is_acknowledged_on_timeout())
        super().on_failure(exc, task_id, args, kwargs, einfo)

    def _is_acknowledged_on_timeout(self) -> bool:
        return not self.acks_late or bool(self.acks_on_failure_or_timeout)

    def once_cancel(
        self,
        message: str,
        args: Sequence[Any] | None,
        kwargs: Mapping[str, Any] | None,
        *,
        headers: Mapping[str, Any] | None,
        is_dead: bool,
    ) -> None:
        """See to it that a message does not begin, and free its key; with `is_dead` also from a run that is over."""
        if self._once_plan is None:
            return
        plan = self._once_plan
        header = header_of(headers, message)
        key = header.key if header is not None else plan.identity(args, kwargs).key
        plan.store.execute(
            CancelMessage(plan.record(key), message, plan.terms.remember_ms, plan.terms.run_on, is_dead=is_dead)
        )
