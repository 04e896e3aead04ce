"""S and Z of a model, from runs that do not validate it.

Heiser's rule: a model that is calibrated with the data that validates it proves nothing. So no throughput is used here.
Three times are read from histograms of cells with the same critical section, delay and batch:

- `hold`: the mean hold of cells with one lane, without concurrent holds in other lanes.
- `hand_over`: the mean wait of cells with one buyer, which has no queue. It is the time to hand a lane to its next
  holder; the lane is not free meanwhile, so S = hold + hand_over.
- `outside`: the rest of a call in cells with one buyer, mean service - wait - hold: Z. With more buyers the difference
  is meaningless, since only one of the means includes refusals, which wait as long.

Without a cell of one buyer both are 0, which is noted. Cells of one lane are then the calibration, and are left out of
the model's error.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from bench.engine.percentiles import merged

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bench.analysis.measured import Measured
    from bench.engine.cell import Cell

STAND_INS: Final[dict[str, tuple[str, ...]]] = {
    "segment-locks": ("global-lock",),
    "global-lock": ("segment-locks",),
    "lock-free": ("segment-locks", "global-lock"),
    "segments-try-next": ("segments-random",),
    "segments-random": ("segments-try-next",),
}
"""Other strategies with the same code that give S and Z, best first, if a strategy has no cell of one lane."""
SETTING: Final = attrgetter("section", "hold_ms", "rtt_ms", "proxied", "batch", "quantity", "case", "skus")
"""Fields of a cell on which S and Z depend."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """Milliseconds per call, and the cells from which they were read."""

    hold: float
    hand_over: float
    outside: float
    """Z."""
    cells: tuple[str, ...]
    remarks: tuple[str, ...] = ()
    """Missing parts of the calibration, one sentence each."""

    @property
    def service(self) -> float:
        """S: how long a call occupies its lane."""
        return self.hold + self.hand_over


@dataclass(frozen=True, slots=True)
class NoCalibration:
    """The file has no cell that gives S independently of the throughput."""

    why: str


def calibrate(cell: Cell, cells: Iterable[Measured]) -> Calibration | NoCalibration:
    """Return S and Z of a cell. Saturated cells are used only if there are no others, which is noted."""
    alike = [one for one in cells if one.cell.loop == "closed" and SETTING(one.cell) == SETTING(cell)]
    for strategy in (cell.strategy, *STAND_INS.get(cell.strategy, ())):
        one_lane = _steady([one for one in alike if one.cell.strategy == strategy and one.lanes == 1])
        hold = _mean(one_lane, "hold")
        if hold is None:
            continue
        alone = [one for one in one_lane if one.cell.buyers == 1]
        wait, service, own = (_mean(alone, what) or 0.0 for what in ("wait", "service", "hold"))
        remarks = [] if alone else ["no cell has one buyer, so the way of a lane to its next holder is taken as 0"]
        if any(one.saturated for one in one_lane):
            remarks.append(
                "something was saturated in the cells of one lane, so their holds are those of a busy machine"
            )
        return Calibration(
            hold=hold,
            hand_over=wait,
            outside=max(0.0, service - wait - own),
            cells=tuple(one.cell_id for one in one_lane),
            remarks=tuple(f"{cell.critical_section()}: {remark}" for remark in remarks),
        )
    return NoCalibration(
        f"no cell of one lane has this critical section ({cell.critical_section()}), so S is not known"
    )


def _steady(cells: list[Measured]) -> list[Measured]:
    return [one for one in cells if not one.saturated] or cells


def _mean(cells: Iterable[Measured], what: str) -> float | None:
    """Return the mean over all calls of the cells, from their merged histograms."""
    encoded = [getattr(run.times, what).encoded for one in cells for run in one.runs]
    return merged(encoded).mean if encoded else None
