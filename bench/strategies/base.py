"""The interface of strategies: operations, guarantees, and the answers to buyers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final, Literal
from urllib.parse import parse_qs, urlsplit

from segmented.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Engine

    from bench.sections import Section
    from segmented.models import Order
    from segmented.stores.redis import RedisStore

LEASE_SECONDS: Final = 10.0
"""Lease time of every lock of every strategy, for all libraries."""
WAIT_SECONDS: Final = 60.0
"""Seconds that a buyer waits for any lock before it gives up."""


@dataclass(frozen=True, slots=True)
class Sold:
    """The order is stored and confirmed. Local seconds: when its critical section could begin, and when it ended."""

    granted_at: float
    freed_at: float = 0.0
    segment: int | None = None
    attempts: int = 1
    """Lock requests or optimistic attempts; 0 if there are neither."""


@dataclass(frozen=True, slots=True)
class Refused:
    """Sold out. `sequence`: the number of the change after which it was decided, if there is a ledger."""

    sequence: int
    quantity: int


@dataclass(frozen=True, slots=True)
class RefusedByGate:
    """The pool granted units, but the order database did not confirm them."""


@dataclass(frozen=True, slots=True)
class GaveUp:
    """Neither sold nor refused: no lock in time, or too many conflicts. Counts as a failure, never as sold out."""

    reason: str


Answer = Sold | Refused | RefusedByGate | GaveUp


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarantees:
    """The guarantees of a strategy: columns of every table."""

    never_oversells: bool = True
    sold_out_is_exact: bool = True
    """No order is refused while units are free."""
    one_effect_per_order: bool
    """A repeated order id changes nothing and gets the same answer."""
    section: Literal["none", "one at a time", "one a segment", "unlimited"]
    """How many orders can be in the critical section at once."""
    fencing: bool
    """Whether resources get a fencing token, to refuse a holder whose lease has ended."""
    after_a_crash: str
    """The fate of a dead buyer's units and lock, in a few words."""
    durable: Literal["memory", "commit"] = "memory"
    """Where an acknowledged order is stored; `commit` for every strategy if the critical section commits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The state of the servers after a sale."""

    sold: int
    available: int
    """Units still free on the servers."""
    sold_in_sql: int | None
    """None if orders are not stored in the order database."""
    oversold_in_redis: int
    oversold_in_sql: int
    refused_wrongly: int
    audit: str
    """`clean`, the drift, or `none` if nothing can be audited."""
    duplicates: int = 0
    """Orders that took effect more than once."""
    sold_ids: frozenset[str] | None = None
    """Orders sold according to the servers."""
    left: tuple[int, ...] = field(default=())
    """Free units by segment, if there are segments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyContext:
    """Connections and settings of a strategy."""

    store: RedisStore
    engine: Engine | None
    """None if nothing is stored in an order database."""
    segments: int
    buyers: int
    section: Section
    batch: int = 1
    url: str = ""
    """URL of Redis, for strategies with their own client."""


def with_connections(url: str, count: int) -> str:
    """Return the URL of Redis with a maximum number of connections, if it names none; redis-py's default is 100."""
    query = urlsplit(url).query
    if "max_connections" in parse_qs(query):
        return url
    return f"{url}{'&' if query else '?'}max_connections={count}"


class Strategy(ABC):
    """Sells units. Many buyers call `buy` concurrently, from greenlets or threads."""

    name: ClassVar[str]
    summary: ClassVar[str]
    """One line for tables and help."""
    guarantees: ClassVar[Guarantees]
    is_control: ClassVar[bool] = False
    """Whether it is run to show how it fails."""
    has_segments: ClassVar[bool] = False
    """Whether K changes its behaviour."""
    has_batches: ClassVar[bool] = False
    has_skus: ClassVar[bool] = False
    """Whether a process can sell several skus, each with an object of its own."""
    is_parallel: ClassVar[bool] = False
    """Whether every buyer can be in the slow step at once, whatever K is."""
    needs_database: ClassVar[bool] = False
    """Whether it needs the order database for every critical section."""
    calibration_stock: ClassVar[int | None] = None
    """Maximum stock for a sale that ends by time, or None for no maximum."""

    def __init__(self, context: StrategyContext) -> None:
        """Create a strategy without a sale. Raises InvalidInput for an unsupported batch."""
        if context.batch > 1 and not self.has_batches:
            raise InvalidInput(f"{self.name} sells one order after the other, so it has no batches of {context.batch}")
        self.context = context

    @property
    def segments(self) -> int:
        """Number of segments of the stock: as many as configured, if K changes anything."""
        return self.context.segments if self.has_segments else 1

    @property
    def lanes(self) -> int:
        """How many calls can be in their slow step at once within the guarantees: the bound is lanes / hold.

        One per segment, or fewer if there are fewer buyers; as many as buyers if they need not exclude each other.
        """
        return self.context.buyers if self.is_parallel else min(self.segments, self.context.buyers)

    @abstractmethod
    def open(self, sku: str, stock: int) -> None:
        """Open a new sale under `sku`."""

    def join(self, sku: str, stock: int) -> None:
        """Join a sale that another process has opened. Raises InvalidInput if that is impossible."""
        message = f"{self.name} keeps part of {sku!r} in its process, so one process must sell all {stock} units"
        raise InvalidInput(message)

    @abstractmethod
    def buy(self, order: Order) -> Answer:
        """Process an order."""

    def buy_batch(self, orders: Sequence[Order]) -> list[Answer]:
        """Process several orders in one call, with one critical section; one answer each."""
        return [self.buy(order) for order in orders]

    @abstractmethod
    def judge(self, refusals: Sequence[Refused]) -> Verdict:
        """Count sold units and wrong refusals from the servers' state."""

    @abstractmethod
    def clear(self) -> None:
        """Remove the keys and rows of the sale."""

    @classmethod
    def require_cancel(cls, *, commits: bool) -> None:
        """Raise InvalidInput if sold orders cannot be cancelled."""
        del commits
        raise InvalidInput(f"{cls.name} cannot take a sold order back, so it has no cancel-storm")

    @classmethod
    def require_restock(cls, *, commits: bool) -> None:
        """Raise InvalidInput if units cannot be added during a sale."""
        del commits
        raise InvalidInput(f"{cls.name} cannot take units in while it sells, so it has no restock")

    def cancel(self, order: Order) -> None:
        """Cancel a sold order: its units are free again, and the verdict does not count it as sold."""
        del order
        self.require_cancel(commits=self.context.section.commits)

    def restock(self, units: int) -> None:
        """Add units during the sale; they are free when this returns."""
        del units
        self.require_restock(commits=self.context.section.commits)

    def free_by_segment(self) -> tuple[int, ...]:
        """Return the current free units by segment, with one command; empty if there are no segments."""
        return ()

    def close(self) -> None:  # noqa: B027  # most strategies have nothing to close
        """Close the strategy's own clients."""
