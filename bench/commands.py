"""Shared by the bench's commands: options, exit codes, and the report folder.

The report folder of a benchmark with fixed options has its results, a self-contained page, and a table.
"""

from __future__ import annotations

import json as json_module
import os
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Protocol

import typer

from bench.engine.session import Ended, ends_as_exceptions
from bench.results import Findings, write
from segmented.cli.output import ELSEWHERE, address
from segmented.errors import InvalidInput, SegmentedError
from segmented.process import EXIT_INTERRUPTED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from segmented.cli.console import Console

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


def finish(results: Findings, console: Console, json: Path | None) -> None:
    """Print the results and write them to the file, if one was given; exit with 1 if a guarantee was broken."""
    results.show(console)
    write(results, json)
    if not results.is_kept:
        raise typer.Exit(1)


# --- the report folder of a benchmark with fixed options ---

RESULTS: Final = "results.json"
PAGE: Final = "report.html"
TABLE: Final = "table.md"
TEMPLATE: Final = "fixed.html.j2"


class Reported(Findings, Protocol):
    """Results that fit into one table."""

    @property
    def benchmark(self) -> str:
        """The name of the benchmark."""

    @property
    def conditions(self) -> dict[str, Any]:
        """The conditions of the measurement."""

    @property
    def remarks(self) -> Sequence[str]:
        """The conclusions, one sentence each."""

    def rows(self) -> list[list[str]]:
        """Return the table; the first row is the header."""


def check_folder(folder: Path | None) -> None:
    """Check the report folder before anything is measured: it must be new or empty.

    Raises InvalidInput. Nothing is created or changed.
    """
    if folder is None:
        return
    try:
        nearest = next(one for one in (folder.absolute(), *folder.absolute().parents) if one.exists())
        is_used = nearest == folder.absolute() and (not folder.is_dir() or any(folder.iterdir()))
        is_closed = not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK)
    except OSError as error:
        raise InvalidInput(f"--report {folder} cannot be used: {error.strerror}") from error
    if is_used:
        raise InvalidInput(f"--report {folder} is not an empty folder: name a new one")
    if is_closed:
        raise InvalidInput(f"--report {folder} cannot be made: {nearest} is not a folder that can be written to")


def write_report(found: Reported, folder: Path | None, *, summary: str, left_out: str = "") -> None:
    """Write the report, if a folder was given. Raises SegmentedError if that fails."""
    if folder is None:
        return
    files = {
        RESULTS: json_module.dumps(found.as_json(), indent=2) + "\n",
        TABLE: markdown(found.rows()),
        PAGE: page(found, summary=summary, left_out=left_out),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise SegmentedError(f"--report {folder} could not be written: {error}") from error


def page(found: Reported, *, summary: str, left_out: str) -> str:
    """Return the page as HTML."""
    from bench.report.tables import rendered, settings  # noqa: PLC0415  # templates are loaded only for a page

    head, *rows = found.rows()
    told = {
        "benchmark": found.benchmark,
        "summary": summary,
        "left_out": left_out,
        "is_kept": found.is_kept,
        "written_at": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "head": head,
        "rows": rows,
        "remarks": found.remarks,
        "conditions": list(settings(found.conditions)),
    }
    return rendered(TEMPLATE, told)


def markdown(rows: list[list[str]]) -> str:
    """Return a Markdown table; all columns but the first are numbers."""
    head, *others = rows
    lines = [head, ["---", *["--:"] * (len(head) - 1)], *others]
    return "".join(f"| {' | '.join(one.replace('|', chr(92) + '|') for one in line)} |\n" for line in lines)
