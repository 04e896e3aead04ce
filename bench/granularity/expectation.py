"""The part of a hypothesis that a program can check: a figure of the measured cells, and its expected bounds."""

from __future__ import annotations

from typing import Any, Final, Literal, Self

from pydantic import Field, model_validator

from bench.granularity.cell import Cell, Frozen

PERCENT: Final = "percent"
Part = dict[str, Any]
"""Some fields of a cell, and `percent`: the load of an open loop, as the plan gives it."""
Figure = Literal["rate", "p99", "oversold", "refused-wrongly", "model-error", "noise-floor"]


class Expectation(Frozen):
    """A figure and its bounds.

    `rate`: orders per second of the cell with the values `of` in the hypothesis's sweep, as a ratio to the cell with
    the values `over`, if given. `p99`: likewise, the p99 of an open loop's response times in milliseconds, over all
    runs that are not void; it has no interval. `oversold`, `refused-wrongly`: units and orders in all runs of all cells
    of the sweep with the values `of`. `model-error`, `noise-floor`: shares, over the whole session.

    If the sweep has no such cell, the cells of the whole file are searched. If there are several, the rate is of the
    cell without any batch, delay, open loop, quantity, stock or case that `of` does not name.
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
