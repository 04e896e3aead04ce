"""The worker's consumer and its pool: no message is lost when it cannot be decoded, or when the pool stops.

A message whose body cannot be decoded is kept. Celery acknowledges some of them with a line in its log, and exits at
others, which would return to the queue and end the next worker.

A prefork pool that is stopped reads its children's answers until the last child has ended. Celery stops reading once it
knows of no task in a child's hands, but it forgets some: on stopping, and when the broker is lost, it drops each task
whose beginning no child has reported. Such a task may already be in a child's pipe, and the child runs it to its end.
Then the child waits half a minute for its answer to be read, and the worker waits for the child; a task that hangs is
not ended at its time limit; and the message of a finished task returns to the queue and runs again. A worker under
load meets this at one stop of every few.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from celery.worker.consumer import Consumer
from kombu.exceptions import ContentDisallowed, DecodeError
from vine import promise

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PREFORK: Final = "celery.concurrency.prefork"


class KeepingConsumer(Consumer):
    """A Celery consumer that survives such messages."""

    def on_close(self) -> None:
        """Discard tasks that nobody has begun, but not those that a child is about to begin."""
        with remembered(self.pool):
            super().on_close()

    def stop(self) -> None:
        """Stop; the pool is stopped next. `on_close` is left out if there is no broker."""
        super().stop()
        listen_to_the_end(self.pool)

    def on_decode_error(self, message: Any, exc: Exception) -> None:  # noqa: ANN401  # kombu's
        """Keep the message before it is acknowledged."""
        _keep(message, exc)
        super().on_decode_error(message, exc)

    def create_task_handler(self, promise: type[promise] = promise) -> Callable[..., Any]:
        """Return Celery's handler of messages, preceded by a check of the body, which is still decoded only once."""
        handle = super().create_task_handler(promise)

        def handle_readable(message: Any) -> None:  # noqa: ANN401  # kombu's
            try:
                wrong = _fault_of(message.payload)
            except (DecodeError, ContentDisallowed):
                wrong = ""  # Celery handles these
            except Exception as error:  # noqa: BLE001  # a decoder may raise anything for a foreign body
                wrong = str(error) or type(error).__name__
            if wrong:
                _keep(message, ValueError(wrong))
                message.ack()
            else:
                handle(message)

        return handle_readable


def _fault_of(payload: object) -> str:
    """Return what Celery would reject in a decoded body: an object, or arguments, named arguments and the rest."""
    match payload:
        case dict() | [list() | tuple(), dict(), _]:
            return ""
        case _:
            return f"its body is of type {type(payload).__name__}, and not what Celery sends"


def _keep(message: Any, reason: BaseException) -> None:  # noqa: ANN401  # kombu's
    from segmented.celery.messages import keep_rejected  # noqa: PLC0415  # Celery loads this before it knows the settings

    keep_rejected(message=message, exc=reason)


@contextmanager
def remembered(pool: Any) -> Iterator[None]:  # noqa: ANN401  # Celery's pool, of any kind
    """Remember tasks that were handed to a pool that is shutting down in order: they are acknowledged then.

    When the broker is lost it is right to forget them: its messages will be delivered again.
    """
    processes = _ending(pool)
    jobs = _handed_over(processes) if processes is not None else []
    yield
    for job in jobs:
        processes._cache.setdefault(job._job, job)  # noqa: SLF001  # there is no other way in


def listen_to_the_end(pool: Any) -> None:  # noqa: ANN401  # Celery's pool, of any kind
    """Make a prefork pool that is shutting down in order read answers until it has no children left.

    It reads as long as there is a task, so it gets a task that belongs to nobody and never ends.
    """
    processes = _ending(pool)
    if processes is not None:
        from billiard.pool import ApplyResult  # noqa: PLC0415  # loaded only by prefork workers

        ApplyResult(processes._cache, None)  # noqa: SLF001  # it enters itself


def _ending(pool: Any) -> Any:  # noqa: ANN401  # billiard's
    """Return the processes of a prefork pool that takes no more tasks; None for other pools and for a terminated one.

    Also None for the pool that Celery creates without an event loop: that one reads in a thread, and forgets nothing.
    """
    if type(pool).__module__ != PREFORK or getattr(pool, "flush", None) is None:
        return None
    from billiard.pool import CLOSE  # noqa: PLC0415  # as above

    processes = pool._pool  # noqa: SLF001  # only it knows its children
    return processes if processes is not None and processes._state == CLOSE else None  # noqa: SLF001  # as Celery does


def _handed_over(processes: Any) -> list[Any]:  # noqa: ANN401  # billiard's
    """Return the tasks that are complete in the pipe of a living child but have not begun."""
    return [
        job
        for job in processes._cache.values()  # noqa: SLF001  # the tasks that await an answer
        if not job._accepted and _is_written(job) and job._write_to._is_alive()  # noqa: SLF001  # as Celery does
    ]


def _is_written(job: Any) -> bool:  # noqa: ANN401  # billiard's
    if job._write_to is None:  # noqa: SLF001  # it waits in the pool for a free child
        return False
    writer = getattr(job, "_writer", None)  # a weak reference to a generator, gone or exhausted at the end
    generator = writer() if writer is not None else None
    return generator is None or generator.gi_frame is None
