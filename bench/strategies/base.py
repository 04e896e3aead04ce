"""What a strategy does, what it promises, and the answers its buyers get."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING, ClassVar, Final, Literal

from segmented.errors import InvalidInput, SegmentedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy import Engine

    from bench.sections import Section
    from segmented.models import Order
    from segmented.stores.redis import RedisStore

LEASE_SECONDS: Final = 10.0
"""For which every lock of every strategy lives: the same for ours and for others'."""


@dataclass(frozen=True, slots=True)
class Sold:
    """The order is stored and confirmed. Local seconds: when its critical section could begin, and when it was over."""

    granted_at: float
    freed_at: float = 0.0
    segment: int | None = None
    attempts: int = 1
    """Times that a lock was asked for, or that an optimistic attempt was made; 0 where there is neither."""


@dataclass(frozen=True, slots=True)
class Refused:
    """Sold out. `sequence`: the number of the change after which it was decided, where there is a ledger."""

    sequence: int
    quantity: int


@dataclass(frozen=True, slots=True)
class RefusedByGate:
    """The pool granted units, and the order database did not confirm."""


@dataclass(frozen=True, slots=True)
class GaveUp:
    """Neither sold nor refused: no lock in time, or too many conflicts. Counts as a failure, never as sold out."""

    reason: str


Answer = Sold | Refused | RefusedByGate | GaveUp


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarantees:
    """What a strategy promises whoever uses it: columns of every table."""

    never_oversells: bool = True
    sold_out_is_exact: bool = True
    """Nobody is refused while units are free."""
    one_effect_per_order: bool
    """A repeat of an order id changes nothing and is told the same again."""
    section: Literal["none", "one at a time", "one a segment", "unlimited"]
    """How many orders can be in the critical section at once."""
    fencing: bool
    """Does a resource get a number by which it can refuse a holder that overslept?"""
    after_a_crash: str
    """What becomes of units and lock of a buyer that dies: a few words."""
    durable: Literal["memory", "commit"] = "memory"
    """Where an acknowledged order is; a critical section that commits makes it `commit` for every strategy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the servers say after a sale."""

    sold: int
    available: int
    """Units that the servers still count as free."""
    sold_in_sql: int | None
    """None where no order goes into the order database."""
    oversold_in_redis: int
    oversold_in_sql: int
    refused_wrongly: int
    audit: str
    """`clean`, what drifted, or `none` where nothing can be audited."""
    duplicates: int = 0
    """Orders that took effect more than once."""
    sold_ids: frozenset[str] | None = None
    """Orders that are sold, by what the servers say."""
    left: tuple[int, ...] = field(default=())
    """Units free by segment, where there are segments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyContext:
    """What a strategy works with."""

    store: RedisStore
    engine: Engine | None
    """None when nothing is stored in an order database."""
    segments: int
    buyers: int
    section: Section
    batch: int = 1
    url: str = ""
    """Of the Redis server, for strategies with a client of their own."""


def mean_of(values: Iterable[float]) -> float:
    """Return the mean. Raises SegmentedError when there is nothing to take it of."""
    found = list(values)
    if not found:
        message = "no order was settled after the warm-up, so its hold cannot be measured"
        raise SegmentedError(message)
    return fmean(found)


class Strategy(ABC):
    """Sells units. Many buyers call `buy` at once, from greenlets or threads."""

    name: ClassVar[str]
    summary: ClassVar[str]
    """One line for tables and help."""
    guarantees: ClassVar[Guarantees]
    is_control: ClassVar[bool] = False
    """Is it run to be seen failing?"""
    has_segments: ClassVar[bool] = False
    """Does K change what it does?"""
    has_batches: ClassVar[bool] = False
    needs_database: ClassVar[bool] = False
    """Does it need the order database whatever the critical section is?"""
    calibration_stock: ClassVar[int | None] = None
    """Units at most for a sale that is to end for time; None where so many as a calibration has cost nothing."""

    def __init__(self, context: StrategyContext) -> None:
        """Sell nothing yet. Raises InvalidInput for a batch that it cannot take."""
        if context.batch > 1 and not self.has_batches:
            message = f"{self.name} sells one order after the other, so it has no batches of {context.batch}"
            raise InvalidInput(message)
        self.context = context

    @property
    @abstractmethod
    def segments(self) -> int:
        """How many segments the stock is split over."""

    @property
    @abstractmethod
    def lanes(self) -> int:
        """How many calls can be in their slow step at once without breaking a promise: the bound is lanes / hold."""

    @abstractmethod
    def open(self, sku: str, stock: int) -> None:
        """Begin a sale of its own under `sku`."""

    def join(self, sku: str, stock: int) -> None:
        """Sell from what another process has opened. Raises InvalidInput where that cannot be."""
        message = f"{self.name} keeps part of {sku!r} in its process, so one process must sell all {stock} units"
        raise InvalidInput(message)

    @abstractmethod
    def buy(self, order: Order) -> Answer:
        """Take the order to its end."""

    def buy_batch(self, orders: Sequence[Order]) -> list[Answer]:
        """Take orders to their end in one call, with one critical section; one answer each."""
        return [self.buy(order) for order in orders]

    @abstractmethod
    def mean_hold(self, warm_up: float) -> float:
        """Return mean seconds of the slow step, with its lock if there is one, once `warm_up` seconds have passed."""

    @abstractmethod
    def judge(self, refusals: Sequence[Refused]) -> Verdict:
        """Count what was sold and which refusals were wrong, from what the servers say."""

    @abstractmethod
    def clear(self) -> None:
        """Remove the keys and rows of the sale."""

    @classmethod
    def require_cancel(cls, *, commits: bool) -> None:
        """Raise InvalidInput if a sold order cannot be given back."""
        del commits
        message = f"{cls.name} cannot take a sold order back, so it has no cancel-storm"
        raise InvalidInput(message)

    @classmethod
    def require_restock(cls, *, commits: bool) -> None:
        """Raise InvalidInput if no units can come in while it sells."""
        del commits
        message = f"{cls.name} cannot take units in while it sells, so it has no restock"
        raise InvalidInput(message)

    def cancel(self, order: Order) -> None:
        """Take a sold order back: its units are free again, and the verdict counts it as sold no more."""
        del order
        self.require_cancel(commits=self.context.section.commits)

    def restock(self, units: int) -> None:
        """Take units in while the sale runs; they are free when this returns."""
        del units
        self.require_restock(commits=self.context.section.commits)

    def free_by_segment(self) -> tuple[int, ...]:
        """Return units free by segment right now, cheaply (one command); empty where there are no segments."""
        return ()

    def close(self) -> None:  # noqa: B027  # most have nothing to let go of
        """Let go of clients of its own."""
