"""One run of `torture durability`: every cell, trial by trial, and its report."""

from __future__ import annotations

import os
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from bench.conditions import server_conditions
from segmented.servers import ValkeyServer
from tests.torture.durability.trial import run_trial
from tests.torture.preload import COMPILER, compiled, compiler
from tests.torture.report import Report

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench.results import Display, Progress
    from tests.torture.durability.cells import Cell, DurabilityOptions
    from tests.torture.durability.trial import TrialRecord
    from tests.torture.preload import Library

NO_COMPILER: Final = f"no C compiler ({COMPILER}) to build the preloaded library with"


def torture_durability(options: DurabilityOptions, display: Display) -> Report:
    """Run all cells on servers of their own. Raises SegmentedError if a trial cannot be judged."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="segmented-preload-")))
        libraries = _libraries(options, folder)
        found = conditions(options)
        records = []
        for number, cell in enumerate(options.cells, start=1):
            with display.strategy(f"{cell.name} ({number} of {len(options.cells)})") as progress:
                records.append(_run_cell(cell, options, libraries, progress))
        return report_of(records, found)


def _libraries(options: DurabilityOptions, folder: Path) -> Mapping[Library, Path]:
    found = compiler()
    if found is None or not any(cell.needs_compiler for cell in options.cells):
        return {}
    names: tuple[Library, ...] = ("clock", "sync_log")
    return {name: compiled(name, folder, found) for name in names}


def _run_cell(
    cell: Cell, options: DurabilityOptions, libraries: Mapping[Library, Path], progress: Progress
) -> CellRecord:
    if cell.needs_compiler and not libraries:
        progress(f"skipped, {NO_COMPILER}", 0, options.trial_count)
        return CellRecord(cell, (), NO_COMPILER)
    trials = []
    for number in range(options.trial_count):
        progress("trials", number, options.trial_count)
        trials.append(run_trial(cell, f"{options.seed}/{number}", libraries))
    return CellRecord(cell, tuple(trials))


def conditions(options: DurabilityOptions) -> dict[str, Any]:
    """Return versions, cores and options."""
    load = round(os.getloadavg()[0], 2)
    with ValkeyServer.start() as server:
        found = server_conditions(server.url)
    return {
        **found,
        "load_before": load,
        "options": {"trials": options.trial_count, "cell": options.cell, "seed": options.seed},
    }


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


def report_of(cells: Sequence[CellRecord], conditions: dict[str, Any]) -> Report:
    """Return the report of some cells."""
    told = ", ".join(f"{label}: {{}}" for label in LABELS)
    return Report(
        benchmark="torture-durability",
        broken=[sentence for record in cells for sentence in record.broken],
        figures={"cells": [record.as_json() for record in cells]},
        conditions=conditions,
        heads=("cell", *LABELS),
        rows=[(record.cell.name, *row_of(record.as_json())) for record in cells],
        line=f"{{}}: {told}".format,
        notes=[f"Skipped: {record.cell.name}: {record.skipped}." for record in cells if record.skipped],
    )


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
