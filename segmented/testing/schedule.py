"""What may be left out of a simulated run: whoever looks for the smallest run that still fails leaves out ever more.

After Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input" (IEEE TSE 28, 2002).
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(slots=True)
class Part:
    """Things that happen in a run, by their numbers from 0: how many there were, and which are left out."""

    count: int = 0
    left_out: frozenset[int] = frozenset()

    def happens(self) -> bool:
        """Count one more; False when it is left out."""
        number, self.count = self.count, self.count + 1
        return number not in self.left_out

    def remaining(self) -> list[int]:
        """Return the numbers of those that happened."""
        return [number for number in range(self.count) if number not in self.left_out]


@dataclass(slots=True)
class Schedule:
    """The parts of a run that can be left out, and, of a run that is traced, every step it took."""

    actors: Part = field(default_factory=Part)
    kills: Part = field(default_factory=Part)
    losses: Part = field(default_factory=Part)
    """Operations that run and whose reply is lost, and what else goes wrong on a wire."""
    turns: Part = field(default_factory=Part)
    """Times that another actor goes on though the one before could; without it, that one does."""
    steps: list[str] | None = None


_current: Final[ContextVar[Schedule | None]] = ContextVar("schedule", default=None)


def current_schedule() -> Schedule:
    """Return the schedule that worlds made now keep to; one that leaves nothing out by default."""
    return _current.get() or Schedule()


@contextmanager
def keeping_to(schedule: Schedule) -> Iterator[None]:
    """Have every world that is made in the block keep to a schedule, and count in it."""
    token = _current.set(schedule)
    try:
        yield
    finally:
        _current.reset(token)
