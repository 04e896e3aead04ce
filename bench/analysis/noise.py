"""The noise floor: how much two measurements of the same code differ. Smaller differences are ignored.

Each cell of the A/A row runs twice per round, as arms A and B. The floor is the largest deviation from 1 of any end of
their intervals, so it is conservative, and it grows with the number of A/A cells.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.analysis.intervals import Estimate, paired_ratio
from bench.analysis.measured import cells_of

if TYPE_CHECKING:
    from bench.granularity.record import ResultFile


@dataclass(frozen=True, slots=True)
class SameTwice:
    """A cell that ran as A and B: the ratio B / A over rounds, with its interval."""

    cell_id: str
    ratio: Estimate


@dataclass(frozen=True, slots=True)
class NoiseFloor:
    """The result of the A/A row. `floor` is a share: 0.02 is two per cent."""

    rows: tuple[SameTwice, ...]
    floor: float | None
    why_none: str | None
    """Why there is no floor."""


def noise_floor(results: ResultFile) -> NoiseFloor:
    """Return the floor of a session, or why it has none."""
    first, second = cells_of(results, arm="A"), cells_of(results, arm="B")
    rows = []
    for cell_id, again in second.items():
        once = first.get(cell_id)
        ratio = None if once is None else paired_ratio(again.by_round, once.by_round)
        if ratio is not None:
            rows.append(SameTwice(cell_id, ratio))
    if not rows:
        why = "no cell ran twice a round without being void, so the noise is not known"
        return NoiseFloor((), None, why)
    found = [one for row in rows if (one := row.ratio.deviation) is not None]
    if not found:
        most = max(row.ratio.n for row in rows)
        return NoiseFloor(
            tuple(rows), None, f"{most} rounds of the A/A row give no interval, so the noise is not known"
        )
    return NoiseFloor(tuple(rows), max(found), None)
