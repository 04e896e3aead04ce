"""A figure of the report: what it is called, what its caption says, and how it is drawn; or why it is not.

An interval is drawn from a low to a high end, or not at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from bench.analysis.intervals import mean_of, number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure

    from bench.analysis.intervals import Estimate

    Ends = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Drawn:
    """A figure, drawn. `name` is the file's, without its ending."""

    number: str
    name: str
    title: str
    caption: str
    figure: Figure


@dataclass(frozen=True, slots=True)
class NotDrawn:
    """A figure whose data the session does not have."""

    number: str
    name: str
    title: str
    why: str


Outcome = Drawn | NotDrawn


def interval_of(values: Sequence[float]) -> Ends | None:
    """Return the 95 % interval of the mean of shares or indexes over runs; None below three runs."""
    return _mean(tuple(values))


@lru_cache(maxsize=4_096)
def _mean(values: tuple[float, ...]) -> Ends | None:
    return ends(mean_of(values)) if values else None


def ends(found: Estimate | None) -> Ends | None:
    """Return the two ends of an estimate, where it has them."""
    return None if found is None or found.low is None or found.high is None else (found.low, found.high)


def with_ends(value: float, found: Ends | None) -> str:
    """Return a value and its interval as text: `812 [804, 820]`."""
    return number(value) + ("" if found is None else f" [{number(found[0])}, {number(found[1])}]")
