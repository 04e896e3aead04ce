"""The order of the runs: rounds, each with every cell once, in a random order of its own that the seed decides."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench.granularity.grid import Arm, Grid, PlannedCell


@dataclass(frozen=True, slots=True)
class Turn:
    """One run to be. Its number is its place in the session, so the same plan gives the same turns again."""

    number: int
    round: int
    planned: PlannedCell
    arm: Arm
    seed: int


def turns_of(grid: Grid) -> list[Turn]:
    """Return all runs in their order.

    Arms go A B in one round and B A in the next (ABBA), so that a drift of the machine is on neither's side; what is
    between the two is random, as everything is.
    """
    draw = random.Random(grid.seed)
    turns: list[Turn] = []
    for number in range(1, grid.rounds + 1):
        places = [(planned, place) for planned in grid.cells for place in range(len(planned.arms))]
        draw.shuffle(places)
        met: dict[str, int] = {}
        for planned, _ in places:
            arms = planned.arms if number % 2 else planned.arms[::-1]
            arm = arms[met.get(planned.key, 0)]
            met[planned.key] = met.get(planned.key, 0) + 1
            turns.append(Turn(len(turns) + 1, number, planned, arm, draw.randrange(2**31)))
    return turns
