"""`segmented bench granularity` and `segmented bench orders`: measure a plan."""

from __future__ import annotations

import json as json_module
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

import typer

from bench.analysis.measured import broken_promises
from bench.cli.tools import DatabaseOption, JsonOption, UrlOption, draw, exits_by_signal
from bench.engine.folder import RESULTS
from bench.engine.plan import PLAN_FILE, LoadedPlan, nearest, own_plan, read_plan
from bench.engine.record import read_results
from bench.engine.session import SessionOptions, SessionView, kept_in, run_session, show_results
from bench.results import check_writable
from bench.strategies.own import add_strategy
from segmented.cli.console import console_beside
from segmented.errors import InvalidInput
from segmented.files import write_whole

FOLDER: Final = Path("bench-results")

QuickOption = Annotated[bool, typer.Option("--quick", help="Finish within two minutes, and list what is skipped.")]
PlanOption = Annotated[
    Path | None, typer.Option("--plan", help="Plan file. [default: the plan of the published figures]", metavar="FILE")
]
SweepOption = Annotated[
    list[str] | None, typer.Option("--sweep", help="Run only this sweep of the plan; repeatable.", metavar="NAME")
]
StrategyOption = Annotated[
    list[str] | None,
    typer.Option(
        "--strategy",
        help="Class of a Python file to measure as a further strategy; repeatable. Without --plan, it is compared with"
        " one lock, 16 segment locks and no lock.",
        metavar="FILE:CLASS",
    ),
]
ReportOption = Annotated[
    Path | None,
    typer.Option(
        "--report",
        help="Folder for the results; a stopped session continues there. [default: a new one in bench-results]",
        metavar="DIR",
    ),
]


def granularity(
    *,
    quick: QuickOption = False,
    plan: PlanOption = None,
    sweep: SweepOption = None,
    strategy: StrategyOption = None,
    report: ReportOption = None,
    json: JsonOption = None,
    url: UrlOption = None,
    database: DatabaseOption = None,
) -> None:
    """Measure the effect of lock granularity: run the plan's cells in rounds of random order, and check each run.

    Exit code 0 if every strategy kept its guarantees, 1 if one did not, 2 if the session had to stop: finished runs are
    kept, and the same command with the same --report continues.
    """
    own = [add_strategy(one) for one in dict.fromkeys(strategy or ())]
    loaded = own_plan(own) if own and plan is None else read_plan(plan or PLAN_FILE)
    names = [one.name for one in loaded.plan.sweeps]
    for name in sweep or ():
        if name not in names:
            message = f"--sweep {name}: {loaded.file} has no such sweep{nearest(name, names)}"
            raise InvalidInput(message)
    _measure(loaded, tuple(sweep or ()), quick=quick, report=report, json=json, addresses=(url, database))


def orders(
    *,
    quick: QuickOption = False,
    plan: PlanOption = None,
    report: ReportOption = None,
    json: JsonOption = None,
    url: UrlOption = None,
    database: DatabaseOption = None,
) -> None:
    """Compare the strategies for single orders and for batches: a part of the plan."""
    loaded = read_plan(plan or PLAN_FILE)
    if not loaded.plan.orders:
        message = f"{loaded.file}: orders: the plan names no sweeps for this benchmark"
        raise InvalidInput(message)
    _measure(loaded, tuple(loaded.plan.orders), quick=quick, report=report, json=json, addresses=(url, database))


def _measure(
    loaded: LoadedPlan,
    only: tuple[str, ...],
    *,
    quick: bool,
    report: Path | None,
    json: Path | None,
    addresses: tuple[str | None, str | None],
) -> None:
    check_writable(json)
    folder = report or FOLDER / f"{datetime.now(UTC):%Y-%m-%dT%H%M%SZ}"
    console = console_beside(json)
    view = SessionView(console)
    options = SessionOptions(
        loaded=loaded, folder=folder, is_quick=quick, only=only, url=addresses[0], database=addresses[1]
    )
    with exits_by_signal(lambda: _kept_in(folder)):
        file = run_session(options, view)
    found = read_results(file)
    show_results(found, console)
    if json is not None:
        whole = {
            "session": found.session.model_dump(mode="json", by_alias=True),
            "runs": [run.model_dump(mode="json", by_alias=True) for run in found.runs],
            "end": found.end and found.end.model_dump(mode="json", by_alias=True),
        }
        write_whole(json, json_module.dumps(whole, indent=2) + "\n")
    if found.runs:
        draw(folder, console)
    kept = [(run, names) for run in found.runs if (names := broken_promises(run))]
    for run, names in kept:
        typer.echo(f"{run.cell_id} (run {run.run}) broke what it promises: {', '.join(names)}", err=True)
    if kept:
        raise typer.Exit(1)


def _kept_in(folder: Path) -> str:
    file = folder / RESULTS
    return kept_in(folder, len(read_results(file).runs) if file.is_file() else 0)
