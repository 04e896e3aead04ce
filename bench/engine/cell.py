"""A cell of the grid: everything that defines a run. Runs of one cell differ only by their seed.

Also the part of a hypothesis that a program can check (a figure of the measured cells, and its expected bounds), and
the assignment of the process of one run: one JSON object in a line.

A schedule of arrivals for an open loop is an ascending array of seconds from the beginning, all before the end,
generated from a seed before the sale begins. It does not depend on the progress of the sale: that makes the loop open.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from bench import sizing
from bench.sections import MILLISECONDS_MAX, Kind, Section
from bench.sizing import STOCK_MIN
from bench.strategies.base import with_connections
from bench.strategies.own import OwnStrategy  # noqa: TC001  # pydantic needs it at runtime
from segmented.errors import InvalidInput
from segmented.models import SEGMENT_COUNT_MAX, STOCK_MAX

if TYPE_CHECKING:
    from numpy.typing import NDArray

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
            raise ValueError("offered_per_s belongs to an open loop, and an open loop needs it")
        if self.zipf and self.skus == 1:
            raise ValueError(f"zipf = {self.zipf:g} is a choice between several skus; give skus, such as skus = 16")
        if self.skus > 1 and (self.stock is not None or self.case is not None):
            raise ValueError(f"stock and case are of a cell with one sku, not with {self.skus}")
        return self

    def critical_section(self) -> Section:
        """Return the critical section."""
        return Section(self.section, self.hold_ms)

    @property
    def cell_id(self) -> str:
        """Return a readable name of the cell: the same for the same values."""
        parts = [f"{self.strategy} K={self.segments} N={self.buyers} B={self.batch} {self.critical_section()}"]
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
            raise ValueError("an expectation needs at_least or at_most")
        if self.over and self.figure not in {"rate", "p99"}:
            raise ValueError(f"over belongs to the figures rate and p99, not to {self.figure}")
        unknown = [name for name in (*self.of, *self.over) if name not in {*Cell.model_fields, PERCENT}]
        if unknown:
            raise ValueError(f"a cell has no {unknown[0]!r}")
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


# --- arrivals ---

BASE_SHARE: Final = 0.1
"""The rate before the spike and long after it, as a share of its height."""
RISE_SHARE: Final = 0.2
"""When the spike rises, as a share of the measured seconds."""
DECLINE_SHARE: Final = 0.2
"""The time in which the excess over the base falls to 1/e, as a share of the measured seconds."""


@dataclass(frozen=True, slots=True)
class Spike:
    """A flash sale: `base` arrivals per second, a jump to `height` at `at` seconds, then an exponential decline."""

    base: float
    height: float
    at: float
    decline: float
    """Seconds in which the excess over the base falls to 1/e."""

    def __post_init__(self) -> None:
        """Validate the spike. Raises InvalidInput."""
        if not 0 <= self.base <= self.height or self.at < 0 or self.decline <= 0:
            raise InvalidInput(
                f"a spike from {self.base:g} to {self.height:g} arrivals a second at {self.at:g} s, declining in "
                f"{self.decline:g} s, is none: 0 <= base <= height, at >= 0 and decline > 0 must hold"
            )

    def rate(self, at: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return arrivals per second at these times."""
        above = (self.height - self.base) * np.exp(-np.maximum(at - self.at, 0.0) / self.decline)
        return np.where(at < self.at, self.base, self.base + above)

    def expected(self, seconds: float) -> float:
        """Return the expected number of arrivals in the first `seconds`."""
        after = max(0.0, seconds - self.at)
        above = (self.height - self.base) * self.decline * (1.0 - float(np.exp(-after / self.decline)))
        return self.base * seconds + above


def poisson(rate: float, seconds: float, *, seed: int) -> NDArray[np.float64]:
    """Return arrivals of a Poisson process: a random number of uniformly distributed times."""
    generator = np.random.default_rng(seed)
    return _scattered(generator, rate, seconds)


def spike(profile: Spike, seconds: float, *, seed: int) -> NDArray[np.float64]:
    """Return arrivals of a Poisson process whose rate follows the profile.

    By thinning (P. Lewis and G. Shedler, 1979): arrivals at the rate of the height, each kept with probability
    rate / height at its time.
    """
    generator = np.random.default_rng(seed)
    found = _scattered(generator, profile.height, seconds)
    return found[generator.random(len(found)) * profile.height < profile.rate(found)]


def _scattered(generator: np.random.Generator, rate: float, seconds: float) -> NDArray[np.float64]:
    found = np.sort(generator.random(generator.poisson(rate * seconds)) * seconds)
    return found[found < seconds]  # the product may round up to the end itself


def schedule_of(cell: Cell, *, warm_up: float, seconds: float, seed: int) -> NDArray[np.float64]:
    """Return the intended times of an open cell's calls, from its warm-up to the end of the measured seconds.

    With batches an arrival is a call of `cell.batch` orders, so there are fewer arrivals.
    """
    if cell.offered_per_s is None:
        raise InvalidInput(f"{cell.cell_id} is a closed loop, which has no schedule")
    height = cell.offered_per_s / cell.batch
    if cell.arrivals == "poisson":
        return poisson(height, warm_up + seconds, seed=seed)
    base = cell.offered_per_s * BASE_SHARE / cell.batch
    profile = Spike(base, height, warm_up + RISE_SHARE * seconds, DECLINE_SHARE * seconds)
    return spike(profile, warm_up + seconds, seed=seed)


def units_asked(cell: Cell, *, warm_up: float, seconds: float, seed: int) -> int:
    """Return a stock that a run with this seed cannot exhaust: the units that it orders."""
    calls = len(schedule_of(cell, warm_up=warm_up, seconds=seconds, seed=seed))
    return max(STOCK_MIN, calls * cell.batch * cell.quantity)
