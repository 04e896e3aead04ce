"""When which worker is killed. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping

    from bench.orders_torture.messages import Hand

DONE_BETWEEN: Final = 50
"""Orders that are done between two kills at least."""
LATER: Final = (0.05, 0.15)
"""Seconds after that."""
SPREAD: Final = 0.9
"""Of the orders, over which the kills are spread evenly; at the rest nobody is killed any more."""


class Killer:
    """Waits until enough orders are done, a random moment more, and names a random worker that is busy then."""

    def __init__(self, kills: int, orders: int, chance: random.Random) -> None:
        """Kill so often."""
        self._kills = kills
        self._step = orders * SPREAD / (kills + 1)
        self._chance = chance
        self._due: float | None = None
        self._done_at_last = 0
        self.killed = 0

    @property
    def is_over(self) -> bool:
        """Was everybody killed who was to be?"""
        return self.killed >= self._kills

    def choose(self, done: int, now: float, hands: Mapping[int, Hand]) -> int | None:
        """Return the number of the worker to kill now, or None."""
        if self.is_over:
            return None
        if self._due is None:
            if done >= max(self._done_at_last + DONE_BETWEEN, self._step * (self.killed + 1)):
                self._due = now + self._chance.uniform(*LATER)
            return None
        busy = [number for number, hand in sorted(hands.items()) if hand.is_ready and hand.begun]
        if now < self._due or not busy:
            return None
        self._due, self._done_at_last = None, done
        self.killed += 1
        return self._chance.choice(busy)
