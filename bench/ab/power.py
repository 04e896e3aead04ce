"""The power of `segmented bench ab`, really measured: `python -m bench.ab.power [--share S] [--json FILE]`.

Each cell is measured in one long series, with this code as build A and a copy that pauses in every confirmation as
build B. A try is what one call of the command would have seen: ROUNDS of the rounds. The runs of one build alone, in
groups of four, are the rounds of a comparison of the same code with itself. They lie twice as far apart as the runs of
the command, so drift of the machine harms them more.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from rich.console import Console

from bench.ab.builds import build_here, build_of
from bench.ab.measure import BUILD_NAMES, CELLS, ROUNDS, AbSizes, measure_ab
from bench.ab.statistics import Observed, compare
from bench.display import display_on
from bench.results import check_writable
from segmented.cli.console import console_beside
from segmented.files import write_whole

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench.ab.measure import AbResults
    from bench.ab.statistics import Round
    from bench.engine.cell import Cell

PAUSES: Final = {CELLS[1]: 78e-6, CELLS[0]: 3.7e-3}
"""Seconds that build B adds to each confirmation, by cell: 15 % or a little more of its throughput."""
SERIES: Final = {CELLS[1]: 100, CELLS[0]: 40}
"""Rounds of each cell."""
DRAWS: Final = 1_000
SHARES: Final = (0.15, 0.1, 0.05)
"""Slow-downs that are also tried with the runs of the slow build, multiplied by one factor."""
SAME: Final = "the same code"
SLOWER: Final = frozenset({"slower"})
DIFFERENT: Final = frozenset({"slower", "faster"})
CELL_COUNTS: Final = ("1", str(len(CELLS)))
"""Cells that are compared at once: with several, each interval is wider."""
LABELS: Final[tuple[Literal["A", "B"], ...]] = ("A", "B", "B", "A")
SLOW: Final = """

import time as _time

_confirm = Grant.confirm


def _confirm_late(self):
    until = _time.perf_counter() + {pause!r}
    if {pause!r} > 0.001:
        _time.sleep({pause!r})
    while _time.perf_counter() < until:
        pass
    return _confirm(self)


Grant.confirm = _confirm_late
"""


@dataclass(frozen=True, slots=True)
class Power:
    """How many tries called the builds different: of disjoint stretches of the series, and of DRAWS random draws."""

    stretches: int
    different: int
    drawn_share: float


def same_build_rounds(rounds: Sequence[Round]) -> list[Round]:
    """Return rounds of A B B A that are four runs of the same build each."""
    found: list[Round] = []
    for name in BUILD_NAMES:
        runs = [run for one in rounds for run in one if run.build == name]
        groups = [runs[at : at + 4] for at in range(0, len(runs) - 3, 4)]
        found += [
            _four([replace(run, build=label) for run, label in zip(four, LABELS, strict=True)]) for four in groups
        ]
    return found


def power_of(rounds: Sequence[Round], *, verdicts: frozenset[str], cells: int) -> Power:
    """Return how often a comparison of ROUNDS of these rounds, one of `cells`, gives one of the verdicts."""

    def is_so(some: Sequence[Round]) -> bool:
        return compare(some, cells=cells).verdict in verdicts

    stretches = [rounds[at : at + ROUNDS] for at in range(0, len(rounds) - ROUNDS + 1, ROUNDS)]
    chance = random.Random("power")
    drawn = [is_so(chance.sample(rounds, ROUNDS)) for _ in range(DRAWS)]
    return Power(len(stretches), sum(map(is_so, stretches)), sum(drawn) / DRAWS)


def slowed(rounds: Sequence[Round], share: float) -> list[Round]:
    """Return the rounds with the rates of B multiplied by one factor, so that all of them have B / A = 1 - share."""
    factor = (1 - share) / compare(rounds).plain
    return [_four([replace(run, rate=run.rate * (factor if run.build == "B" else 1)) for run in one]) for one in rounds]


def summary(rounds: Sequence[Round]) -> list[dict[str, Any]]:
    """Return a row for the slow build as it was, for each of SHARES, and for the same code."""
    same = same_build_rounds(rounds)
    plain = compare(rounds).plain
    tries = [
        (f"a build that is slower by {1 - plain:.1%}", rounds, SLOWER),
        *((f"the same runs, scaled to {share:.0%} slower", slowed(rounds, share), SLOWER) for share in SHARES),
        (SAME, same, DIFFERENT),
    ]
    return [
        {
            "tried": tried,
            "rounds": len(some),
            "powers": {cells: asdict(power_of(some, verdicts=verdicts, cells=int(cells))) for cells in CELL_COUNTS},
        }
        for tried, some, verdicts in tries
    ]


def measure(share: float) -> dict[str, Any]:
    """Measure each cell with its own slow build, with this share of its rounds. Returns the results as JSON."""
    found = [_measured(cell, pause, max(ROUNDS, round(SERIES[cell] * share))) for cell, pause in PAUSES.items()]
    cells = [{**one.cells[0].as_json(), "power": summary(one.cells[0].rounds)} for one in found]
    return {"conditions": found[0].conditions, "cells": cells}


def _measured(cell: Cell, pause: float, rounds: int) -> AbResults:
    with tempfile.TemporaryDirectory(prefix="segmented-power-") as name:
        folders = [Path(name) / which for which in ("a", "slow", "b")]
        for folder in folders:
            folder.mkdir()
        a, slow = build_here(folders[0]), build_here(folders[1])
        with (slow.folder / "segmented" / "stock" / "pool.py").open("a") as file:
            file.write(SLOW.format(pause=pause))
        b = build_of(str(slow.folder), folders[2])
        return measure_ab(a, b, (cell,), AbSizes(rounds=rounds), display_on(Console(stderr=True)))


def rounds_of(cell: Mapping[str, Any]) -> list[Round]:
    """Return the rounds of a cell of the results."""
    return [_four([Observed(**run) for run in one]) for one in cell["rounds"]]


def _four(runs: Sequence[Observed]) -> Round:
    one, two, three, four = runs
    return one, two, three, four


def table(results: Mapping[str, Any]) -> list[str]:
    """Return the table as the page has it."""
    lines = [
        "| cell | tried | found different, one cell compared | found different, three cells compared |",
        "| --- | --- | --: | --: |",
    ]
    return lines + [
        f"| {cell['cell_id']} | {row['tried']} | {' | '.join(_said(row['powers'][cells]) for cells in CELL_COUNTS)} |"
        for cell in results["cells"]
        for row in cell["power"]
    ]


def _said(power: Mapping[str, Any]) -> str:
    return f"{power['drawn_share']:.1%} ({power['different']} of {power['stretches']})"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.ab.power", description=__doc__)
    parser.add_argument("--share", type=float, default=1.0, help="share of the rounds: all of them take 35 minutes")
    parser.add_argument("--json", type=Path, help="write the results to this file; - is standard output")
    options = parser.parse_args()
    check_writable(options.json)
    measured = measure(options.share)
    console_beside(options.json).print("\n".join(table(measured)), markup=False)
    if options.json is not None:
        write_whole(options.json, json.dumps(measured) + "\n")
