"""The interface that all results of benchmarks share, their file and report folder, and how conditions are printed.

The report folder of a benchmark with fixed options has its results, a self-contained page, and a table.
"""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Protocol

from rich.table import Table

from segmented import files
from segmented.errors import InvalidInput, SegmentedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from rich.console import Console
    from rich.text import Text


class Findings(Protocol):
    """The results of any benchmark."""

    @property
    def is_kept(self) -> bool:
        """Did every promise hold?"""

    def as_json(self) -> dict[str, Any]:
        """Return what goes into the file."""

    def show(self, console: Console) -> None:
        """Print the results."""


class Judged(ABC):
    """Results that are kept if no guarantee is broken."""

    __slots__ = ()

    @property
    @abstractmethod
    def broken(self) -> list[str]:
        """Return one sentence per guarantee that did not hold."""

    @property
    def is_kept(self) -> bool:
        """Return whether every guarantee held."""
        return not self.broken


def check_writable(file: Path | None, *, option: str = "--json") -> None:
    """Check before measuring that the file can be written. Raises InvalidInput."""
    if file is not None:
        files.check_writable(file, option)


def write(results: Findings, file: Path | None) -> None:
    """Write the results, if a file was given."""
    if file is None:
        return
    files.write_whole(file, json.dumps(results.as_json(), indent=2) + "\n")


def say(console: Console, *sentences: str) -> None:
    """Print sentences, which are wrapped on a terminal only."""
    for sentence in sentences:
        console.print(sentence, highlight=False, markup=False, soft_wrap=not console.is_terminal)


def show_rows(
    console: Console,
    head: Sequence[str],
    rows: Iterable[Sequence[str | Text]],
    line: Callable[..., str] = "{}: {}".format,
) -> None:
    """Print a table on a terminal, which has no header if `head` is empty; in a pipe, the `line` of each row."""
    if not console.is_terminal:
        say(console, *(line(*row) for row in rows))
        return
    table = Table(*head, show_header=bool(head))
    for row in rows:
        table.add_row(*row)
    console.print(table)


def show_end(console: Console, broken: Sequence[str], conditions: dict[str, Any], *more: str) -> None:
    """Print which guarantees did not hold, further sentences, and the conditions."""
    end = [f"BROKEN: {sentence}" for sentence in broken] or ["Every promise held."]
    say(console, *end, *more, described_conditions(conditions))


def described_conditions(found: dict[str, Any]) -> str:
    """Return the conditions as one line."""
    versions = ", ".join(f"{name} {number}" for name, number in found["versions"].items())
    machine = f"{found['cores']} cores for everything ({found['cpu_model']})"
    return f"Conditions: {machine}; {versions}; commit {found['commit'] or 'unknown'}."


RESULTS_FILE: Final = "results.json"
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
        message = f"--report {folder} cannot be used: {error.strerror}"
        raise InvalidInput(message) from error
    if is_used:
        message = f"--report {folder} is not an empty folder: name a new one"
        raise InvalidInput(message)
    if is_closed:
        message = f"--report {folder} cannot be made: {nearest} is not a folder that can be written to"
        raise InvalidInput(message)


def write_report(found: Reported, folder: Path | None, *, summary: str, left_out: str = "") -> None:
    """Write the report, if a folder was given. Raises SegmentedError if that fails."""
    if folder is None:
        return
    files = {
        RESULTS_FILE: json.dumps(found.as_json(), indent=2) + "\n",
        TABLE: markdown(found.rows()),
        PAGE: page(found, summary=summary, left_out=left_out),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        message = f"--report {folder} could not be written: {error}"
        raise SegmentedError(message) from error


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
