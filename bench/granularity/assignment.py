"""The assignment of the process of one run: one JSON object in a line."""

from __future__ import annotations

from typing import Final, Literal
from urllib.parse import parse_qs, urlsplit

from bench import sizing
from bench.granularity.cell import Cell, Frozen

SPARE_SECONDS: Final = 45.0
"""Seconds to start, audit and write the history."""
SPARE_CONNECTIONS: Final = 12
"""Connections for the listener, the meter, the segment sampler and the audit."""
CALIBRATION_STOCK: Final = 10_000_000


class RunAssignment(Frozen):
    """One measurement or calibration of a cell. All times are in seconds."""

    cell: Cell
    is_calibration: bool = False
    """Sell for `seconds` from an unlimited stock, and report only the rate."""
    run: int = 0
    round: int = 0
    arm: Literal["A", "B"] = "A"
    sweeps: tuple[str, ...] = ()
    seed: int = 0
    url: str
    """URL of Redis, or of the proxy in front of it."""
    meter_url: str
    """URL of Redis itself."""
    database: str | None
    stock: int
    seconds: float
    warm_up: float
    cores: tuple[int, ...] = ()
    """Cores where this process may run; empty: any."""
    history: str | None = None
    """Compressed file for the history of calls; null for none."""

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
        """Seconds after which the run has failed."""
        return self.time_limit + 2 * self.drain + SPARE_SECONDS

    @property
    def pooled_url(self) -> str:
        """The URL of Redis with one connection per buyer; redis-py's default maximum is 100."""
        query = urlsplit(self.url).query
        if "max_connections" in parse_qs(query):
            return self.url
        return f"{self.url}{'&' if query else '?'}max_connections={self.cell.buyers + SPARE_CONNECTIONS}"
