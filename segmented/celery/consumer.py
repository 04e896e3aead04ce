"""The worker's consumer and its pool: no message is lost when it cannot be decoded or read, or when the pool stops.

A message that Celery cannot run is kept. Celery acknowledges some of them with a line in its log, and exits at others,
which would return to the queue and end the next worker. Any program can write into the list of a queue on a Redis
broker: kombu creates a message from each item without a check, so an error ends the worker, and the item is gone. So
the channel that reads here keeps such an item, and continues.

Celery trusts headers and body, so they are checked as a whole first. A header of a wrong type ends the worker and the
next one, since the message returns to the queue; an unexpected part of the body ends the task without an answer, so
that its message is never acknowledged. Twelve of those silence a worker with threads. A value that is nested deeply
ends what follows anywhere: pickle fails when a prefork worker passes the message to a child, and Celery then counts
that child as busy forever.

A prefork pool that is stopped reads its children's answers until the last child has ended. Celery stops reading once it
knows of no task in a child's hands, but it forgets some: on stopping, and when the broker is lost, it drops each task
whose beginning no child has reported. Such a task may already be in a child's pipe, and the child runs it to its end.
Then the child waits half a minute for its answer to be read, and the worker waits for the child; a task that hangs is
not ended at its time limit; and the message of a finished task returns to the queue and runs again. A worker under
load meets this at one stop of every few.
"""

from __future__ import annotations

import inspect
import json
import logging
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final

from celery.app.task import Context
from celery.utils.imports import symbol_by_name
from celery.utils.time import maybe_iso8601, maybe_make_aware
from celery.worker.consumer import Consumer
from vine import promise

from segmented.celery.apps import STRATEGY
from segmented.celery.messages import keep_unreadable, text_of_message
from segmented.clock import WallClock
from segmented.errors.base import FOREIGN
from segmented.models import shortened

if TYPE_CHECKING:
    from collections.abc import Callable

    from celery import Celery, Task

    Rule = tuple[Callable[[Any], bool], str]

PREFORK: Final = "celery.concurrency.prefork"
READER: Final = "BRPOP"
log = logging.getLogger(__name__)
DEFAULT_STRATEGY: Final = "celery.worker.strategy:default"
ETA_SECONDS_MAX: Final = 3_600.0
"""How far ahead the time of one of our tasks may be. Their retries wait for seconds, and a clock may be wrong."""
LIMIT_MIN: Final = 1.0
"""Minimum time limit of a message of our tasks, in seconds, unless the worker's own is shorter. A message has its
publisher's limit; a tiny one would end child after child, since the message returns each time."""
RETRIES_MAX: Final = 2**31
CONTAINERS: Final = (list, tuple, dict)
DEPTH_MAX: Final = 100
"""Maximum number of lists and objects inside one another, anywhere in a message. Pickle takes some 480."""
WALL: Final = WallClock()
LATEST: Final = datetime(9_999, 1, 1, tzinfo=UTC).timestamp()
SHADOWING: Final = frozenset(one for one in dir(Context) if one.startswith("_") or callable(getattr(Context, one)))
"""Methods of a task's request: Celery makes an attribute of each header, and would call the header."""


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


class Unreadable(ValueError):
    """A message that Celery must not get; the text says what is wrong with it."""


def strategy(task: Task[Any, Any], app: Celery, consumer: Any) -> Callable[..., Any]:  # noqa: ANN401  # Celery's
    """Return Celery's own handler of this task's messages, preceded by the check: the `Strategy` of our tasks."""
    handle = symbol_by_name(DEFAULT_STRATEGY)(task, app, consumer)

    def handle_readable(message: Any, *rest: Any, **named: Any) -> Any:  # noqa: ANN401  # Celery's
        try:
            check_message(message, task)
        except Unreadable as wrong:
            drop(message, wrong, consumer.connection_errors)
            return None
        return handle(message, *rest, **named)

    return handle_readable


def drop(message: Any, wrong: Exception, errors: tuple[type[Exception], ...]) -> None:  # noqa: ANN401  # kombu's
    """Keep a message for the operator, then acknowledge it."""
    keep_unreadable(text_of_message(message), str(wrong) or type(wrong).__name__)
    message.ack_log_error(log, errors)


def check_message(message: Any, task: Task[Any, Any] | None = None) -> None:  # noqa: ANN401  # kombu's
    """Raise Unreadable unless Celery can run the message; with one of our tasks, check what these require as well."""
    try:
        body = message.payload
    except Exception as error:  # a decoder may raise anything for a foreign body
        raise Unreadable(f"it cannot be decoded: {shortened(str(error) or type(error).__name__)}") from error
    headers = message.headers
    if _is_deep([body, headers, message.properties]):
        raise Unreadable(f"it has more than {DEPTH_MAX} lists and objects inside one another")
    if isinstance(body, dict) and "args" in body and isinstance(headers, dict):  # protocol 1: all is in the body
        fields = {**body, **headers}
        parts, named, rest = body["args"], body.get("kwargs", {}), None
    elif isinstance(body, list | tuple) and len(body) == 3 and isinstance(headers, dict):  # noqa: PLR2004  # as protocol 2 has
        fields = headers
        parts, named, rest = body
    else:
        raise Unreadable(f"its body is of type {type(body).__name__}, and not what Celery sends")
    _check_fields(fields)
    if not isinstance(parts, list | tuple) or not isinstance(named, dict):
        raise Unreadable(f"its body must have a list of arguments and an object of named ones: {shortened(body)}")
    if rest is not None and not (isinstance(rest, dict) and rest.keys() <= LINKS.keys()):
        reason = f"the third part of its body is {shortened(rest)}: an object with {', '.join(LINKS)} is possible"
        raise Unreadable(reason)
    _check_fields(rest or {}, required=())
    if task is not None:
        _check_own(task, fields, parts, named)


def _is_deep(level: list[Any]) -> bool:
    """Return whether a value is nested deeper than `DEPTH_MAX` below these; goes down level by level."""
    for _ in range(DEPTH_MAX + 1):
        if not level:
            return False
        containers = [one.values() if isinstance(one, dict) else one for one in level if isinstance(one, CONTAINERS)]
        level = [inner for one in containers for inner in one]
    return bool(level)


def _check_fields(fields: dict[str, Any], required: tuple[str, ...] = ("task", "id")) -> None:
    for name in required:
        if name not in fields:
            raise Unreadable(f"it has no header {name!r}")
    for name, value in fields.items():
        if name in SHADOWING:
            raise Unreadable(f"its header {name!r} has a name that Celery uses for itself")
        is_right, wanted = RULES.get(name, ANYTHING)
        if not is_right(value):
            raise Unreadable(f"its header {name!r} is {shortened(value)}: it must be {wanted}")


def _check_own(task: Task[Any, Any], fields: dict[str, Any], parts: Any, named: dict[str, Any]) -> None:  # noqa: ANN401  # as JSON has it
    """Raise Unreadable for a message of one of our tasks that no publisher of ours sends."""
    limits, own = fields.get("timelimit") or (None, None), (task.time_limit, task.soft_time_limit)
    if any(limits) and any(
        given and given < min(least or LIMIT_MIN, LIMIT_MIN) for given, least in zip(limits, own, strict=True)
    ):
        raise Unreadable(f"it sets a time limit of {shortened(limits)}: {LIMIT_MIN:g} s is the least")
    if (fields.get("retries") or 0) > (task.max_retries or 0):
        raise Unreadable(f"it has {fields['retries']:,} retries: {task.name} has up to {task.max_retries or 0}")
    eta = fields.get("eta")
    if eta is not None and _timestamp(eta) - WALL.now() > ETA_SECONDS_MAX:
        raise Unreadable(f"its time is {shortened(eta)}: {task.name} waits up to {ETA_SECONDS_MAX:,g} s")
    signature = _signature_of(task)
    if signature is None:
        return
    try:
        signature.bind(*parts, **named)
    except TypeError as error:
        raise Unreadable(f"its arguments are not those of {task.name}: {error}") from error


@cache
def _signature_of(task: Task[Any, Any]) -> inspect.Signature | None:
    """Return what a task of ours takes, or None if it takes anything; every message is checked, so it is remembered."""
    found = inspect.signature(task.run)
    kinds = {one.kind for one in found.parameters.values()}
    return None if kinds == {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD} else found


# --- one field ---


def _timestamp(value: str) -> float:
    at = maybe_iso8601(value)
    return maybe_make_aware(at, UTC).timestamp() if at is not None else 0


def _is_time(value: object) -> bool:
    """Return whether it is a time that Celery can convert; it computes with time zones at the ends of the calendar."""
    if not isinstance(value, str):
        return value is None
    try:
        return 0 <= _timestamp(value) <= LATEST
    except Exception:  # noqa: BLE001  # Celery's parser and Python's calendar raise many kinds
        return False


def _is_limit(value: object) -> bool:
    return value is None or (type(value) in {int, float} and 0 < value < math.inf)  # type: ignore[operator]  # a number


def _is_limits(value: object) -> bool:
    return value is None or (isinstance(value, list | tuple) and len(value) == 2 and all(map(_is_limit, value)))  # noqa: PLR2004  # a hard one and a soft one


def _is_signature(value: object) -> bool:
    """Return whether it is a task to call, as Celery writes it."""
    if not isinstance(value, dict) or not _is_name(value.get("task")):
        return False
    shapes = (value.get("args"), list | tuple), (value.get("kwargs"), dict), (value.get("options"), dict)
    return all(isinstance(part, shape) for part, shape in shapes)


def _is_signatures(value: object) -> bool:
    return value is None or (isinstance(value, list | tuple) and all(map(_is_signature, value)))


def _is_name(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _is_names(value: object) -> bool:
    return value is None or (isinstance(value, list | tuple) and all(map(_is_name, value)))


ANYTHING: Final[Rule] = (lambda _: True, "")
TEXT: Final[Rule] = (lambda value: value is None or isinstance(value, str), "a text or null")
FLAG: Final[Rule] = (lambda value: value is None or isinstance(value, bool), "true, false or null")
OBJECT: Final[Rule] = (lambda value: value is None or isinstance(value, dict), "an object or null")
NAME: Final[Rule] = (_is_name, "a text")
TIME: Final[Rule] = (_is_time, "a time in ISO 8601 or null")
WHOLE: Final[Rule] = (
    lambda value: value is None or (type(value) is int and 0 <= value <= RETRIES_MAX),
    f"a whole number of up to {RETRIES_MAX:,} or null",
)
LINKS: Final[dict[str, Rule]] = {
    "callbacks": (_is_signatures, "a list of tasks or null"),
    "errbacks": (_is_signatures, "a list of tasks or null"),
    "chain": (_is_signatures, "a list of tasks or null"),
    "chord": (lambda value: value is None or _is_signature(value), "a task or null"),
}
"""Fields that name tasks to call afterwards: the third part of a body has them, and nothing else."""
RULES: Final[dict[str, Rule]] = {
    **LINKS,
    **dict.fromkeys(("task", "id"), NAME),
    **dict.fromkeys(("root_id", "parent_id", "group", "taskset", "shadow", "lang", "meth"), TEXT),
    **dict.fromkeys(("argsrepr", "kwargsrepr", "origin", "hostname", "compression", "logfile"), TEXT),
    **dict.fromkeys(("reply_to", "correlation_id"), TEXT),
    **dict.fromkeys(("eta", "expires"), TIME),
    **dict.fromkeys(("retries", "group_index", "replaced_task_nesting"), WHOLE),
    **dict.fromkeys(("ignore_result", "utc", "is_eager", "redelivered"), FLAG),
    **dict.fromkeys(("stamps", "headers", "properties", "delivery_info"), OBJECT),
    "stamped_headers": (_is_names, "a list of texts or null"),
    "timelimit": (_is_limits, "a list of two numbers above 0, each or all null"),
}
"""Fields that Celery reads, in the headers or, in protocol 1, in the body."""
