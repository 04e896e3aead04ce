"""Tasks in event loops that may be left at any moment, also before a task has taken its first step."""

from __future__ import annotations

from types import coroutine
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator

OutcomeT = TypeVar("OutcomeT")


def begun(make: Callable[[], Coroutine[Any, Any, OutcomeT]]) -> Coroutine[Any, Any, OutcomeT]:
    """Return a coroutine for a task, which makes the one that matters in the task's first step, and awaits it.

    A loop that is left drops the tasks that have not begun, and Python warns of each of their coroutines: it "was never
    awaited". The one returned here is no longer at its start, so it is dropped without a word, and no other exists yet.
    """
    found = _making(make)
    found.send(None)
    return found


async def _making(make: Callable[[], Coroutine[Any, Any, OutcomeT]]) -> OutcomeT:
    await _stand()
    return await make()


@coroutine
def _stand() -> Generator[None, None, None]:
    yield
