"""Lines of the log that would come once an order and attempt: one line a pool and reason, with a count.

While a database is away, each envelope of each pool fails for the same reason, again and again. The first failure is
logged at once, the later ones together, every ten seconds.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from typing import Final

from segmented.process import Guard

log = logging.getLogger(__name__)
EVERY_SECONDS: Final = 10.0
REASONS_MAX: Final = 1_000
"""Pools and reasons that are remembered; beyond, all are forgotten, and each is logged at once again."""


class RepeatedLines:
    """Counts what was logged of each pool and reason; thread-safe."""

    def __init__(self, *, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._known: dict[tuple[str, str], tuple[float, int]] = {}
        self._guard = Guard()

    def warn(self, sku: str, reason: str, orders: int) -> None:
        """Log that so many orders of a pool are tried again later, or add them to the next line."""
        with self._guard.lock:
            if len(self._known) >= REASONS_MAX:
                self._known.clear()
            after, count = self._known.get((sku, reason), (0.0, 0))
            now, count = self._now(), count + orders
            is_due = now >= after
            self._known[sku, reason] = (now + EVERY_SECONDS, 0) if is_due else (after, count)
        if is_due:
            log.warning("pool %r: %d orders are tried again later: %s", sku, count, reason)

    def warn_each(self, sku: str, reasons: Iterable[str]) -> None:
        """Log the reasons of orders that were put off, each reason once."""
        counts: dict[str, int] = {}
        for reason in reasons:
            counts[reason] = counts.get(reason, 0) + 1
        for reason, count in counts.items():
            self.warn(sku, reason, count)


repeated: Final = RepeatedLines()
