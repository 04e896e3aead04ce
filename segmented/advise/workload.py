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
CLIENT_TIME: Final = 0.0002
"""Seconds of one CPU core that a Python process spends on an order, as measured with 2 cores and Python 3.11."""
BATCH_SHARE: Final = 0.055
"""Share of a single order's work, on client and server, that each further order of a batch costs, as measured."""
BATCH_CALLS: Final = 4
"""Round trips by which a batch's hold is longer than a single order's, as measured: it takes and settles the others."""
SPREAD_MAX: Final = 10
PEAK_SECONDS_MAX: Final = 86_400
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
    client_time: float = CLIENT_TIME
    """Time of one CPU core that a worker's process spends on one order, without its slow work."""
    row_rate: float | None = None
    """Commits per second that one row of the order database takes, if each segment has a row there."""
    database_rate: float | None = None
    """Commits per second that the whole order database takes, over any number of rows."""
    arrivals: float | None = None
    """Arrival rate, orders per second, at random moments; None: saturated."""
    peak: float | None = None
    """Arrival rate of a burst at the start, orders per second; waits are then those of the orders of the burst."""
    peak_seconds: float | None = None
    """How long the burst lasts."""
    batch: int = 1
    """Orders that one hold serves, with one slow step for all of them."""
    processes: int | None = None
    """Python processes on each host that the workers are in, one core each; None: enough, or with `hosts` one."""
    hosts: int | None = None
    """Hosts of the workers: the sale is simulated with the cores of all processes and masters; None: formulas."""
    hold_spread: float | None = None
    """Standard deviation of the holds divided by their mean, of log-normal holds: 0 if all are equal; None: unknown."""
    may_overlap: bool | None = None
    """Whether two orders may do the slow work at the same time, so that no lock is needed; None: unknown."""
    p99: float | None = None
    """Goal: 99 % of the orders wait at most this long for a segment."""

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
        check_within("client time", self.client_time, 1e-9, HOLD_MAX, "s")
        for what, rate in (
            ("row rate", self.row_rate),
            ("database rate", self.database_rate),
            ("arrivals", self.arrivals),
            ("peak", self.peak),
        ):
            if rate is not None:
                check_within(what, rate, 1e-3, RATE_MAX, "a second")
        self._check_batch_and_peak()

    def _check_batch_and_peak(self) -> None:
        _whole("batch", self.batch, QUANTITY_MAX)
        self._check_processes()
        if self.hold_spread is not None:
            check_within("hold spread", self.hold_spread, 0, SPREAD_MAX)
        if self.p99 is not None:
            check_within("p99", self.p99, 1e-6, HOLD_MAX, "s")
        if (self.peak is None) != (self.peak_seconds is None):
            message = "a peak needs a rate and a length, such as 2000/5s"
            raise InvalidInput(message)
        if self.peak is not None and self.peak_seconds is not None:
            check_within("length of the peak", self.peak_seconds, 1e-3, PEAK_SECONDS_MAX, "s")
            if self.arrivals is None or self.arrivals > self.peak:
                message = (
                    f"peak {self.peak:g} needs the arrivals of the rest of the sale (--arrivals), which must not be "
                    "higher"
                )
                raise InvalidInput(message)

    def _check_processes(self) -> None:
        for what, count in (("hosts", self.hosts), ("processes", self.processes)):
            if count is not None:
                _whole(what, count, WORKERS_MAX)
        count = self.processes_in_all
        if count is not None and count > self.workers:
            found = f"processes {count}" if self.hosts is None else f"hosts {self.hosts} with {count} processes"
            message = f"{found}: each has at least one of the workers, and there are {self.workers}"
            raise InvalidInput(message)

    @property
    def processes_in_all(self) -> int | None:
        """The number of processes on all hosts; None: enough of them."""
        if self.processes is None:
            return self.hosts
        return self.processes * (self.hosts or 1)

    @property
    def orders(self) -> float:
        """The number of orders of average size in the stock."""
        return 2 * self.stock / sum(self.quantity)

    @property
    def busy(self) -> int:
        """The number of workers that can have a batch each: at most the number of batches in the stock."""
        return min(self.workers, max(1, int(self.orders / self.batch)))

    @property
    def locked(self) -> float:
        """Seconds that a batch keeps its segment: the reply to its grant, the slow work, the way of its confirm.

        A batch of several orders takes and settles the others meanwhile.
        """
        if self.batch == 1:
            return self.hold + self.round_trip
        return self.hold + (1 + BATCH_CALLS) * self.round_trip + self.share * self.batch * self.client_time

    @property
    def share(self) -> float:
        """Work of an order in a batch, as a share of a single order's."""
        return (1 + (self.batch - 1) * BATCH_SHARE) / self.batch

    @property
    def cycle(self) -> float:
        """Seconds that a batch keeps its worker if it never waits: the hold and another round trip."""
        return self.locked + self.round_trip

    @property
    def burst(self) -> float | None:
        """Batches of the burst, as far as the stock lasts; None without a burst."""
        if self.peak is None or self.peak_seconds is None:
            return None
        return min(self.peak * self.peak_seconds, self.orders) / self.batch

    @property
    def batches(self) -> float:
        """Batches of the burst, or of the whole sale if there is none."""
        return self.orders / self.batch if self.burst is None else self.burst

    @property
    def rush(self) -> float | None:
        """The highest arrival rate, orders per second: the peak's, if there is one."""
        return self.arrivals if self.peak is None else self.peak


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
