"""The order of the runs: in each round every cell once, in an order drawn from the seed."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench.granularity.grid import Arm, Grid, PlannedCell


@dataclass(frozen=True, slots=True)
class Turn:
    """A planned run. Its number is its position in the session, so the same plan gives the same turns."""

    number: int
    round: int
    planned: PlannedCell
    arm: Arm
    seed: int


def turns_of(grid: Grid) -> list[Turn]:
    """Return all planned runs in order.

    Arms alternate, A B in one round and B A in the next (ABBA), so that a drift of the machine favours neither. The
    runs between the two are random, like the whole order.
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
