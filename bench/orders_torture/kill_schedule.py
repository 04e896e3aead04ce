"""Decides when to kill which worker. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping

    from bench.orders_torture.messages import WorkerState

DONE_BETWEEN: Final = 50
"""Minimum number of orders done between two kills."""
LATER: Final = (0.05, 0.15)
"""Seconds from there to the kill, drawn at random."""
SPREAD: Final = 0.9
"""Share of the orders over which the kills are spread evenly; there are no kills after it."""


class KillSchedule:
    """Waits until enough orders are done, then a random delay, and chooses a random busy worker."""

    def __init__(self, kills: int, orders: int, chance: random.Random) -> None:
        """Plan that many kills over that many orders."""
        self._kills = kills
        self._step = orders * SPREAD / (kills + 1)
        self._chance = chance
        self._due: float | None = None
        self._done_at_last = 0
        self.killed = 0

    @property
    def is_over(self) -> bool:
        """Return whether all planned kills are done."""
        return self.killed >= self._kills

    def choose(self, done: int, now: float, workers: Mapping[int, WorkerState]) -> int | None:
        """Return the number of the worker to kill now, or None."""
        if self.is_over:
            return None
        if self._due is None:
            if done >= max(self._done_at_last + DONE_BETWEEN, self._step * (self.killed + 1)):
                self._due = now + self._chance.uniform(*LATER)
            return None
        busy = [number for number, worker in sorted(workers.items()) if worker.is_ready and worker.begun]
        if now < self._due or not busy:
            return None
        self._due, self._done_at_last = None, done
        self.killed += 1
        return self._chance.choice(busy)
