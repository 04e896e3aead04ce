"""How much the benchmark does. The defaults take under two minutes; tests take less."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sizes:
    """Counts of everything that is measured."""

    rounds: int = 15
    """In each, every kind of task is worked off once, in random order."""
    tasks: int = 200
    """Of one kind in one round."""
    records: int = 100_000
    """Whose memory is read."""
    live_keys: tuple[int, int] = (10_000, 1_000_000)
    """Between which the server's time for a claim is compared."""
    claims: int = 20_000
    """Of each of the two."""
