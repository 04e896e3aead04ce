"""What of a hypothesis a machine can look up: a figure of the measured cells, and the bounds it is expected within."""

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

    `rate`: orders a second of the cell of the hypothesis's sweep that has the values `of`, as a ratio to the cell that
    has the values `over`, if there are any. `p99`: likewise, the p99 of an open loop's response times in milliseconds,
    of all runs together that are not void; it has no interval. `oversold`, `refused-wrongly`: units and orders in all
    runs of all cells of the sweep that have the values `of`. `model-error`, `noise-floor`: shares, of a whole session.

    Where the sweep has no such cell, those of the whole file are asked; of several, a rate is that of the one without a
    batch, delay, open loop, quantity, stock or case that was not named.
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
