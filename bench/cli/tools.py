"""`segmented bench report | compare | lint | counts`: what reads results, or guards them."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from segmented.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable

ResultsArgument = Annotated[Path, typer.Argument(help="A results.jsonl, or the folder that has it.")]


def report(
    folder: Annotated[Path, typer.Argument(help="Folder with a results.jsonl.", metavar="DIR")],
) -> None:
    """Draw everything of a session again from its results: figures, page, table."""
    _exit(_part("bench.report_page.command", "report_folder")(folder, Console()))


def compare(
    first: ResultsArgument,
    second: ResultsArgument,
    *,
    json: Annotated[
        Path | None, typer.Option("--json", help="Write the findings to this file.", metavar="FILE")
    ] = None,
) -> None:
    """Compare two sessions cell by cell: what is below the noise floor is "no difference"."""
    _exit(_part("bench.analysis.command", "compare_files")(first, second, Console(), json=json))


def lint(results: ResultsArgument) -> None:
    """Check the 24 rules of measuring on a results file, one by one. Exit code 0 only if none is broken."""
    _exit(_part("bench.lint.command", "lint_file")(results, Console()))


def counts(
    *,
    write: Annotated[bool, typer.Option("--write", help="Make what is counted now the baseline.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Compare with the baseline, as without any option.")] = False,
) -> None:
    """Count what an order costs (commands, round trips, attempts), and compare with the committed baseline."""
    if write and check:
        message = "--check compares and --write replaces the baseline: give one of them"
        raise InvalidInput(message)
    _exit(_part("bench.counts.command", "count")(Console(), writes=write))


def draw(folder: Path, console: Console) -> None:
    """Draw a session's report, where this installation can."""
    if find_spec("bench.report_page.command") is not None:
        _part("bench.report_page.command", "report_folder")(folder, console)


def _part(module: str, name: str) -> Callable[..., Any]:
    """Import it when it is asked for: figures and statistics take a second to load."""
    found: Callable[..., Any] = getattr(import_module(module), name)
    return found


def _exit(code: int) -> None:
    if code:
        raise typer.Exit(code)
