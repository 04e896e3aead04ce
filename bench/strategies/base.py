"""What a strategy does, and the answers its buyers get."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, ClassVar

from segmented.errors import SegmentedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy import Engine

    from bench.assignment import Assignment
    from segmented.models import Order
    from segmented.stores.redis import RedisStore


@dataclass(frozen=True, slots=True)
class Sold:
    """The order is stored and confirmed. `granted_at`: local seconds at which its slow step could begin."""

    granted_at: float


@dataclass(frozen=True, slots=True)
class Refused:
    """Sold out, decided just after the change with this number."""

    sequence: int
    quantity: int


@dataclass(frozen=True, slots=True)
class RefusedByGate:
    """The pool granted units, and the order database did not confirm."""


Answer = Sold | Refused | RefusedByGate


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the servers say after a sale."""

    sold: int
    sold_in_sql: int
    oversold_in_redis: int
    oversold_in_sql: int
    refused_wrongly: int
    audit: str
    """`clean`, what drifted, or `none` where nothing can be audited."""


def mean_of(values: Iterable[float]) -> float:
    """Return the mean. Raises SegmentedError when there is nothing to take it of."""
    found = list(values)
    if not found:
        message = "no order was settled after the warm-up, so its hold cannot be measured"
        raise SegmentedError(message)
    return fmean(found)


class Strategy(ABC):
    """Sells one unit an order. Many buyers call `buy` at once."""

    name: ClassVar[str]
    is_control: ClassVar[bool] = False

    def __init__(self, assignment: Assignment, store: RedisStore, engine: Engine) -> None:
        """Sell nothing yet."""
        self.assignment = assignment
        self.store = store
        self.engine = engine

    @property
    @abstractmethod
    def segments(self) -> int:
        """How many segments the stock is split over."""

    @property
    @abstractmethod
    def lanes(self) -> int:
        """How many orders can be in their slow step at once without breaking a promise: the bound is lanes / hold."""

    @abstractmethod
    def open(self, sku: str, stock: int) -> None:
        """Begin a sale of its own under `sku`."""

    @abstractmethod
    def buy(self, order: Order) -> Answer:
        """Take the order to its end."""

    @abstractmethod
    def mean_hold(self, warm_up: float) -> float:
        """Return mean seconds of the slow step, with its lock if there is one, once `warm_up` seconds have passed."""

    @abstractmethod
    def judge(self, refusals: Sequence[Refused]) -> Verdict:
        """Count what was sold and which refusals were wrong, from what the servers say."""

    @abstractmethod
    def clear(self) -> None:
        """Remove the keys and rows of the sale."""

    def linger(self) -> None:
        """Spend the extra hold: what a payment or a second system would take."""
        time.sleep(self.assignment.extra_hold)
