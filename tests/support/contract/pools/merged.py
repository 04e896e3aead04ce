"""A store between a pool and its memory or server, which counts, holds back and refuses the batches of merged calls."""

import asyncio
from collections.abc import Callable, Iterable
from math import inf
from typing import Any, Final

from segmented import protocol as op
from segmented.errors import StoreUnavailable
from segmented.plans.drivers import AsyncStore

Run = Any
"""Takes a scenario, a coroutine function of a pool and its store, and runs it."""
SOON: Final = 60.0


class Watched:
    """A store that counts what it is asked, holds it back while told so, and can be away."""

    def __init__(self, store: AsyncStore) -> None:
        self._store = store
        self.clock: Any = store.clock
        self.wakeups = store.wakeups
        self.batches: list[int] = []
        self.cancelled: list[tuple[str, ...]] = []
        self.is_away = False
        self._open = asyncio.Event()
        self._open.set()

    def hold(self) -> None:
        self._open.clear()

    def let_go(self) -> None:
        self._open.set()

    async def execute(self, operation: op.Operation[Any], *, deadline: float = inf) -> Any:  # noqa: ANN401  # the operation's own answer
        match operation:
            case op.ReserveMany():
                self.batches.append(len(operation.orders))
            case op.SettleMany():
                self.batches.append(len(operation.order_ids))
                if operation.state == "cancelled":
                    self.cancelled.append(operation.order_ids)
            case _:
                return await self._store.execute(operation, deadline=deadline)
        if self.is_away:
            await asyncio.sleep(0)
            raise StoreUnavailable
        answer = await self._store.execute(operation, deadline=deadline)
        await self._open.wait()
        return answer

    async def execute_many(self, operations: Iterable[op.Operation[Any]], *, deadline: float = inf) -> list[Any]:
        return await self._store.execute_many(tuple(operations), deadline=deadline)

    async def close(self) -> None:
        await self._store.close()


async def turns() -> None:
    """Let the loop make some passes."""
    for _ in range(20):
        await asyncio.sleep(0)


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():  # noqa: ASYNC110  # bounded by the scenario's time-out
        await asyncio.sleep(0.001)
