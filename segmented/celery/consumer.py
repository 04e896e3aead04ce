"""The worker's consumer and its pool: no message is lost when it cannot be decoded, or when the pool stops.

A message that Celery cannot run is kept. Celery acknowledges some of them with a line in its log, and exits at others,
which would return to the queue and end the next worker. Any program can write into the list of a queue on a Redis
broker: kombu creates a message from each item without a check, so an error ends the worker, and the item is gone. So
the channel that reads here keeps such an item, and continues.

A prefork pool that is stopped reads its children's answers until the last child has ended. Celery stops reading once it
knows of no task in a child's hands, but it forgets some: on stopping, and when the broker is lost, it drops each task
whose beginning no child has reported. Such a task may already be in a child's pipe, and the child runs it to its end.
Then the child waits half a minute for its answer to be read, and the worker waits for the child; a task that hangs is
not ended at its time limit; and the message of a finished task returns to the queue and runs again. A worker under
load meets this at one stop of every few.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from celery.worker.consumer import Consumer
from vine import promise

from segmented.celery.celery_settings import STRATEGY
from segmented.celery.messages import keep_unreadable
from segmented.celery.readable import Unreadable, check_message, drop
from segmented.errors.base import FOREIGN
from segmented.models import shortened

PREFORK: Final = "celery.concurrency.prefork"
READER: Final = "BRPOP"
log = logging.getLogger(__name__)


class KeepingConsumer(Consumer):
    """A Celery consumer that survives such messages."""

    connection_errors: tuple[type[Exception], ...]
    task_consumer: Any

    def on_close(self) -> None:
        """Discard tasks that nobody has begun, but not those that a child is about to begin."""
        with remembered(self.pool):
            super().on_close()

    def stop(self) -> None:
        """Stop; the pool is stopped next. `on_close` is left out if there is no broker."""
        super().stop()
        listen_to_the_end(self.pool)

    def on_decode_error(self, message: Any, exc: Exception) -> None:  # noqa: ANN401  # kombu's
        """Keep a message whose compression or text cannot be undone."""
        drop(message, exc, self.connection_errors)

    def create_task_handler(self, promise: type[promise] = promise) -> Callable[..., Any]:
        """Return Celery's handler of messages, preceded by the check, which decodes the body once for both."""
        survive_foreign_items(self.task_consumer.channel)
        reuse_client(self.task_consumer.channel)
        handle = super().create_task_handler(promise)

        def handle_readable(message: Any) -> None:  # noqa: ANN401  # kombu's
            try:
                if not self._has_strategy(message.headers):
                    check_message(message)
                handle(message)
            except FOREIGN as error:  # an error of Celery's own would end the worker, and each one after it
                if message.acknowledged:
                    raise
                if not isinstance(error, Unreadable):
                    log.warning("Celery cannot begin a message", exc_info=error)
                drop(message, error, self.connection_errors)

        return handle_readable

    def _has_strategy(self, headers: object) -> bool:
        """Return whether the message is for a task of ours, whose strategy checks it."""
        name = headers.get("task") if isinstance(headers, dict) else None
        task = self.app.tasks.get(name) if isinstance(name, str) else None
        return task is not None and task.Strategy == STRATEGY


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
    from billiard.pool import CLOSE  # noqa: PLC0415  # loaded only by prefork workers

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


class NotAMessage(ValueError):
    """An item that is JSON, but not a message."""

    def __init__(self, item: object, wrong: str) -> None:
        super().__init__(wrong)
        self.doc = json.dumps(item)
        """The item, under the name that JSONDecodeError has for it."""


def survive_foreign_items(channel: Any) -> None:  # noqa: ANN401  # kombu's, of any transport
    """Make a channel keep such items, if it reads a Redis list; other brokers deliver nothing but messages."""
    read = getattr(channel, "handlers", {}).get(READER)
    if read is None or isinstance(read, partial):  # or it was done before
        return
    channel.handlers[READER] = partial(_read_any, read)
    channel.Message = _checked(channel.Message, frozenset(channel.codecs))


def reuse_client(channel: Any) -> None:  # noqa: ANN401  # kombu's, of any transport
    """Make a channel of a Redis broker reuse its client; it creates one for each message and each acknowledgement.

    That takes as long as both do. The client has no connection of its own: it takes one from the channel's pool.
    """
    make = getattr(channel, "conn_or_acquire", None)
    if make is None:
        return
    kept: Any = None

    @contextmanager
    def acquired(client: Any = None) -> Iterator[Any]:  # noqa: ANN401  # redis-py's
        nonlocal kept
        if client is None and (kept is None or kept.connection_pool is not channel.pool):
            with make() as kept:  # it closes nothing
                pass
        yield kept if client is None else client

    channel.conn_or_acquire = acquired


def _read_any(read: Callable[..., Any], **options: Any) -> Any:  # noqa: ANN401  # kombu's
    try:
        return read(**options)
    except FOREIGN as error:
        reason = f"it is not a message: {shortened(str(error) or type(error).__name__)}"
        text = getattr(error, "doc", getattr(error, "object", f"(unknown: {reason})"))  # what JSON or UTF-8 failed at
        keep_unreadable(text.decode(errors="replace") if isinstance(text, bytes) else text, reason)
        return True  # an item was read


def _checked(message_type: type[Any], codecs: frozenset[str]) -> type[Any]:
    """Return the channel's type of messages, preceded by the check."""

    class CheckedMessage(message_type):  # type: ignore[misc]  # known at run time only
        def __init__(self, item: Any, **options: Any) -> None:  # noqa: ANN401  # as JSON has it
            wrong = _fault_of(item, codecs)
            if wrong:
                raise NotAMessage(item, wrong)
            super().__init__(item, **options)

    return CheckedMessage


def _fault_of(item: Any, codecs: frozenset[str]) -> str:  # noqa: ANN401  # as JSON has it
    """Return what is missing or of a wrong type around the headers and the body, or an empty text."""
    properties = item.get("properties") if isinstance(item, dict) else None
    if not isinstance(properties, dict):
        return "it has no properties"
    if not (isinstance(item.get("headers"), dict) and isinstance(item.get("body"), str)):
        return "its headers must be an object and its body a text"
    tag, place = properties.get("delivery_tag"), properties.get("delivery_info")
    if not (isinstance(tag, str) and tag):
        return "its delivery tag must be a text"
    if not (isinstance(place, dict) and all(isinstance(place.get(one), str) for one in ("exchange", "routing_key"))):
        return "its delivery info must name an exchange and a routing key"
    encoding = properties.get("body_encoding")
    if not (encoding is None or (isinstance(encoding, str) and encoding in codecs)):
        return f"its body encoding {shortened(encoding)} is unknown"
    texts = [item.get(one) for one in ("content-type", "content-encoding")]
    texts += [properties.get(one) for one in ("reply_to", "correlation_id")]
    if not all(one is None or isinstance(one, str) for one in texts):
        return "its content type, content encoding, reply_to and correlation_id must be texts"
    priority = properties.get("priority")
    return "" if priority is None or type(priority) is int else f"its priority is {shortened(priority)}"
