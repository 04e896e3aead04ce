"""`segmented bench`: a group with one command per benchmark, and commands that read results.

Without a command name it runs `granularity` with the given options.

One command per benchmark with fixed options, from the registry.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer.core import TyperGroup

from bench.cli.ab import ab
from bench.cli.granularity import QuickOption, granularity, orders
from bench.cli.tools import DatabaseOption, JsonOption, UrlOption, compare, counts, exits_by_signal, lint, report
from bench.demo.measure import NAME as DEMO
from bench.display import display_on
from bench.engine.plan import nearest
from bench.fixed_report import PAGE, check_folder, write_report
from bench.registry import BENCHMARKS, Addresses, Scale
from bench.results import check_writable, write
from segmented.cli.console import console_beside
from segmented.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Sequence

DEFAULT: Final = "granularity"
ROUNDS_MAX: Final = 1_000
RoundsOption = Annotated[
    int | None, typer.Option(help="Rounds per ratio; the demo has none.", metavar="N", min=1, max=ROUNDS_MAX)
]
ReportOption = Annotated[
    Path | None,
    typer.Option(help="New folder for the results, their page, and a Markdown table.", metavar="DIR"),
]


def add_fixed(application: typer.Typer) -> None:
    """Add a command for each benchmark of the registry."""
    for name, benchmark in BENCHMARKS.items():
        application.command(name, help=f"Measure: {benchmark.summary}.")(_fixed(name))


def _fixed(name: str) -> Callable[..., None]:
    def run(
        *,
        quick: QuickOption = False,
        rounds: RoundsOption = None,
        report: ReportOption = None,
        json: JsonOption = None,
        url: UrlOption = None,
        database: DatabaseOption = None,
    ) -> None:
        _measure(name, Addresses(url, database), Scale(quick, rounds), report, json)

    return run


def _measure(name: str, addresses: Addresses, scale: Scale, report: Path | None, json: Path | None) -> None:
    """Run a benchmark by name; exit with 1 if a guarantee was broken."""
    benchmark = BENCHMARKS[name]
    if name == DEMO and scale.rounds is not None:
        message = "--rounds does not fit: the demo has one sale for each strategy; leave it out"
        raise InvalidInput(message)
    check_writable(json)
    check_folder(report)
    console = console_beside(json)
    left_out = benchmark.leaves_out if scale.quick else ""
    if left_out:
        console.print(f"Left out: {left_out}.", highlight=False, soft_wrap=True, markup=False)
    with exits_by_signal():
        results = benchmark.measure(addresses, scale, display_on(console))
    results.show(console)
    write(results, json)
    write_report(results, report, summary=benchmark.summary, left_out=left_out)
    if report is not None:
        console.print(f"Report: {report / PAGE}", highlight=False, soft_wrap=True, markup=False)
    if not results.is_kept:
        raise typer.Exit(1)


class BenchGroup(TyperGroup):
    """A group with a default command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401  # typer's own copy of click
        """Insert the default command. Raises InvalidInput for an unknown benchmark."""
        return super().parse_args(ctx, whole(args, list(self.commands), ctx.help_option_names))


def whole(words: list[str], known: Sequence[str], helps: Sequence[str] = ("--help",)) -> list[str]:
    """Return the arguments with a command name first. Raises InvalidInput for an unknown name."""
    if not words or (words[0].startswith("-") and words[0] not in helps):
        return [DEFAULT, *words]
    if not words[0].startswith("-") and words[0] not in known:
        message = f"unknown benchmark {words[0]!r}{nearest(words[0], known)}"
        raise InvalidInput(message)
    return words


HELP: Final = "Measure, and read what was measured. Without a name: granularity, with its options, as in bench --quick."
bench = typer.Typer(cls=BenchGroup, help=HELP)


@bench.callback(help=HELP)
def _group() -> None:
    """Exist so that typer keeps the commands a group."""


bench.command()(granularity)


bench.command()(orders)


bench.command()(ab)


add_fixed(bench)


for tool in (report, compare, lint, counts):
    bench.command()(tool)
