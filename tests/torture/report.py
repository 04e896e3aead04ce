"""The report of a torture: its counts, the guarantees that did not hold, and its conditions."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console

from bench.results import described_conditions, say, show_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The report of one run."""

    benchmark: str
    broken: list[str]
    """One sentence per guarantee that did not hold."""
    figures: dict[str, Any]
    """The counts that are not guarantees."""
    conditions: dict[str, Any]
    must_be_zero: dict[str, int] = field(default_factory=dict)
    heads: Sequence[str] = ()
    """The heads of the table's columns; empty for a table without heads."""
    rows: Sequence[Sequence[str]] = ()
    line: Callable[..., str] = "{}: {}".format
    """How a row is printed into a pipe."""
    notes: Sequence[str] = ()

    @property
    def is_kept(self) -> bool:
        """Return whether every guarantee held."""
        return not self.broken

    def as_json(self) -> dict[str, Any]:
        """Return the content of the results file."""
        return {
            "benchmark": self.benchmark,
            "is_kept": self.is_kept,
            "broken": self.broken,
            "must_be_zero": self.must_be_zero,
            "figures": self.figures,
            "conditions": self.conditions,
        }

    def show(self, console: Console) -> None:
        """Print a table on a terminal, or lines into a pipe."""
        show_rows(console, self.heads, self.rows, self.line)
        end = [f"BROKEN: {sentence}" for sentence in self.broken] or ["Every promise held."]
        say(console, *end, *self.notes, described_conditions(self.conditions))
