"""`segmented bench NAME`: any benchmark, with its own fixed options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from bench.registry import BENCHMARKS, HowMuch, Where, check_sizes, find_benchmark
from bench.results import check_writable, write
from bench.watch import watch_on

NAMES = "; ".join(f"{name}: {benchmark.summary}" for name, benchmark in BENCHMARKS.items())


def bench(
    name: Annotated[str, typer.Argument(help=f"{NAMES}.")],
    *,
    json: Annotated[Path | None, typer.Option(help="Write the results to this file.", metavar="FILE")] = None,
    url: Annotated[str | None, typer.Option(help="Redis or Valkey to use instead of an embedded one.")] = None,
    database: Annotated[str | None, typer.Option(help="Order database to use instead of an embedded one.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="workers: do little, to see it work.")] = False,
    rounds: Annotated[int | None, typer.Option(help="workers: take each ratio in so many rounds.")] = None,
) -> None:
    """Run a benchmark by its name."""
    benchmark = find_benchmark(name)
    how_much = HowMuch(quick, rounds)
    check_sizes(name, benchmark, how_much)
    check_writable(json)
    console = Console()
    results = benchmark.measure(Where(url, database), how_much, watch_on(console))
    results.show(console)
    write(results, json)
    if not results.is_kept:
        raise typer.Exit(1)
