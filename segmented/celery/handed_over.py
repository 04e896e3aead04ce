"""A prefork pool that is stopped reads what its children say until the last of them has ended.

Celery stops reading once it knows of no task in a child's hands. But it forgets some: on stopping, and when the broker
is lost, it drops each task whose beginning no child has reported, and such a task may stand in a child's pipe already.
The child runs it to its end all the same. Then it waits half a minute for somebody who reads its answer, and the worker
waits for the child; a task that hangs is not ended at its time limit; and the message of one that is finished goes back
into the queue, to be worked on again. A worker under load meets that at one stop of every few.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

PREFORK: Final = "celery.concurrency.prefork"


@contextmanager
def remembered(pool: Any) -> Iterator[None]:  # noqa: ANN401  # Celery's pool, of any kind
    """Keep such tasks in mind over what is done here, if the pool is about to end in order: they are acknowledged then.

    When the broker is lost they are rightly forgotten: what it had sent will be delivered anew.
    """
    processes = _ending(pool)
    jobs = _handed_over(processes) if processes is not None else []
    yield
    for job in jobs:
        processes._cache.setdefault(job._job, job)  # noqa: SLF001  # there is no other way in


def listen_to_the_end(pool: Any) -> None:  # noqa: ANN401  # Celery's pool, of any kind
    """Have a prefork pool that is about to end in order listen until it has no children any more.

    It listens as long as there is a task, so it gets one that nobody has and that never ends.
    """
    processes = _ending(pool)
    if processes is not None:
        from billiard.pool import ApplyResult  # noqa: PLC0415  # only prefork's workers have it loaded

        ApplyResult(processes._cache, None)  # noqa: SLF001  # it enters itself


def _ending(pool: Any) -> Any:  # noqa: ANN401  # billiard's
    """Return the processes of a prefork pool that takes no more tasks; None for others, and for one that is cut off.

    None, too, for what Celery makes where it has no event loop: that listens in a thread, and forgets nothing.
    """
    if type(pool).__module__ != PREFORK or getattr(pool, "flush", None) is None:
        return None
    from billiard.pool import CLOSE  # noqa: PLC0415  # as above

    processes = pool._pool  # noqa: SLF001  # the one thing that knows its children
    return processes if processes is not None and processes._state == CLOSE else None  # noqa: SLF001  # as Celery asks


def _handed_over(processes: Any) -> list[Any]:  # noqa: ANN401  # billiard's
    """Return the tasks that are wholly in the pipe of a living child, and not yet begun."""
    return [
        job
        for job in processes._cache.values()  # noqa: SLF001  # the tasks whose answers are waited for
        if not job._accepted and _is_written(job) and job._write_to._is_alive()  # noqa: SLF001  # as Celery asks
    ]


def _is_written(job: Any) -> bool:  # noqa: ANN401  # billiard's
    if job._write_to is None:  # noqa: SLF001  # it waits in the pool for a child that is free
        return False
    writer = getattr(job, "_writer", None)  # a weak reference to a generator, gone or exhausted at the end
    generator = writer() if writer is not None else None
    return generator is None or generator.gi_frame is None
