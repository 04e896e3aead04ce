"""A cell of the grid: everything that defines a run. Runs of one cell differ only by their seed."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from bench.sections import MILLISECONDS_MAX, Kind, Section
from segmented.errors import InvalidInput
from segmented.models import SEGMENT_COUNT_MAX, STOCK_MAX

BUYERS_MAX = 1_000
BATCH_MAX = 1_000
ROUND_TRIP_MAX = 1_000.0
RATE_MAX = 100_000.0
QUANTITY_MAX = 1_000

Loop = Literal["closed", "open"]
Arrivals = Literal["poisson", "spike"]
Case = Literal["one-unit", "cancel-storm", "restock"]
"""Extra events of an unfavourable case: one unit is sold; orders are cancelled; units are added during the sale."""


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
    """Added to every round trip to Redis by a proxy; 0 means no proxy."""
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

    @model_validator(mode="after")
    def _is_whole(self) -> Cell:
        try:
            self.critical_section()
        except InvalidInput as error:
            raise ValueError(str(error)) from error
        if (self.loop == "open") != (self.offered_per_s is not None):
            message = "offered_per_s belongs to an open loop, and an open loop needs it"
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
        if self.rtt_ms:
            parts.append(f"rtt={self.rtt_ms:g}ms")
        if self.offered_per_s is not None:
            parts.append(f"{self.arrivals}={self.offered_per_s:g}/s")
        if self.quantity != 1:
            parts.append(f"q={self.quantity}")
        if self.stock is not None:
            parts.append(f"stock={self.stock}")
        if self.case is not None:
            parts.append(self.case)
        return " ".join(parts)
