"""Extra events in runs that are unfavourable for segments, and how such a run is checked.

`one-unit`: a stock of one unit and many buyers. `cancel-storm`: every second sold order is cancelled at once, and its
units must become free again. `restock`: half of the stock is there at first, and the other half is added when half of
that is sold. Added units are recorded with the time from which they were surely free, so that earlier refusals are
checked against the units free before.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from bench.strategies.base import Sold
from segmented.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.engine.cell import Cell
    from bench.strategies.base import Answer, Strategy
    from segmented.models import Order

CANCELLED_EVERY: Final = 2
"""One of this many orders is cancelled."""
FAILURES_SAID: Final = 3


@dataclass(slots=True)
class CaseState:
    """The state of one run's case: initial stock, actions after a call, and added units."""

    cell: Cell
    strategy: Strategy
    seed: int
    opened: int
    """Initial units."""
    later: int = 0
    """Units added when half of the initial units are sold."""
    came_in: list[tuple[float, int]] = field(default_factory=list)
    """When added units were acknowledged, in local seconds, and how many."""
    cancelled: int = 0
    """Units of orders sold and then cancelled."""
    restocked: int = 0
    failures: list[str] = field(default_factory=list)
    _sold: int = 0
    _is_restocking: bool = False

    def after(self, orders: Sequence[Order], answers: Sequence[Answer]) -> None:
        """Act after an answered call; the buyer's next order waits for it."""
        sold = [order for order, answer in zip(orders, answers, strict=True) if isinstance(answer, Sold)]
        self._sold += sum(order.quantity for order in sold)
        if self.cell.case == "cancel-storm":
            for order in sold:
                if is_cancelled(order.order_id, self.seed):
                    self._cancel(order)
        elif self.later and not self._is_restocking and 2 * self._sold >= self.opened:
            self._is_restocking = True  # before anything that lets another buyer run
            self._restock(self.later)

    def _cancel(self, order: Order) -> None:
        try:
            self.strategy.cancel(order)
        except Exception as error:  # noqa: BLE001  # whatever it was, it voids the run
            self.failures.append(f"order {order.order_id} was not cancelled: {type(error).__name__}: {error}")
            return
        self.came_in.append((time.monotonic(), order.quantity))
        self.cancelled += order.quantity

    def _restock(self, units: int) -> None:
        try:
            self.strategy.restock(units)
        except Exception as error:  # noqa: BLE001  # whatever it was, it voids the run
            what = "1 unit" if units == 1 else f"{units} units"
            self.failures.append(f"{what} did not come in: {type(error).__name__}: {error}")
            return
        self.came_in.append((time.monotonic(), units))
        self.restocked += units

    def broken(self) -> tuple[str, ...]:
        """Return what the case failed to do, one sentence each; any of them voids the run."""
        found = list(self.failures[:FAILURES_SAID])
        if len(self.failures) > FAILURES_SAID:
            found.append(f"and {len(self.failures) - FAILURES_SAID} more like these")
        if self.later and not self._is_restocking:
            found.append("half of the units were not sold in time, so none came in")
        return tuple(found)


def case_of(cell: Cell, strategy: Strategy, stock: int, seed: int, *, is_calibration: bool = False) -> CaseState:
    """Return the case of a run that sells `stock` units in total; a calibration only buys.

    In a cancel storm every unit is sold twice on average, so half the stock lasts as long.
    """
    opened = stock if is_calibration else opened_of(cell, stock)
    later = 0 if is_calibration or cell.case != "restock" else stock - opened
    return CaseState(cell, strategy, seed, opened=opened, later=later)


def opened_of(cell: Cell, stock: int) -> int:
    """Return how many units a sale of `stock` units opens with."""
    is_halved = cell.case == "restock" or (cell.case == "cancel-storm" and cell.stock is None)
    return stock - stock // 2 if is_halved else stock


def refuse_case(cell: Cell, strategy: type[Strategy]) -> None:
    """Raise InvalidInput for a case that the strategy or the cell does not support."""
    if cell.case == "one-unit" and cell.stock != 1:
        message = f"the case one-unit is of a stock of 1, not {cell.stock or 'one that lasts'}"
        raise InvalidInput(message)
    if cell.case == "cancel-storm":
        strategy.require_cancel(commits=cell.critical_section().commits)
    if cell.case == "restock":
        strategy.require_restock(commits=cell.critical_section().commits)
        if cell.loop == "open" or (cell.stock is not None and cell.stock < 2 * cell.quantity):
            message = "the case restock is of a closed loop, and of a stock with an order in each half"
            raise InvalidInput(message)


def is_cancelled(order_id: str, seed: int) -> bool:
    """Return whether an order is cancelled: the same for the same seed, in any order of execution."""
    return hashlib.blake2b(f"{seed}:{order_id}".encode(), digest_size=1).digest()[0] % CANCELLED_EVERY == 0


def is_whole(cell: Cell) -> bool:
    """Return whether the whole sale is measured: a stock fixed by the plan may sell out during the warm-up."""
    return cell.stock is not None
