"""How a result or a failure is written into a record, and read for a repeat."""

from __future__ import annotations

import json
from dataclasses import dataclass
from inspect import iscoroutine
from typing import TYPE_CHECKING, Any, Final, TypeVar

from segmented.dedup.errors import FailedBefore, ResultUnkept
from segmented.errors import InvalidInput
from segmented.locks.call_keys import name_of
from segmented.locks.durations import is_whole

if TYPE_CHECKING:
    from collections.abc import Callable

    from segmented.models.dedup import OutcomeKept, OutcomeKind

V = TypeVar("V")
DETAIL_LENGTH_MAX: Final = 1_000
DEFAULT_SIZE_MAX: Final = 1_048_576


@dataclass(frozen=True, slots=True)
class OutcomeForm:
    """`dump` makes a text of a result, of at most `size_max` bytes, and `load` the result again; as they are, JSON."""

    dump: Callable[[Any], str] = json.dumps
    load: Callable[[str], Any] = json.loads
    size_max: int = DEFAULT_SIZE_MAX

    def __post_init__(self) -> None:
        """Refuse what is no serializer, or no size."""
        serializer: tuple[object, object] = (self.dump, self.load)
        if not all(callable(one) for one in serializer):
            message = "dump and load are callables: one makes a text of a result, the other the result again"
            raise InvalidInput(message)
        if not is_whole(self.size_max) or self.size_max < 1:
            message = f"size_max of {self.size_max!r} is not a number of bytes: give 1 or more"
            raise InvalidInput(message)

    def written(self, result: object) -> tuple[OutcomeKind, str]:
        """Return what to keep of a result. One that cannot be kept does not fail the call, whose work is done."""
        try:
            body = self.dump(result)
            if not isinstance(body, str):
                return "unkept", f"its dump gave {type(body).__name__}, not str"
            size = len(body.encode())
        except Exception as error:  # noqa: BLE001  # whatever a serializer raises
            return "unkept", f"{type(error).__name__}: {error}"[:DETAIL_LENGTH_MAX]
        if size > self.size_max:
            return "unkept", f"it has {size} bytes; {self.size_max} are the most"
        return "value", body

    def read(self, key: str, outcome: OutcomeKept) -> Any:  # noqa: ANN401  # whatever was kept
        """Return the kept result; raises FailedBefore for a failure, ResultUnkept where there is none to give."""
        match outcome.kind:
            case "value":
                return self.load(outcome.body)
            case "effect":
                return json.loads(outcome.body)
            case "error":
                raise FailedBefore(key, **json.loads(outcome.body))
        raise ResultUnkept(key, outcome.body)


class NeverAwaited(InvalidInput):
    """A function gave a coroutine where a result was wanted, so nothing was done."""


def awaited(result: V, function: Callable[..., object]) -> V:
    """Return a result as it is. A coroutine is closed and refused: its work would be noted as done, and never be."""
    if iscoroutine(result):
        result.close()
        message = f"{name_of(function)} gave a coroutine, which nothing awaits here: use the class for asyncio"
        raise NeverAwaited(message)
    return result


def failure_written(error: BaseException) -> str:
    """Return what to keep of a failure: its type, and the beginning of its text."""
    try:
        detail = str(error)
    except Exception as failure:  # noqa: BLE001  # whatever an error of the user's raises
        detail = f"its text cannot be made: {type(failure).__name__}"
    return json.dumps({"kind": type(error).__qualname__, "detail": detail[:DETAIL_LENGTH_MAX]})
