"""Decorated functions on a side: the same body, as a function for threads or as a coroutine function."""

from __future__ import annotations

import asyncio
from functools import wraps
from typing import TYPE_CHECKING, Any

from segmented.locks.locked_decorator import locked
from tests.fixtures.stores import AsyncSide

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator

    from tests.fixtures.stores import Side

TTL = 60.0


def locked_body(side: Side, expression: Any, body: Callable[..., Any], **options: Any) -> Callable[..., Any]:  # noqa: ANN401  # the body's own types
    """Return the body under `locked`, to be called from the test's thread."""
    given = {"store": side.store, "ttl": TTL, "timeout": 0, **options}
    if not isinstance(side, AsyncSide):
        found: Callable[..., Any] = locked(expression, **given)(body)
        return found

    @wraps(body)
    async def in_a_thread(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401  # as above
        return await asyncio.to_thread(body, *arguments, **named)

    decorated = locked(expression, **given)(in_a_thread)

    @wraps(body)
    def call(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401  # as above
        return side.wait(decorated(*arguments, **named))

    return call


class Driven:
    """An async generator, driven step by step from the test's thread, with the face of a generator."""

    def __init__(self, side: AsyncSide, items: AsyncGenerator[Any, Any]) -> None:
        self._side, self._items = side, items

    def __next__(self) -> Any:  # noqa: ANN401  # whatever it yields
        return self.send(None)

    def send(self, value: object) -> Any:  # noqa: ANN401  # as above
        return self._step(lambda: self._items.asend(value))

    def throw(self, error: BaseException) -> Any:  # noqa: ANN401  # as above
        return self._step(lambda: self._items.athrow(error))

    def close(self) -> None:
        self._step(self._items.aclose)

    def _step(self, begin: Callable[[], Any]) -> Any:  # noqa: ANN401  # as above
        """Begin a step in the loop, where a generator learns who cleans up after it, and return its item."""

        async def run() -> Any:  # noqa: ANN401  # as above
            try:
                return True, await begin()
            except StopAsyncIteration:
                return False, None

        goes_on, item = self._side.wait(run())
        if not goes_on:
            raise StopIteration
        return item


def locked_generator(
    side: Side,
    expression: str,
    body: Callable[..., Generator[Any, Any, Any]],
    **options: Any,  # noqa: ANN401  # those of locked
) -> Callable[..., Any]:
    """Return a generator function under `locked`; on an asynchronous side an async generator with the same steps."""
    given = {"store": side.store, "ttl": TTL, "timeout": 0, **options}
    if not isinstance(side, AsyncSide):
        found: Callable[..., Any] = locked(expression, **given)(body)
        return found

    @wraps(body)
    async def stepwise(*arguments: Any, **named: Any) -> AsyncIterator[Any]:  # noqa: ANN401  # as above
        items = body(*arguments, **named)
        step: Callable[[], Any] = lambda: next(items)  # noqa: E731  # replaced at every step
        try:
            while True:
                try:
                    item = step()
                except StopIteration:
                    return
                try:
                    sent = yield item
                except Exception as error:  # noqa: BLE001  # handed to the body
                    step = _throwing(items, error)
                else:
                    step = _sending(items, sent)
        finally:
            items.close()

    decorated = locked(expression, **given)(stepwise)

    def start(*arguments: Any, **named: Any) -> Driven:  # noqa: ANN401  # as above
        return Driven(side, decorated(*arguments, **named))

    return start


def _throwing(items: Generator[Any, Any, Any], error: Exception) -> Callable[[], Any]:
    return lambda: items.throw(error)


def _sending(items: Generator[Any, Any, Any], value: object) -> Callable[[], Any]:
    return lambda: items.send(value)


def is_free(side: Side, name: str) -> bool:
    """Could somebody else lock the name now?"""
    lease = side.lock(name, ttl=TTL).try_acquire()
    if lease is None:
        return False
    lease.release()
    return True
