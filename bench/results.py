"""The results of a benchmark: records, conditions, and whether every guarantee held."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from bench.report import described_conditions, rows, table
from segmented import files

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rich.console import Console

    from bench.record import RunRecord


class Findings(Protocol):
    """The results of any benchmark."""

    @property
    def is_kept(self) -> bool:
        """Did every promise hold?"""

    def as_json(self) -> dict[str, Any]:
        """Return what goes into the file."""

    def show(self, console: Console) -> None:
        """Print the results."""


@dataclass(frozen=True, slots=True)
class Results:
    """The results of the demo."""

    benchmark: str
    runs: tuple[RunRecord, ...]
    conditions: dict[str, Any]
    findings: dict[str, Any] = field(default_factory=dict)
    """Figures derived from several runs."""
    remarks: Sequence[str] = ()
    """The conclusions, one sentence each."""

    @property
    def is_kept(self) -> bool:
        """Did every promise hold?"""
        return not any(run.violations for run in self.runs)

    def as_json(self) -> dict[str, Any]:
        """Return what goes into the file."""
        return {
            "benchmark": self.benchmark,
            "runs": [run.as_json() for run in self.runs],
            "conditions": self.conditions,
            "findings": self.findings,
            "remarks": list(self.remarks),
        }

    def rows(self) -> list[list[str]]:
        """Return the table; the first row is the header."""
        return rows(self.runs)

    def show(self, console: Console) -> None:
        """Print the table (in a pipe its lines were printed before), the remarks and the conditions."""
        if console.is_terminal:
            console.print(table(self.runs))
        for text in (*self.remarks, described_conditions(self.conditions)):
            console.print(text, highlight=False, soft_wrap=not console.is_terminal)


def check_writable(file: Path | None, *, option: str = "--json") -> None:
    """Check before measuring that the file can be written. Raises InvalidInput."""
    if file is not None:
        files.check_writable(file, option)


def write(results: Findings, file: Path | None) -> None:
    """Write the results, if a file was given."""
    if file is None:
        return
    files.write_whole(file, json.dumps(results.as_json(), indent=2) + "\n")
