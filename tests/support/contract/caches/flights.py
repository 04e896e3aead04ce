"""Single flights on a side, with the face of the one for threads; and loaders that count their calls."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

from segmented.locks.flights import AsyncSingleFlight, SingleFlight, single_flight
from tests.fixtures.stores import AsyncSide, Side

SOON = 30.0


class Flight:
    """A flight whose loader is a plain function, also on an asynchronous side."""

    def __init__(self, side: Side, **options: Any) -> None:  # noqa: ANN401  # those of single_flight
        self._side = side
        self.target: Any = single_flight(side.store, **{"keep": 60.0, "timeout": SOON, **options})

    def get(self, key: str, loader: Callable[[], object]) -> Any:  # noqa: ANN401  # whatever was loaded
        if not isinstance(self._side, AsyncSide):
            flight: SingleFlight = self.target
            return flight.get(key, loader)

        async def load() -> object:
            return await asyncio.to_thread(loader)

        found: AsyncSingleFlight = self.target
        return self._side.wait(found.get(key, load))

    def peek(self, key: str, *, default: object = None) -> Any:  # noqa: ANN401  # as above
        return self._now(self.target.peek(key, default=default))

    def forget(self, key: str) -> bool:
        found: bool = self._now(self.target.forget(key))
        return found

    def _now(self, found: Any) -> Any:  # noqa: ANN401  # an awaitable on an asynchronous side
        return self._side.wait(found) if isinstance(self._side, AsyncSide) else found


class Loader:
    """Counts its calls; with `gate`, each waits until it is opened."""

    def __init__(self, *values: object, gate: threading.Event | None = None) -> None:
        self._values = values or ("loaded",)
        self._gate = gate
        self._guard = threading.Lock()
        self.calls = 0
        self.began = threading.Event()

    def __call__(self) -> object:
        with self._guard:
            self.calls += 1
            value = self._values[min(self.calls, len(self._values)) - 1]
        self.began.set()
        if self._gate is not None:
            assert self._gate.wait(2 * SOON)
        if isinstance(value, BaseException):
            raise value
        return value
