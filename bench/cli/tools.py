"""`segmented bench report | compare | lint | counts`: commands that read or check results."""

from __future__ import annotations

from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from bench.display import display_on
from bench.engine.folder import RESULTS
from bench.engine.record import read_results
from bench.engine.session import Ended, ends_as_exceptions
from bench.results import Findings, check_writable, write
from segmented.cli.console import Console, console_beside
from segmented.cli.output import ELSEWHERE, address
from segmented.errors import InvalidInput
from segmented.files import write_whole
from segmented.process import EXIT_INTERRUPTED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

EXIT_BY_SIGNAL: Final = 128
NOTHING_KEPT: Final = "nothing is kept, because the figures come from all rounds together"
UrlOption = Annotated[
    str | None,
    typer.Option(metavar="URL", parser=address, help=f"Redis or Valkey to use instead of an embedded one; {ELSEWHERE}"),
]
DatabaseOption = Annotated[
    str | None,
    typer.Option(metavar="URL", parser=address, help=f"Order database to use instead of an embedded one; {ELSEWHERE}"),
]
JsonOption = Annotated[
    Path | None, typer.Option(help="Write the results to this file; - is standard output.", metavar="FILE")
]
ResultsArgument = Annotated[Path, typer.Argument(help="Results file results.jsonl, or its folder.")]


@contextmanager
def exits_by_signal(kept: Callable[[], str] = lambda: NOTHING_KEPT) -> Iterator[None]:
    """Leave the block as by an exception when a signal asks for the end, so that all is removed; exit with its code.

    The sentence that it then prints ends with what is `kept`, and how to go on.
    """
    exit_code = 0
    try:
        with ends_as_exceptions():
            yield
    except Ended as end:
        exit_code = EXIT_BY_SIGNAL + end.number
    except KeyboardInterrupt:
        exit_code = EXIT_INTERRUPTED
    if exit_code:
        typer.echo(f"segmented: interrupted: {kept()}", err=True)
        raise typer.Exit(exit_code)


def report(
    folder: Annotated[Path, typer.Argument(help="Results file results.jsonl, or its folder.", metavar="DIR")],
    *,
    publish: Annotated[
        Path | None,
        typer.Option(
            "--publish",
            metavar="DIR",
            help="Draw it in a new folder instead, with a copy of the results and of the histories that it needs.",
        ),
    ] = None,
    core_hour: Annotated[
        float | None,
        typer.Option(
            "--core-hour",
            metavar="PRICE",
            help="Price of an hour of a server's core, in any currency: the tables show the price of a million orders."
            "  [default: no prices]",
        ),
    ] = None,
) -> None:
    """Redraw a session's report from its results: figures, page, table."""
    if core_hour is not None:
        _part("bench.analysis.cost", "check_price")(core_hour)
        if publish is not None:
            message = "--core-hour with --publish: a published report has no prices; draw it again with --core-hour"
            raise InvalidInput(message)
    whole = folder.parent if folder.name == RESULTS and folder.is_file() else folder
    draw(whole, Console(), to=publish, core_hour=core_hour)


def compare(
    first: ResultsArgument,
    second: ResultsArgument,
    *,
    json: Annotated[
        Path | None,
        typer.Option("--json", help="Write the findings to this file; - is standard output.", metavar="FILE"),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(
            "--html", help="Write the comparison to this file as a page; - is standard output.", metavar="FILE"
        ),
    ] = None,
) -> None:
    """Compare two sessions cell by cell. Exit code 1 if a cell of the second is slower, or breaks a promise."""
    check_writable(json)
    check_writable(html, option="--html")
    found = _part("bench.analysis.compare", "compare")(*(read_results(_file(one)) for one in (first, second)))
    found.show(console_beside(json, html))
    write(found, json)
    if html is not None:
        write_whole(html, _part("bench.report.compared", "page")(found, (str(first), str(second))))
    _exit(int(found.is_worse))


def lint(results: ResultsArgument) -> None:
    """Compute a results file again from its plan, histories and books. Exit code 0 only if every check holds."""
    _exit(_part("bench.lint", "lint_file")(results, Console()))


def counts(
    *,
    write: Annotated[bool, typer.Option("--write", help="Save the current counts as the baseline.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Compare with the baseline. This is the default.")] = False,
) -> None:
    """Count what an order costs (commands, round trips, attempts), and compare with the committed baseline."""
    if write and check:
        message = "--check compares and --write replaces the baseline: give one of them"
        raise InvalidInput(message)
    _exit(_part("bench.micro.counts", "count")(Console(), writes=write))


def finish(results: Findings, console: Console, json: Path | None) -> None:
    """Print the results and write them to the file, if one was given; exit with 1 if a guarantee was broken."""
    results.show(console)
    write(results, json)
    _exit(int(not results.is_kept))


def draw(
    folder: Path,
    console: Console,
    *,
    to: Path | None = None,
    core_hour: float | None = None,
) -> None:
    """Draw a session's report: figures, page, table if the lint allows one, and how to repeat it."""
    with display_on(console).strategy("report") as progress:
        if to is None:
            drawn = _part("bench.report.drawing", "redraw")(folder, progress, core_hour=core_hour)
        else:
            drawn = _part("bench.report.drawing", "publish")(folder, to, progress)
    for sentence in drawn.sentences():
        console.print(sentence, highlight=False, soft_wrap=True, markup=False)


def _file(path: Path) -> Path:
    return path / RESULTS if path.is_dir() else path


def _part(module: str, name: str) -> Callable[..., Any]:
    """Import a function on demand: figures and statistics take a second to load."""
    found: Callable[..., Any] = getattr(import_module(module), name)
    return found


def _exit(code: int) -> None:
    if code:
        raise typer.Exit(code)
