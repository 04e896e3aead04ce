"""The sizes of the benchmark. The defaults take under two minutes; tests take less."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many of everything is measured."""

    rounds: int = 15
    """Rounds; each runs every kind of task once, in random order."""
    tasks: int = 200
    """Tasks per kind and round."""
    records: int = 100_000
    """Records whose memory is measured."""
    live_keys: tuple[int, int] = (10_000, 1_000_000)
    """Numbers of live keys, between which the server's time for a claim is compared."""
    claims: int = 20_000
    """Claims at each of the two numbers."""
