"""Write a result or a failure into a record, and read it for a repeat."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from inspect import iscoroutine
from typing import TYPE_CHECKING, Any, Final, TypeVar
from uuid import UUID

from segmented.errors import FailedBefore, InvalidInput, ResultUnkept, StoreRefused
from segmented.locks.call_keys import name_of
from segmented.locks.durations import is_whole

if TYPE_CHECKING:
    from collections.abc import Callable

    from segmented.models.dedup import OutcomeKept, OutcomeKind

V = TypeVar("V")
TYPE: Final = "__segmented_type__"
"""Marks a value that JSON itself cannot write."""
WRITTEN: Final[dict[type, Callable[[Any], object]]] = {
    Decimal: str,
    UUID: str,
    datetime: datetime.isoformat,
    date: date.isoformat,
    time: time.isoformat,
    timedelta: lambda value: [value.days, value.seconds, value.microseconds],
    bytes: lambda value: b64encode(value).decode(),
    tuple: list,
    set: list,
    frozenset: list,
    dict: lambda value: [list(pair) for pair in value.items()],  # one whose keys are not all texts
}
READ: Final[dict[str, Callable[[Any], object]]] = {
    "Decimal": Decimal,
    "UUID": UUID,
    "datetime": datetime.fromisoformat,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "timedelta": lambda parts: timedelta(*parts),
    "bytes": b64decode,
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "dict": dict,
}
DETAIL_LENGTH_MAX: Final = 1_000
DEFAULT_SIZE_MAX: Final = 1_048_576


def dumped(result: object) -> str:
    """Return a result as JSON, in which what JSON lacks is marked, so that `loaded` returns the same.

    That is Decimal, UUID, bytes, the types of datetime, tuples, sets, and dicts whose keys are not all texts.
    Raises TypeError for any other type that JSON does not know, and ValueError for a dict that looks like a mark.
    """
    return json.dumps(_marked(result))


def _marked(value: object) -> object:
    match value:
        case None | str() | int() | float():
            return value
        case list():
            return [_marked(one) for one in value]
        case dict() if TYPE in value:
            raise ValueError(f"the result itself contains {TYPE}")
        case dict() if all(isinstance(key, str) for key in value):
            return {key: _marked(one) for key, one in value.items()}
    kind = next((one for one in (type(value), tuple, dict) if one in WRITTEN and isinstance(value, one)), None)
    if kind is None:
        raise TypeError(f"{type(value).__name__} has no form in JSON: give dump and load")
    return {TYPE: kind.__name__, "value": _marked(WRITTEN[kind](value))}


def loaded(text: str) -> Any:  # noqa: ANN401  # any result
    """Return the result that `dumped` wrote."""
    return json.loads(text, object_hook=_unmarked)


def _unmarked(found: dict[str, Any]) -> object:
    return READ[found[TYPE]](found["value"]) if TYPE in found else found


@dataclass(frozen=True, slots=True)
class OutcomeForm:
    """`dump` turns a result into text of at most `size_max` bytes, and `load` turns it back.

    The default is JSON, in which `dumped` marks what JSON lacks.
    """

    dump: Callable[[Any], str] = dumped
    load: Callable[[str], Any] = loaded
    size_max: int = DEFAULT_SIZE_MAX

    def __post_init__(self) -> None:
        """Check the callables and the size."""
        serializer: tuple[object, object] = (self.dump, self.load)
        if not all(callable(one) for one in serializer):
            raise InvalidInput("dump and load are callables: one makes a text of a result, the other the result again")
        if not is_whole(self.size_max) or self.size_max < 1:
            raise InvalidInput(f"size_max of {self.size_max!r} is not a number of bytes: give 1 or more")

    def written(self, result: object) -> tuple[OutcomeKind, str]:
        """Return the kind and text of a result. A result that cannot be kept does not fail the call."""
        try:
            body = self.dump(result)
            if not isinstance(body, str):
                return "unkept", f"its dump gave {type(body).__name__}, not str"
            size = len(body.encode())
        except Exception as error:  # noqa: BLE001  # a serializer may raise anything
            return "unkept", f"{type(error).__name__}: {error}"[:DETAIL_LENGTH_MAX]
        if size > self.size_max:
            return "unkept", f"it has {size} bytes; the maximum is {self.size_max}"
        return "value", body

    def read(self, key: str, outcome: OutcomeKept) -> Any:  # noqa: ANN401  # any result
        """Return the kept result. Raises FailedBefore for a failure, ResultUnkept if no result was kept."""
        if outcome.kind not in {"value", "effect", "error"}:
            raise ResultUnkept(key, outcome.body)
        try:
            if outcome.kind == "value":
                return self.load(outcome.body)
            found = json.loads(outcome.body)
            failed = FailedBefore(key, **found) if outcome.kind == "error" else None
        except Exception as error:  # any error of the caller's `load`, too
            raise StoreRefused(
                f"the kept outcome of key {key!r} cannot be read: another program or another dump wrote it; "
                "free the key to run the call again"
            ) from error
        if failed is not None:
            raise failed
        return found


class NeverAwaited(InvalidInput):
    """A function returned a coroutine instead of a result, so nothing was done."""


def awaited(result: V, function: Callable[..., object]) -> V:
    """Return a result unchanged. Closes and refuses a coroutine, which would be recorded as done without running."""
    if iscoroutine(result):
        result.close()
        message = f"{name_of(function)} gave a coroutine, which nothing awaits here: use the class for asyncio"
        raise NeverAwaited(message)
    return result


def failure_written(error: BaseException) -> str:
    """Return the kind and text of a failure: its type, and the beginning of its message."""
    try:
        detail = str(error)
    except Exception as failure:  # noqa: BLE001  # a user's error may raise anything
        detail = f"its text cannot be made: {type(failure).__name__}"
    return json.dumps({"kind": type(error).__qualname__, "detail": detail[:DETAIL_LENGTH_MAX]})
