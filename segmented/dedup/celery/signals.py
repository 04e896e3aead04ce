"""Signal handlers of a worker: a revoked or expired message frees its key; an ending process closes its connections.

A worker's parent process also learns when a run was ended from outside, and frees the key of that message at once.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Literal

from billiard.einfo import ExceptionWithTraceback  # type: ignore[attr-defined]  # its stubs do not know of it
from billiard.exceptions import TimeLimitExceeded, WorkerLostError
from celery.signals import task_revoked, worker_process_shutdown, worker_ready, worker_shutdown
from celery.worker.request import Request
from celery.worker.state import revoked

from segmented.dedup.celery.settings import close_stores
from segmented.dedup.celery.task import Once
from segmented.errors import SegmentedError

if TYPE_CHECKING:
    from celery.app.task import Context

_log = logging.getLogger("segmented.dedup")


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


@worker_process_shutdown.connect
@worker_shutdown.connect
def close(**_: object) -> None:
    """Close the connections that this process opened."""
    close_stores()


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
