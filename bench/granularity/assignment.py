"""What the process of one run is told: one JSON object in a line."""

from __future__ import annotations

from typing import Final, Literal
from urllib.parse import parse_qs, urlsplit

from bench import sizing
from bench.granularity.cell import Cell, Frozen

SPARE_SECONDS: Final = 45.0
"""To start, to audit, to write the history."""
SPARE_CONNECTIONS: Final = 12
"""For the listener, the meter, the readings of segments and the audit."""
CALIBRATION_STOCK: Final = 10_000_000


class RunAssignment(Frozen):
    """Measure a cell once, or calibrate it. Seconds everywhere."""

    cell: Cell
    is_calibration: bool = False
    """Sell for `seconds` from a stock that does not end, and say no more than the rate."""
    run: int = 0
    round: int = 0
    arm: Literal["A", "B"] = "A"
    sweeps: tuple[str, ...] = ()
    seed: int = 0
    url: str
    """Of Redis, or of the proxy before it."""
    meter_url: str
    """Of Redis itself."""
    database: str | None
    stock: int
    seconds: float
    warm_up: float
    cores: tuple[int, ...] = ()
    """Where this process may run; empty: anywhere."""
    history: str | None = None
    """File for every call, compressed; null keeps none."""

    @property
    def drain(self) -> float:
        """Seconds for the buyers to finish their last orders."""
        return sizing.drain(self.cell.buyers, (self.cell.hold_ms + 10 * self.cell.rtt_ms) / 1_000)

    @property
    def time_limit(self) -> float:
        """Seconds after which buyers stop, sold out or not."""
        return self.seconds if self.is_calibration else sizing.time_limit(self.seconds)

    @property
    def seconds_at_most(self) -> float:
        """Seconds after which the run has gone wrong."""
        return self.time_limit + 2 * self.drain + SPARE_SECONDS

    @property
    def pooled_url(self) -> str:
        """The URL of Redis, with room for one connection a buyer; redis-py stops at 100 otherwise."""
        query = urlsplit(self.url).query
        if "max_connections" in parse_qs(query):
            return self.url
        return f"{self.url}{'&' if query else '?'}max_connections={self.cell.buyers + SPARE_CONNECTIONS}"
