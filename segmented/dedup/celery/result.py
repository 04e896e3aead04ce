"""The handle of a deduplicated task. Every repeat gets that of the first message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from celery import states
from celery.result import AsyncResult

from segmented.errors import DedupError
from segmented.protocol import CancelMessage

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
