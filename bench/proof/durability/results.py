"""The results of `torture durability`: the table, what broke, and the same as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from bench.results import Judged, described_conditions, say, show_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from bench.proof.durability.cells import Cell
    from bench.proof.durability.trial import TrialRecord

LABELS: Final = (
    "trials",
    "acknowledged before the fault",
    "forgotten by the server",
    "acknowledged orders lost",
    "units sold twice",
    "noticed after, s",
    "sells again after, s",
)
NOT_NOTICED: Final = "not noticed"


@dataclass(frozen=True, slots=True)
class CellRecord:
    """All trials of one cell, or why there are none."""

    cell: Cell
    trials: tuple[TrialRecord, ...]
    skipped: str = ""

    @property
    def broken(self) -> list[str]:
        """Return one sentence per guarantee that did not hold."""
        return [
            f"{self.cell.name}, trial {number}: {sentence}"
            for number, trial in enumerate(self.trials, start=1)
            for sentence in trial.verdict.broken
        ]

    def as_json(self) -> dict[str, Any]:
        """Return the record as JSON."""
        return {
            "profile": self.cell.profile.name,
            "fault": self.cell.fault.name,
            "skipped": self.skipped,
            "trials": [trial.as_json() for trial in self.trials],
        }


@dataclass(frozen=True, slots=True)
class DurabilityResults(Judged):
    """The results of a run."""

    cells: tuple[CellRecord, ...]
    conditions: dict[str, Any]

    @property
    def broken(self) -> list[str]:
        """Return one sentence per guarantee that did not hold."""
        return [sentence for record in self.cells for sentence in record.broken]

    def as_json(self) -> dict[str, Any]:
        """Return the content of the results file."""
        return {
            "benchmark": "torture-durability",
            "is_kept": self.is_kept,
            "broken": self.broken,
            "cells": [record.as_json() for record in self.cells],
            "conditions": self.conditions,
        }

    def show(self, console: Console) -> None:
        """Print a table on a terminal, or lines into a pipe."""
        rows = [(record.cell.name, *row_of(record.as_json())) for record in self.cells]
        told = ", ".join(f"{label}: {{}}" for label in LABELS)
        show_rows(console, ("cell", *LABELS), rows, f"{{}}: {told}".format)
        end = [f"BROKEN: {sentence}" for sentence in self.broken]
        end += [f"Skipped: {record.cell.name}: {record.skipped}." for record in self.cells if record.skipped]
        say(console, *(end or ["Every promise held."]), described_conditions(self.conditions))


def row_of(cell: dict[str, Any]) -> list[str]:
    """Return the columns of a cell, from its JSON, in the order of the labels: sums, and median and maximum."""
    trials: list[dict[str, Any]] = cell["trials"]
    if not trials:
        return ["0", *["-"] * (len(LABELS) - 1)]
    sums = [f"{sum(trial[name] for trial in trials):,}" for name in ("acknowledged", "forgotten", "lost", "sold_twice")]
    forgetful = [trial for trial in trials if trial["forgotten"] or trial["lost"]]
    noticed = "-" if not forgetful else spread([trial["noticed_s"] for trial in forgetful], NOT_NOTICED)
    return [str(len(trials)), *sums, noticed, spread([trial["again_s"] for trial in trials], "never")]


def spread(values: Sequence[float | None], missing: str) -> str:
    """Return median and maximum; `missing` for trials without a value."""
    known = [value for value in values if value is not None]
    lacking = len(values) - len(known)
    shown = f"{median(known):.2f}, {max(known):.2f}" if known else ""
    told = f"{missing} in {lacking} of {len(values)}" if lacking else ""
    return "; ".join(part for part in (shown, told) if part)
