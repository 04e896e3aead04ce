"""Draws faults from a seed: which process, when and what. Pure: the caller passes the time and the processes."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection

GAP: Final = 0.5
"""Mean seconds between two faults."""
CUT_GAP: Final = 0.8
HOLDERS: Final = 0.8
"""Share of faults that hit a process with a holder inside, if there is one. The rest hit any process."""
KILL, PAUSE, PAUSE_AND_KILL = "kill", "pause", "pause_and_kill"
FAULTS: Final = (KILL, PAUSE, PAUSE_AND_KILL)
WEIGHTS: Final = (4, 5, 1)


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of one process, and for how long it is paused."""

    what: str
    process: int
    seconds: float


class FaultInjector:
    """Draws faults."""

    def __init__(self, seed: int, *, ttl: float, now: float) -> None:
        """Begin soon after `now`; pauses are longer than `ttl`."""
        self._random = Random(f"tormentor/{seed}")  # unchanged, so that old seeds draw the same faults
        self._ttl = ttl
        self.next_at = now + self._gap(GAP)
        """When the next fault is due."""
        self.next_cut_at = now + self._gap(CUT_GAP)
        """When connections are due to be cut."""

    def draw(self, now: float, *, inside: Collection[int], others: Collection[int]) -> Fault | None:
        """Draw a fault for one of the given processes, or None if there are none."""
        self.next_at = now + self._gap(GAP)
        everybody = sorted({*inside, *others})
        if not everybody:
            return None
        wants_holder = bool(inside) and self._random.random() < HOLDERS
        process = self._random.choice(sorted(inside) if wants_holder else everybody)
        (what,) = self._random.choices(FAULTS, WEIGHTS)
        return Fault(what, process, 0.0 if what == KILL else self._ttl * self._random.uniform(1.3, 3.0))

    def draw_cut(self, now: float, connections: Collection[int]) -> list[int]:
        """Draw the connections to cut now."""
        self.next_cut_at = now + self._gap(CUT_GAP)
        return self._random.sample(sorted(connections), min(len(connections), self._random.randint(1, 6)))

    def _gap(self, mean: float) -> float:
        return self._random.uniform(0.2, 1.8) * mean
