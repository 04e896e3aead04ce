"""Waiting times for a lane with Poisson arrivals (open loop): the curves of load and latency.

One lane is exactly M/G/1: W = rho / (1 - rho) x (1 + cv^2) / 2 x S (F. Pollaczek 1930, A. Khinchine 1932). Several
lanes with one queue are M/G/K, which has no closed form: W = C(K, a) / (K (1 - rho)) x S x (1 + cv^2) / 2, with
Erlang's C for the wait of M/M/K (A. Lee, P. Longton, "Queueing processes associated with airline passenger check-in",
1959; with other arrivals it is the formula of Allen and Cunneen). It is exact for K = 1 and for exponential holds, and
within a few per cent for holds that vary less. At rho >= 1 there is no steady state, and no mean wait.

S is measured, not fitted to waits: the mean hold of the same runs, plus the time to hand a lane to its next holder from
a closed loop with one buyer (`calibration`). A call waits for the hand-over too. The model ignores busy generators and
servers, shed orders, and the end of a sale.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.analysis.calibration import Calibration, calibrate
from bench.analysis.measured import cells_of
from bench.analysis.model_error import MODELS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bench.analysis.measured import Measured
    from bench.granularity.record import ResultFile


def utilisation(rate: float, service: float, *, lanes: int = 1) -> float:
    """Return rho: the occupied share of the lanes' time. Rate and service are in the same unit of time."""
    return rate * service / lanes


def wait_one_lane(rate: float, service: float, *, cv: float) -> float | None:
    """Return the mean wait before one lane (M/G/1), in the unit of `service`; None at rho >= 1."""
    busy = utilisation(rate, service)
    return None if busy >= 1 else busy / (1 - busy) * (1 + cv**2) / 2 * service


def erlang_c(lanes: int, offered: float) -> float:
    """Return the probability that a caller waits (A. K. Erlang, 1917), by the recursion of Erlang's B.

    `offered`: rate x service, below `lanes`.
    """
    blocked = 1.0
    for lane in range(1, lanes + 1):
        blocked = offered * blocked / (lane + offered * blocked)
    busy = offered / lanes
    return blocked / (1 - busy * (1 - blocked))


def wait_any_lane(rate: float, service: float, *, cv: float, lanes: int) -> float | None:
    """Return the mean wait before `lanes` lanes with one queue, in the unit of `service`; None at rho >= 1."""
    busy = utilisation(rate, service, lanes=lanes)
    if busy >= 1:
        return None
    return erlang_c(lanes, rate * service) / (lanes * (1 - busy)) * service * (1 + cv**2) / 2


def wait_own_lane(rate: float, service: float, *, cv: float, lanes: int) -> float | None:
    """Return the mean wait if every order goes to a random lane: K times M/G/1 at rate / K."""
    return wait_one_lane(rate / lanes, service, cv=cv)


@dataclass(frozen=True, slots=True)
class LoadPoint:
    """An open-loop cell and its model, in milliseconds."""

    cell_id: str
    offered_per_s: float
    lanes: int
    hold_ms: float
    hold_cv: float
    hand_over_ms: float
    """0 if there is no closed loop with one buyer."""
    utilisation: float
    model_wait_ms: float | None
    """None at a load without a steady state."""
    measured_wait_ms: float
    """From the intended time until the critical section could begin."""
    is_saturated: bool


def load_points(results: ResultFile) -> tuple[LoadPoint, ...]:
    """Return every open-loop cell with Poisson arrivals, by offered load. A batch counts as one arrival."""
    cells = cells_of(results)
    points = [_point(one, cells.values()) for one in cells.values() if one.cell.arrivals == "poisson"]
    known = [point for point in points if point is not None]
    return tuple(sorted(known, key=lambda point: (point.lanes, point.offered_per_s)))


def _point(one: Measured, cells: Iterable[Measured]) -> LoadPoint | None:
    cell, hold, wait, late = one.cell, one.times("hold"), one.times("wait"), one.times("lateness")
    if cell.offered_per_s is None or hold is None or hold.mean is None or wait is None or wait.mean is None:
        return None
    found = calibrate(cell, cells)
    way = found.hand_over if isinstance(found, Calibration) else 0.0
    rate, service, cv = cell.offered_per_s / cell.batch / 1_000, hold.mean + way, hold.cv or 0.0
    waiting = wait_own_lane if MODELS.get(cell.strategy) == "random lane" else wait_any_lane
    queueing = waiting(rate, service, cv=cv * hold.mean / service, lanes=one.lanes)
    return LoadPoint(
        cell_id=one.cell_id,
        offered_per_s=cell.offered_per_s,
        lanes=one.lanes,
        hold_ms=hold.mean,
        hold_cv=cv,
        hand_over_ms=way,
        utilisation=utilisation(rate, service, lanes=one.lanes),
        model_wait_ms=None if queueing is None else queueing + way,
        measured_wait_ms=wait.mean + (late.mean if late is not None and late.mean is not None else 0.0),
        is_saturated=bool(one.saturated),
    )
