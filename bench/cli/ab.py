"""`segmented bench ab`: the library of a commit beside the code here."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated, Final

import typer

from bench.ab.builds import build_here, build_of
from bench.ab.measure import CELLS, ROUNDS, SECONDS, AbSizes, measure_ab
from bench.analysis.intervals import RUNS_MIN
from bench.cli.tools import exits_by_signal
from bench.display import display_on
from bench.engine.cell import Cell
from bench.results import check_writable, write
from bench.strategies import STRATEGIES
from segmented.cli.console import console_beside
from segmented.errors import InvalidInput

ROUNDS_MAX: Final = 1_000
SECONDS_MAX: Final = 60.0


def ab(
    *,
    against: Annotated[
        str, typer.Option(help="A: a commit of this checkout, or a folder with `segmented` in it.", metavar="COMMIT")
    ] = "HEAD",
    strategy: Annotated[
        str | None, typer.Option(help="Measure only this strategy. [default: three cells]", metavar="NAME")
    ] = None,
    segments: Annotated[int, typer.Option(help="Segments of --strategy.", metavar="K", min=1)] = 16,
    hold: Annotated[float, typer.Option(help="Hold of --strategy; 0: none.", metavar="MS", min=0)] = 20.0,
    rounds: Annotated[
        int, typer.Option(help="Rounds of four runs, two of each build.", metavar="N", min=RUNS_MIN, max=ROUNDS_MAX)
    ] = ROUNDS,
    seconds: Annotated[
        float, typer.Option(help="Planned seconds of a run.", metavar="S", min=1, max=SECONDS_MAX)
    ] = SECONDS,
    json: Annotated[
        Path | None,
        typer.Option(help="Write all runs and the findings to this file; - is standard output.", metavar="FILE"),
    ] = None,
) -> None:
    """Compare the code here (B) with a commit (A): both builds run in turns, seconds apart, on fresh servers.

    Exit code 0 if no cell is slower, 1 if one is or if B broke a promise, 2 for a commit that cannot be measured.
    """
    check_writable(json)
    cells = CELLS if strategy is None else (cell_of(strategy, segments, hold),)
    with exits_by_signal(), tempfile.TemporaryDirectory(prefix="segmented-ab-") as name:
        folders = [Path(name) / which for which in ("a", "b")]
        for folder in folders:
            folder.mkdir()
        a, b = build_of(against, folders[0]), build_here(folders[1])
        console = console_beside(json)
        found = measure_ab(a, b, cells, AbSizes(rounds, seconds), display_on(console))
    found.show(console)
    write(found, json)
    if found.is_worse:
        raise typer.Exit(1)


def cell_of(strategy: str, segments: int, hold: float) -> Cell:
    """Return the closed cell with 64 buyers that the options name. Raises InvalidInput."""
    if strategy not in STRATEGIES:
        message = f"--strategy {strategy}: unknown strategy; known are: {', '.join(STRATEGIES)}"
        raise InvalidInput(message)
    has_segments = STRATEGIES[strategy].has_segments
    return Cell(
        strategy=strategy,
        segments=segments if has_segments else 1,
        section="sleep" if hold else "none",
        hold_ms=hold,
    )
