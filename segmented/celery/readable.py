"""The shape that a message must have before a worker passes it to Celery: its headers and its body, checked as a whole.

Celery trusts them. A header of a wrong type ends the worker and the next one, since the message returns to the queue;
an unexpected part of the body ends the task without an answer, so that its message is never acknowledged. Twelve of
those silence a worker with threads.

A value that is nested deeply ends what follows anywhere: pickle fails when a prefork worker passes the message to a
child, and Celery then counts that child as busy forever.
"""

from __future__ import annotations

import inspect
import logging
import math
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from celery.app.task import Context
from celery.utils.imports import symbol_by_name
from celery.utils.time import maybe_iso8601, maybe_make_aware

from segmented.celery.messages import keep_unreadable, text_of_message
from segmented.clock import WallClock
from segmented.models import shortened

if TYPE_CHECKING:
    from collections.abc import Callable

    from celery import Celery, Task

    Rule = tuple[Callable[[Any], bool], str]

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
log = logging.getLogger(__name__)


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


def _is_whole(value: object, most: int = RETRIES_MAX) -> bool:
    return type(value) is int and 0 <= value <= most


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


LATEST: Final = datetime(9_999, 1, 1, tzinfo=UTC).timestamp()
ANYTHING: Final[Rule] = (lambda _: True, "")
NAME: Final[Rule] = (_is_name, "a text")
TEXT: Final[Rule] = (lambda value: value is None or isinstance(value, str), "a text or null")
TIME: Final[Rule] = (_is_time, "a time in ISO 8601 or null")
WHOLE: Final[Rule] = (
    lambda value: value is None or _is_whole(value),
    f"a whole number of up to {RETRIES_MAX:,} or null",
)
FLAG: Final[Rule] = (lambda value: value is None or isinstance(value, bool), "true, false or null")
OBJECT: Final[Rule] = (lambda value: value is None or isinstance(value, dict), "an object or null")
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
SHADOWING: Final = frozenset(one for one in dir(Context) if one.startswith("_") or callable(getattr(Context, one)))
"""Methods of a task's request: Celery makes an attribute of each header, and would call the header."""
