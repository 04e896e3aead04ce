"""The advisor's input, checked once. Every refusal is one sentence that names the number."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Final

from segmented.errors import InvalidInput
from segmented.models import QUANTITY_MAX, STOCK_MAX

ROUND_TRIP: Final = 0.0005
"""Seconds; an assumption, for two machines of one data centre. `measure` finds the real value."""
SERVER_TIME: Final = 0.0002
"""Seconds; two scripts of about 0.1 ms each, as a busy machine of 2 cores took them, with Valkey 9.1."""
HOLD_MAX: Final = 3_600
WORKERS_MAX: Final = 1_000_000
SERVERS_MAX: Final = 1_000
RATE_MAX: Final = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The work of one order, and its workers. Times are in seconds, rates in orders per second.

    Raises InvalidInput for impossible numbers.
    """

    hold: float
    """The slow work of one order while its segment is locked: a payment, a commit. Without the round trips to Redis."""
    workers: int
    """Concurrent workers across all processes. Without `arrivals` all are always busy."""
    stock: int
    quantity: tuple[int, int] = (1, 1)
    """The smallest and the largest order; all sizes between are assumed equally frequent."""
    servers: int = 1
    """Redis or Valkey masters over which the pool is spread."""
    round_trip: float = ROUND_TRIP
    """Round trip of one call of the pool, from worker to server and back."""
    server_time: float = SERVER_TIME
    """Time of the server's one thread for one order, taking and confirming together."""
    row_rate: float | None = None
    """Commits per second that one row of the order database takes, if each segment has a row there."""
    database_rate: float | None = None
    """Commits per second that the whole order database takes, over any number of rows."""
    arrivals: float | None = None
    """Arrival rate, orders per second, at random moments; None: saturated."""

    def __post_init__(self) -> None:
        """Check all numbers. Raises InvalidInput."""
        check_within("hold", self.hold, 0, HOLD_MAX, "s")
        _whole("workers", self.workers, WORKERS_MAX)
        _whole("stock", self.stock, STOCK_MAX)
        _whole("servers", self.servers, SERVERS_MAX)
        if not _is_pair(self.quantity):
            message = f"quantity {self.quantity!r} is not a pair of the smallest and the largest order"
            raise InvalidInput(message)
        least, most = self.quantity
        _whole("quantity", least, QUANTITY_MAX)
        _whole("quantity", most, QUANTITY_MAX)
        if least > most:
            message = f"quantity {least}-{most}: the smallest order comes first"
            raise InvalidInput(message)
        if most > self.stock:
            message = f"quantity {least}-{most}: the largest order does not fit into a stock of {self.stock}"
            raise InvalidInput(message)
        check_within("round trip", self.round_trip, 1e-6, HOLD_MAX, "s")
        check_within("server time", self.server_time, 1e-9, HOLD_MAX, "s")
        for what, rate in (
            ("row rate", self.row_rate),
            ("database rate", self.database_rate),
            ("arrivals", self.arrivals),
        ):
            if rate is not None:
                check_within(what, rate, 1e-3, RATE_MAX, "a second")

    @property
    def orders(self) -> float:
        """The number of orders of average size in the stock."""
        return 2 * self.stock / sum(self.quantity)

    @property
    def busy(self) -> int:
        """The number of workers that can have an order each: at most the number of orders in the stock."""
        return min(self.workers, max(1, int(self.orders)))

    @property
    def locked(self) -> float:
        """Seconds that an order keeps its segment: the reply to its grant, the slow work, the way of its confirm."""
        return self.hold + self.round_trip

    @property
    def cycle(self) -> float:
        """Seconds that an order keeps its worker if it never waits: the slow work and two round trips."""
        return self.hold + 2 * self.round_trip


def check_within(what: str, value: float, least: float, most: float, unit: str = "") -> None:
    """Raise InvalidInput unless `value` is a number between the two."""
    if not _is_number(value) or not least <= value <= most:
        message = f"{what} {value!r} must be between {least:,} and {most:,}{f' {unit}' if unit else ''}"
        raise InvalidInput(message)


def _whole(what: str, value: int, most: int) -> None:
    if type(value) is not int:
        message = f"{what} {value!r} is not a whole number"
        raise InvalidInput(message)
    check_within(what, value, 1, most)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def _is_pair(value: object) -> bool:
    return isinstance(value, tuple) and len(value) == len(("least", "most"))
