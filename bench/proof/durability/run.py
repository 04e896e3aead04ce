"""One run of `torture durability`: every cell, trial by trial."""

from __future__ import annotations

import os
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench.conditions import server_conditions
from bench.proof.durability.results import CellRecord, DurabilityResults
from bench.proof.durability.trial import run_trial
from bench.proof.preload.libraries import COMPILER, compiled, compiler
from segmented.servers import ValkeyServer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench.display import Display, Progress
    from bench.proof.durability.cells import Cell, DurabilityOptions
    from bench.proof.preload.libraries import Library

NO_COMPILER: Final = f"no C compiler ({COMPILER}) to build the preloaded library with"


def torture_durability(options: DurabilityOptions, display: Display) -> DurabilityResults:
    """Run all cells on servers of their own. Raises SegmentedError if a trial cannot be judged."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="segmented-preload-")))
        libraries = _libraries(options, folder)
        found = conditions(options)
        records = []
        for number, cell in enumerate(options.cells, start=1):
            with display.strategy(f"{cell.name} ({number} of {len(options.cells)})") as progress:
                records.append(_run_cell(cell, options, libraries, progress))
        return DurabilityResults(tuple(records), found)


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
