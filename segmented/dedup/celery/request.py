"""Frees the key of a message at once when the worker's parent process learns that its run was ended from outside."""

from __future__ import annotations

from typing import Any

from billiard.einfo import ExceptionWithTraceback  # type: ignore[attr-defined]  # its stubs do not know of it
from billiard.exceptions import TimeLimitExceeded, WorkerLostError
from celery.worker.request import Request


class OnceRequest(Request):
    """The request of a deduplicated task. A message that will not return frees its key before its end is announced."""

    task: Any  # a `Once`, with attributes that Celery's stubs lack

    def on_failure(self, exc_info: Any, send_failed_event: Any = True, return_ok: Any = False) -> Any:  # noqa: ANN401, FBT002  # Celery's signature
        """Free the key of a task whose process died, or is about to be ended at its hard time limit."""
        error = exc_info.exception
        error = error.exc if isinstance(error, ExceptionWithTraceback) else error
        task, comes_back = self.task, True
        if isinstance(error, WorkerLostError):
            comes_back = (task.acks_late and task.reject_on_worker_lost) or task.retry_on_worker_lost
        elif isinstance(error, TimeLimitExceeded):
            comes_back = task.acks_late and not task.acks_on_timeout
        if not comes_back:
            task.once_free(self.id, self.args, self.kwargs, headers=self.request_dict, is_dead=True)
        return super().on_failure(exc_info, send_failed_event, return_ok)
