"""Signal handlers of a worker: a revoked or expired message frees its key; an ending process closes its connections."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from celery.signals import task_revoked, worker_process_shutdown, worker_shutdown

from segmented.dedup.celery.settings import close_stores
from segmented.dedup.celery.task import Once

if TYPE_CHECKING:
    from celery.app.task import Context


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
    sender.once_free(str(request.id), request.args, request.kwargs, headers=request.headers, is_dead=bool(terminated))


@worker_process_shutdown.connect
@worker_shutdown.connect
def close(**_: object) -> None:
    """Close the connections that this process opened."""
    close_stores()
