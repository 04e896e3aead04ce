"""The stock of a run: the cell's own, or what lasts for the planned seconds."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Final

from bench import sizing
from bench.engine.arrivals import units_asked

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench.engine.cell import Cell
    from bench.engine.grid import PlannedCell

SPIKE_STOCK_SHARE: Final = 0.6
"""Share of a spike's demand that is in stock, so that the sale sells out."""


def stock_of(
    planned: PlannedCell, cell: Cell, seed: int, *, calibrated: Mapping[str, float], paces: Sequence[float]
) -> int:
    """Return the units of a run. `calibrated`: rates by cell; `paces`: orders per second of the cell's earlier runs."""
    if cell.stock is not None:
        return cell.stock
    if cell.loop == "closed":
        rate = sizing.rate_to_expect(calibrated[cell.cell_id], paces)
        return max(sizing.STOCK_MIN, cell.skus, ceil(rate * planned.seconds)) * cell.quantity
    asked = units_asked(cell, warm_up=planned.warm_up, seconds=planned.seconds, seed=seed)
    return max(sizing.STOCK_MIN, cell.skus, ceil(asked * (SPIKE_STOCK_SHARE if cell.arrivals == "spike" else 1)))
