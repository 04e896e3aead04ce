"""Sync and async pools with blocking calls, so that one test body serves both."""

import asyncio
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from segmented import AsyncRedisStore
from segmented.orders import AsyncGate, connect


class Front:
    """A pool or carts in one colour; asyncio's runs in `loop`."""

    def __init__(self, subject: Any, loop: asyncio.AbstractEventLoop | None) -> None:  # noqa: ANN401  # of either colour
        self.subject, self._loop = subject, loop

    def ended(self, answer: Any) -> Any:  # noqa: ANN401  # any answer
        """Return an answer, awaited if need be."""
        if not inspect.isawaitable(answer):
            return answer
        assert self._loop is not None

        async def await_it() -> object:
            return await answer

        return self._loop.run_until_complete(await_it())

    def call(self, name: str, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401  # any call
        """Make a call by its name."""
        return self.ended(getattr(self.subject, name)(*args, **kwargs))


@contextmanager
def asyncio_side(server: str, database: str) -> Iterator[tuple[asyncio.AbstractEventLoop, AsyncRedisStore, AsyncGate]]:
    """Open a store and a gate for asyncio, in a loop that runs for one call after the other."""

    async def enter() -> tuple[AsyncRedisStore, AsyncGate]:
        return await AsyncRedisStore.from_url(server), AsyncGate(connect(database))

    with asyncio.Runner() as runner:
        store, gate = runner.run(enter())
        yield runner.get_loop(), store, gate
        runner.run(gate.close())
        runner.run(store.close())
