"""Deduplicated calls on a side, with the face of the one for threads; and work that counts how often it was done."""

import asyncio
import threading
from collections.abc import Callable
from functools import wraps
from typing import Any

from segmented.dedup import AsyncDedup, Dedup, Replay, Run
from tests.fixtures.stores import AsyncSide, Side

SOON = 30.0


class Calls:
    """A `Dedup` in the side's colour, whose functions are plain ones."""

    def __init__(self, side: Side, namespace: str = "", **options: Any) -> None:  # noqa: ANN401  # those of Dedup
        self.side = side
        self.namespace = namespace or side.name("calls")
        kind: Any = AsyncDedup if isinstance(side, AsyncSide) else Dedup
        self.target: Any = kind(side.store, self.namespace, **options)
        self._made: Any = side.made(lambda _: self.target, lambda _: self.target)

    def begin(self, key: str, **options: Any) -> Run | Replay:  # noqa: ANN401  # as above
        found: Run | Replay = self._made.begin(key, **options)
        return found

    def run(self, key: str, **options: Any) -> Run:  # noqa: ANN401  # as above
        """Begin what is known not to have run."""
        found: Run = self._made.begin(key, **options)
        assert not found.is_replay
        return found

    def replay(self, key: str, **options: Any) -> Replay:  # noqa: ANN401  # as above
        """Begin what is known to have ended."""
        found: Replay = self._made.begin(key, **options)
        assert found.is_replay
        return found

    def call(self, key: str, function: Callable[[], object], **options: Any) -> Any:  # noqa: ANN401  # what it gives
        if not isinstance(self.side, AsyncSide):
            return self.target.call(key, function, **options)
        return self.side.wait(self.target.call(key, lambda: asyncio.to_thread(function), **options))

    def once(self, function: Callable[..., object], *positional: Any, **options: Any) -> Callable[..., Any]:  # noqa: ANN401  # as above
        """Decorate a plain function."""
        side = self.side
        if not isinstance(side, AsyncSide):
            decorated: Callable[..., Any] = self.target(*positional, **options)(function)
            return decorated

        @wraps(function)
        async def threaded(*arguments: object, **by_name: object) -> object:
            return await asyncio.to_thread(function, *arguments, **by_name)

        awaited = self.target(*positional, **options)(threaded)
        return lambda *arguments, **by_name: side.wait(awaited(*arguments, **by_name))

    def read(self, key: str) -> Any:  # noqa: ANN401  # a state of a record, or None
        return self._made.read(key)

    def free(self, key: str) -> Any:  # noqa: ANN401  # what was freed
        return self._made.free(key)


class Work:
    """Counts how often it was done, and gives the number; with a gate, each waits until it is opened."""

    def __init__(self, gate: threading.Event | None = None) -> None:
        self.done = 0
        self.began = threading.Event()
        self._gate = gate
        self._guard = threading.Lock()

    def __call__(self, *_: object, **__: object) -> int:
        with self._guard:
            self.done += 1
            number = self.done
        self.began.set()
        if self._gate is not None:
            assert self._gate.wait(2 * SOON)
        return number


class Refused(Exception):
    """What work raises in these tests."""


def raising(error: BaseException) -> Callable[[], object]:
    def work() -> object:
        raise error

    return work
