"""A cell of the grid: everything that defines a run. Runs of one cell differ only by their seed.

Also the part of a hypothesis that a program can check (a figure of the measured cells, and its expected bounds), and
the assignment of the process of one run: one JSON object in a line.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from bench import sizing
from bench.sections import MILLISECONDS_MAX, Kind, Section
from bench.strategies.base import with_connections
from bench.strategies.own import OwnStrategy  # noqa: TC001  # pydantic needs it at runtime
from segmented.errors import InvalidInput
from segmented.models import SEGMENT_COUNT_MAX, STOCK_MAX

BUYERS_MAX = 1_000
BATCH_MAX = 1_000
ROUND_TRIP_MAX = 1_000.0
RATE_MAX = 100_000.0
QUANTITY_MAX = 1_000
SKUS_MAX = 256
ZIPF_MAX = 5.0

Loop = Literal["closed", "open"]
Arrivals = Literal["poisson", "spike"]
Case = Literal["one-unit", "cancel-storm", "restock"]
"""Extra events of an unfavourable case: one unit is sold; orders are cancelled; units are added during the sale."""
PERCENT: Final = "percent"
Part = dict[str, Any]
"""Some fields of a cell, and `percent`: the load of an open loop, as the plan gives it."""
Figure = Literal["rate", "p99", "oversold", "refused-wrongly", "model-error", "noise-floor"]
SPARE_SECONDS: Final = 45.0
"""Seconds to start, audit and write the history."""
SPARE_CONNECTIONS: Final = 12
"""Connections for the listener, the meter, the segment sampler and the audit."""
CALIBRATION_STOCK: Final = 10_000_000


class Frozen(BaseModel):
    """An immutable value, validated when it is created; unknown names are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Cell(Frozen):
    """One measurement: a strategy, its granularity, its critical section and its arrivals."""

    strategy: str
    segments: Annotated[int, Field(ge=1, le=SEGMENT_COUNT_MAX)] = 1
    batch: Annotated[int, Field(ge=1, le=BATCH_MAX)] = 1
    section: Kind = "sleep"
    hold_ms: Annotated[float, Field(ge=0, le=MILLISECONDS_MAX)] = 0.0
    rtt_ms: Annotated[float, Field(ge=0, le=ROUND_TRIP_MAX)] = 0.0
    """Added to every round trip to Redis by a proxy."""
    proxied: bool = False
    """Whether the traffic goes through that proxy: always with a delay, and without one as its base."""
    loop: Loop = "closed"
    buyers: Annotated[int, Field(ge=1, le=BUYERS_MAX)] = 64
    """Closed loop: number of buyers. Open loop: maximum concurrent orders; more are shed and counted."""
    offered_per_s: Annotated[float, Field(gt=0, le=RATE_MAX)] | None = None
    """Open loop: mean arrival rate, orders per second (of a spike: at its height)."""
    arrivals: Arrivals = "poisson"
    quantity: Annotated[int, Field(ge=1, le=QUANTITY_MAX)] = 1
    """Units per order."""
    stock: Annotated[int, Field(ge=1, le=STOCK_MAX)] | None = None
    """Units, or None for as many as last for the planned seconds, by a calibration that does not count."""
    case: Case | None = None
    skus: Annotated[int, Field(ge=1, le=SKUS_MAX)] = 1
    """Number of skus, each with segments and a share of the stock of its own."""
    zipf: Annotated[float, Field(ge=0, le=ZIPF_MAX)] = 0.0
    """A buyer chooses the sku of rank r with a probability proportional to 1 / r^zipf."""

    @model_validator(mode="before")
    @classmethod
    def _is_proxied(cls, found: Any) -> Any:  # noqa: ANN401  # whatever a plan or a file has
        is_delayed = isinstance(found, dict) and bool(found.get("rtt_ms"))
        return {**found, "proxied": True} if is_delayed else found

    @model_validator(mode="after")
    def _is_whole(self) -> Cell:
        try:
            self.critical_section()
        except InvalidInput as error:
            raise ValueError(str(error)) from error
        if (self.loop == "open") != (self.offered_per_s is not None):
            message = "offered_per_s belongs to an open loop, and an open loop needs it"
            raise ValueError(message)
        if self.zipf and self.skus == 1:
            message = f"zipf = {self.zipf:g} is a choice between several skus; give skus, such as skus = 16"
            raise ValueError(message)
        if self.skus > 1 and (self.stock is not None or self.case is not None):
            message = f"stock and case are of a cell with one sku, not with {self.skus}"
            raise ValueError(message)
        return self

    def critical_section(self) -> Section:
        """Return the critical section."""
        return Section(self.section, self.hold_ms)

    @property
    def cell_id(self) -> str:
        """Return a readable name of the cell: the same for the same values."""
        parts = [
            self.strategy,
            f"K={self.segments}",
            f"N={self.buyers}",
            f"B={self.batch}",
            str(self.critical_section()),
        ]
        if self.rtt_ms or self.proxied:
            parts.append(f"rtt={self.rtt_ms:g}ms")
        if self.offered_per_s is not None:
            parts.append(f"{self.arrivals}={self.offered_per_s:g}/s")
        if self.quantity != 1:
            parts.append(f"q={self.quantity}")
        if self.skus > 1:
            parts.append(f"skus={self.skus} zipf={self.zipf:g}")
        if self.stock is not None:
            parts.append(f"stock={self.stock}")
        if self.case is not None:
            parts.append(self.case)
        return " ".join(parts)


class Expectation(Frozen):
    """A figure and its bounds.

    `rate`: orders per second of the cell with the values `of` in the hypothesis's sweep, as a ratio to the cell with
    the values `over`, if given. `p99`: likewise, the p99 of an open loop's response times in milliseconds, with and
    without void runs. `oversold`, `refused-wrongly`: units and orders in all runs of all cells
    of the sweep with the values `of`. `model-error`, `noise-floor`: shares, over the whole session.

    If the sweep has no such cell, the cells of the whole file are searched. If there are several, the rate is of the
    cell without any batch, delay, open loop, quantity, stock, case or further sku that `of` does not name.
    """

    figure: Figure = "rate"
    of: Part = Field(default_factory=dict)
    over: Part = Field(default_factory=dict)
    at_least: float | None = None
    at_most: float | None = None

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if self.at_least is None and self.at_most is None:
            message = "an expectation needs at_least or at_most"
            raise ValueError(message)
        if self.over and self.figure not in {"rate", "p99"}:
            message = f"over belongs to the figures rate and p99, not to {self.figure}"
            raise ValueError(message)
        unknown = [name for name in (*self.of, *self.over) if name not in {*Cell.model_fields, PERCENT}]
        if unknown:
            message = f"a cell has no {unknown[0]!r}"
            raise ValueError(message)
        return self


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
    own: OwnStrategy | None = None
    """Where the cell's strategy comes from, if it is not one of the bench."""

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
        """The URL of Redis with one connection per buyer."""
        return with_connections(self.url, self.cell.buyers + SPARE_CONNECTIONS)
