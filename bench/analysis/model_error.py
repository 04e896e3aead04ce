"""The error of the models, cell by cell of figure F1. The target is 10 % at most.

The model of each strategy, in `MODELS`, was chosen before anything was measured, by how the strategy queues.

The throughput of N clients over K lanes: three models of a closed loop. Calls per second; a batch of B is one call.

- The ceiling, min(K, N) / hold: no scheme that holds a lane for that time per call is faster, even if a hand-over took
  no time.
- A random lane, where a caller waits for the lane it drew: K equal queues and a thinking time Z, a network with a
  product form (W. Gordon, G. Newell, 1967), by exact mean value analysis (M. Reiser, S. Lavenberg, JACM 27, 1980). With
  Z = 0 it is (K / S) x N / (N + K - 1): N = K gives half of the ceiling. The form assumes exponential holds; constant
  ones sell 5 to 10 points more.
- Any free lane: one station of K servers and a thinking time Z, solved exactly as a birth-death process (the machine
  repair problem with K repairers: C. Palm 1947; L. Kleinrock, "Queueing Systems" 1, 1975, 3.8). It also assumes
  exponential holds; constant ones sell more, up to the bound min(K / S, N / (S + Z)), and if Z is small compared with S
  the two are equal.

S and Z come from runs that do not validate the model. Heiser's rule: a model that is calibrated with the data that
validates it proves nothing. So no throughput is used here. Three times are read from histograms of cells with the same
critical section, delay and batch:

- `hold`: the mean hold of cells with one lane, without concurrent holds in other lanes.
- `hand_over`: the mean wait of cells with one buyer, which has no queue. It is the time to hand a lane to its next
  holder; the lane is not free meanwhile, so S = hold + hand_over.
- `outside`: the rest of a call in cells with one buyer, mean service - wait - hold: Z. With more buyers the difference
  is meaningless, since only one of the means includes refusals, which wait as long.

Without a cell of one buyer both are 0, which is noted. Cells of one lane are then the calibration, and are left out of
the model's error.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from operator import attrgetter
from statistics import median
from typing import TYPE_CHECKING, Any, Final, Literal

from bench.analysis.fleet import lines
from bench.analysis.measured import cells_of
from bench.engine.percentiles import merged

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bench.analysis.measured import Measured
    from bench.engine.cell import Cell
    from bench.engine.record import ResultFile

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


def calibrate(cell: Cell, cells: Iterable[Measured]) -> Calibration | str:
    """Return S and Z of a cell, or why no cell gives S independently of the throughput.

    Saturated cells are used only if there are no others, which is noted.
    """
    alike = [one for one in cells if one.cell.loop == "closed" and SETTING(one.cell) == SETTING(cell)]
    for strategy in (cell.strategy, *STAND_INS.get(cell.strategy, ())):
        one_lane = [one for one in alike if one.cell.strategy == strategy and one.lanes == 1]
        one_lane = [one for one in one_lane if not one.saturated] or one_lane
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
    return f"no cell of one lane has this critical section ({cell.critical_section()}), so S is not known"


def _mean(cells: Iterable[Measured], what: str) -> float | None:
    """Return the mean over all calls of the cells, from their merged histograms."""
    encoded = [getattr(run.times, what).encoded for one in cells for run in one.runs]
    return merged(encoded).mean if encoded else None


# --- the models and their error ---

Model = Literal["any free lane", "random lane", "a lane a buyer"]
MODELS: Final[dict[str, Model]] = {
    "global-lock": "any free lane",
    "segment-locks": "any free lane",
    "segment-batches": "any free lane",
    "segments-try-next": "any free lane",
    "segments-random": "random lane",
    "lock-free": "a lane a buyer",
    "one-script": "a lane a buyer",
    "redis-function": "a lane a buyer",
}
"""Models by strategy. Polled locks, databases and optimistic transactions have none."""
FIGURE: Final = "F1"


@dataclass(frozen=True, slots=True)
class ModelPoint:
    """A cell and its model, in orders per second."""

    cell_id: str
    model: Model
    predicted: float
    measured: float
    error: float
    """(predicted - measured) / measured."""
    calibration: Calibration
    is_calibration: bool
    """Whether the cell was the calibration of S, so that it does not check the model."""
    saturated: tuple[str, ...]
    """Whether something outside the model was saturated: drawn hollow, and left out of the error."""

    @property
    def counts(self) -> bool:
        """Return whether it is part of the error."""
        return not self.is_calibration and not self.saturated


@dataclass(frozen=True, slots=True)
class ModelError:
    """The error of a session's models."""

    points: tuple[ModelPoint, ...]
    without: dict[str, str]
    """Cells with no model, and why."""

    @property
    def largest(self) -> float | None:
        """Return the largest absolute error of the cells that count; None without any."""
        return max((abs(one.error) for one in self.points if one.counts), default=None)

    @property
    def middle(self) -> float | None:
        """Return the median of the absolute errors of the cells that count."""
        found = [abs(one.error) for one in self.points if one.counts]
        return median(found) if found else None

    def sentences(self) -> list[str]:
        """Return the error as sentences, with the cells that were left out."""
        said = ["No cell checks the model."]
        if self.largest is not None and self.middle is not None:
            count = sum(one.counts for one in self.points)
            said = [f"Model error over {count} cells: median {self.middle:.1%}, largest {self.largest:.1%}."]
        hollow = [
            f"{one.cell_id} ({', '.join(one.saturated)}; {one.error:+.1%})" for one in self.points if one.saturated
        ]
        if hollow:
            said.append(f"Left out, drawn hollow, since something else was saturated: {'; '.join(hollow)}.")
        calibrating = [
            f"{one.cell_id} ({one.error:+.1%})" for one in self.points if one.is_calibration and not one.saturated
        ]
        if calibrating:
            said.append(f"Left out, because the hold was read from them: {'; '.join(calibrating)}.")
        return said + list(dict.fromkeys(remark for one in self.points for remark in one.calibration.remarks))


def predict(cell: Cell, found: Calibration, *, lanes: int, model: Model) -> float:
    """Return the predicted orders per second of a closed-loop cell. `lanes`: K, of which up to N are busy."""
    service, thinking, clients = found.service / 1_000, found.outside / 1_000, cell.buyers
    if model == "random lane":
        calls = random_lane(clients, lanes, service=service, thinking=thinking)
    else:
        many = clients if model == "a lane a buyer" else lanes
        calls = any_free_lane(clients, many, service=service, thinking=thinking)
    return calls * cell.batch


def ceiling_of(cell: Cell, found: Calibration, *, lanes: int) -> float:
    """Return the lock ceiling in orders per second: B x min(K, N) / hold."""
    return cell.batch * ceiling(cell.buyers, lanes, service=ideal_hold(cell, found) / 1_000)


def ideal_hold(cell: Cell, found: Calibration) -> float:
    """Return the hold of the ceiling in milliseconds: the configured one, or the one measured if none is fixed."""
    return cell.hold_ms if cell.section == "sleep" else found.hold


def model_error(results: ResultFile, *, figure: str = FIGURE) -> ModelError:
    """Compare every closed-loop cell of a figure with its model, or every cell if the plan names no figures."""
    cells = cells_of(results)
    points, without = [], {}
    for one in _drawn(results, list(cells.values()), figure):
        model = MODELS.get(one.cell.strategy)
        found = calibrate(one.cell, cells.values())
        rate = one.mean_rate
        if one.runs[0].is_control:
            without[one.cell_id] = "the control is run to be seen failing"
        elif model is None or one.cell.skus > 1:
            several = f" with {one.cell.skus} skus" if one.cell.skus > 1 else ""
            without[one.cell_id] = f"no model was chosen for {one.cell.strategy}{several}"
        elif isinstance(found, str):
            without[one.cell_id] = found
        elif rate is None:
            without[one.cell_id] = f"every run is void: {'; '.join(one.void)}"
        else:
            predicted = predict(
                one.cell, found, lanes=one.cell.segments if model == "random lane" else one.lanes, model=model
            )
            points.append(
                ModelPoint(
                    cell_id=one.cell_id,
                    model=model,
                    predicted=predicted,
                    measured=rate,
                    error=predicted / rate - 1,
                    calibration=found,
                    is_calibration=one.cell_id in found.cells,
                    saturated=one.saturated,
                )
            )
    return ModelError(tuple(points), without)


def _drawn(results: ResultFile, cells: list[Measured], figure: str) -> list[Measured]:
    closed = [one for one in cells if one.cell.loop == "closed"]
    sweeps: list[dict[str, Any]] = results.session.plan.get("sweeps") or []
    names = {sweep.get("name") for sweep in sweeps if figure in (sweep.get("figures") or ())}
    return [one for one in closed if names & {name for run in one.runs for name in run.sweeps}] if names else closed


def ceiling(clients: int, lanes: int, *, service: float) -> float:
    """Return min(K, N) / S."""
    return min(lanes, clients) / service


def random_lane(clients: int, lanes: int, *, service: float, thinking: float = 0.0) -> float:
    """Return the throughput if every call waits for a random lane, even if others are free."""
    return lines(clients, shards=lanes, lanes=1, service=service, thinking=thinking)


def any_free_lane(clients: int, lanes: int, *, service: float, thinking: float = 0.0) -> float:
    """Return the throughput if a call takes any free lane, and otherwise waits in one queue for the first."""
    if thinking <= 0:
        return ceiling(clients, lanes, service=service)
    logs = [0.0]
    for busy in range(1, clients + 1):
        birth = math.log(clients - busy + 1) - math.log(thinking)
        death = math.log(min(busy, lanes)) - math.log(service)
        logs.append(logs[-1] + birth - death)
    highest = max(logs)
    weights = [math.exp(one - highest) for one in logs]
    working = sum(min(busy, lanes) * weight for busy, weight in enumerate(weights))
    return working / sum(weights) / service
