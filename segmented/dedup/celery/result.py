"""The handle of a deduplicated task: that of the first message, for every repeat."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from celery import states
from celery.result import AsyncResult

from segmented.dedup.errors import DedupError
from segmented.protocol import CancelMessage

if TYPE_CHECKING:
    from segmented.dedup.celery.plan import OncePlan
    from segmented.dedup.outcomes import OutcomeForm
    from segmented.models.dedup import OutcomeKept, RecordName


class OnceResult(AsyncResult[Any]):
    """A handle, as Celery's, of the message that has the key. Handles of equal ids are equal."""

    once_key: str | None = None
    """The record's key, as `segmented dedup list` shows it; None when the handle was made from an id alone."""
    is_repeat = False
    """Was nothing published for it?"""

    def revoke(self, *arguments: Any, **passed_on: Any) -> None:  # noqa: ANN401  # as Celery's own
        """Revoke the task, as Celery does, and free its key at once unless a worker is at it.

        Celery's own revocation lives in the memory of workers. This one is noted in the record, so a worker that was
        started later refuses the message too. A handle that was made from an id alone does what Celery does.
        """
        super().revoke(*arguments, **passed_on)
        if self._record is not None and self._plan is not None:
            terms = self._plan.terms
            self._plan.store.execute(CancelMessage(self._record, self.id, terms.remember_ms, terms.run_on))

    _record: RecordName | None = None
    _plan: OncePlan | None = None

    def belongs(self, plan: OncePlan, record: RecordName) -> OnceResult:
        """Remember which record it is, so that `revoke` can free it."""
        self.once_key, self._plan, self._record = record.key, plan, record
        return self

    def ended(self, key: str, outcome: OutcomeKept, form: OutcomeForm) -> OnceResult:
        """Hold an outcome that the record has kept: it is given without asking the result backend."""
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
