"""The options of `torture rebuild`, and the orders of its sale."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from bench.proof.options import require_within

ORDERS_MIN: Final = 1_000
ORDERS_MAX: Final = 10_000_000
ROUNDS_MAX: Final = 100
QUICK_SHARE: Final = 500
QUICK_STEADY_SECONDS: Final = 0.5
STEADY_SECONDS: Final = 5.0
"""Duration of the steady part of a round, in which nothing is rebuilt."""
RESERVED_SHARE: Final = 100
"""One order in so many is still reserved when the copy of the server's data is made."""
LOST_SHARE: Final = 200
"""One order in so many is confirmed after the copy, by the database and by the server, which then forgets it."""
SEGMENTS: Final = 16
SKU: Final = "rebuilt"


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildOptions:
    """The options of a run."""

    orders: int = 1_000_000
    rounds: int = 5
    is_quick: bool = False

    def __post_init__(self) -> None:
        """Validate the options. Raises InvalidInput."""
        require_within("--orders", self.orders, ORDERS_MIN, ORDERS_MAX)
        require_within("--rounds", self.rounds, 1, ROUNDS_MAX)

    @property
    def round_count(self) -> int:
        """Number of rebuilds."""
        return 1 if self.is_quick else self.rounds

    @property
    def steady_seconds(self) -> float:
        """Duration of the steady part of a round."""
        return QUICK_STEADY_SECONDS if self.is_quick else STEADY_SECONDS

    @property
    def sale(self) -> Sale:
        """The orders of the sale."""
        confirmed = max(ORDERS_MIN, self.orders // QUICK_SHARE) if self.is_quick else self.orders
        return Sale(confirmed, confirmed // RESERVED_SHARE, confirmed // LOST_SHARE)


@dataclass(frozen=True, slots=True)
class Sale:
    """The orders of one unit each, numbered from 0: confirmed, then reserved, then lost ones."""

    confirmed: int
    reserved: int
    """Reserved when the copy is made. Half are confirmed and a quarter are cancelled after it, a quarter stay open."""
    lost: int
    """Reserved and confirmed after the copy."""

    @property
    def finished(self) -> range:
        """The reserved orders that the database confirms after the copy."""
        return range(self.confirmed, self.confirmed + self.reserved // 2)

    @property
    def cancelled(self) -> range:
        """The reserved orders that the database voids after the copy."""
        return range(self.finished.stop, self.finished.stop + self.reserved // 4)

    @property
    def still_open(self) -> range:
        """The reserved orders that nobody decides."""
        return range(self.cancelled.stop, self.confirmed + self.reserved)

    @property
    def forgotten(self) -> range:
        """The orders that the server forgets altogether."""
        return range(self.still_open.stop, self.still_open.stop + self.lost)

    @property
    def sold(self) -> int:
        """Units sold when the server forgets."""
        return self.confirmed + len(self.finished) + self.lost

    @property
    def stock(self) -> int:
        """Units ever stocked: as many are unsold at the end as are lost, so that there is something left to sell."""
        return self.sold + len(self.still_open) + self.lost

    @property
    def free(self) -> int:
        """Units that are neither sold nor reserved after the rebuild."""
        return self.stock - self.sold - len(self.still_open)


def order_id(number: int) -> str:
    """Return the id of an order."""
    return f"order-{number:08}"
