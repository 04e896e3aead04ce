"""One global lock of another library around the same read-modify-write, all with the same lease time and timeout.

The Redis client counts lock requests, because these libraries do not report them. Requests since the last sale are
attributed to the next one, so the sum is exact, but the count of a single order is not.
"""

from __future__ import annotations

import importlib
from abc import abstractmethod
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from bench.strategies.base import GaveUp, Refused
from bench.strategies.clients import WAIT_SECONDS
from bench.strategies.counted import CountedStrategy
from segmented.errors import InvalidInput

if TYPE_CHECKING:
    from bench.strategies.base import Answer, StrategyContext
    from segmented.models import Order


def needed(strategy: str, module: str) -> Any:  # noqa: ANN401  # a module without types
    """Import a library. Raises InvalidInput that names a missing package."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        message = f"{strategy} needs the package {module}: install segmented-locks[bench]"
        raise InvalidInput(message) from error


class LibraryLock(CountedStrategy):
    """A counter under one lock of another library."""

    def __init__(self, context: StrategyContext) -> None:
        """Start counting lock requests."""
        super().__init__(context)
        self._counted = 0

    @property
    def lock_name(self) -> str:
        """Return the name of the lock."""
        return f"bench:{self._sku}"

    @abstractmethod
    def acquire(self) -> Any | None:  # noqa: ANN401  # each library has its own type
        """Return an object with `release` when the lock is held, or None after `WAIT_SECONDS`."""

    @property
    @abstractmethod
    def lock_keys(self) -> tuple[str, ...]:
        """Return the lock's keys on the server."""

    def buy(self, order: Order) -> Answer:
        """Wait for the lock, read, run the slow step, write, release."""
        lock = self.acquire()
        if lock is None:
            return GaveUp(f"the lock was not free within {WAIT_SECONDS:g} s")
        try:
            found = self._sell_guarded(order)
        except BaseException:
            with suppress(Exception):  # the first error is the one to report
                lock.release()
            raise
        lock.release()
        if isinstance(found, Refused):
            return found
        asked = self.client.asked
        self._counted, attempts = asked, asked - self._counted
        return self._sold_at(found, attempts=attempts)

    def clear(self) -> None:
        """Remove counter, rows and lock."""
        super().clear()
        self.client.unlink(*self.lock_keys)
