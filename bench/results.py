"""The progress of a benchmark, the interface that all results share, their file, and how conditions are printed.

Progress is a bar on a terminal, or plain lines in a pipe.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import rich.progress as bar
from rich.table import Table

from segmented import files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from rich.console import Console
    from rich.text import Text

    Progress = Callable[[str, int, int], None]
    """Called with the phase, how much of it is done, and the total."""


class Display(Protocol):
    """Shows the progress of a benchmark."""

    def strategy(self, name: str) -> AbstractContextManager[Progress]:
        """Follow one strategy."""


class BarDisplay:
    """A bar on a terminal, removed when its strategy is done."""

    def __init__(self, console: Console) -> None:
        """Draw on `console`."""
        self._console = console

    @contextmanager
    def strategy(self, name: str) -> Iterator[Progress]:
        """Follow one strategy."""
        columns = (bar.SpinnerColumn(), bar.TextColumn("{task.description}"), bar.BarColumn(), bar.MofNCompleteColumn())
        times = (bar.TimeElapsedColumn(), bar.TimeRemainingColumn())
        with bar.Progress(*columns, *times, console=self._console, transient=True) as bars:
            task = bars.add_task(f"{name}: starting", total=1)

            def progress(phase: str, done: int, total: int) -> None:
                bars.update(task, description=f"{name}: {phase}", completed=done, total=total)

            yield progress


class LineDisplay:
    """Prints a line when a phase begins."""

    def __init__(self, console: Console) -> None:
        """Print on `console`."""
        self._console = console

    @contextmanager
    def strategy(self, name: str) -> Iterator[Progress]:
        """Follow one strategy."""
        seen: set[str] = set()

        def progress(phase: str, _: int, total: int) -> None:
            if phase not in seen:
                seen.add(phase)
                units = f" {total:,} units" if phase == "sale" else ""
                self._console.print(f"{name}: {phase}{units}", highlight=False, soft_wrap=True)

        yield progress


def display_on(console: Console) -> Display:
    """Return a bar for a terminal, else lines."""
    return BarDisplay(console) if console.is_terminal else LineDisplay(console)


# --- results ---


class Findings(Protocol):
    """The results of any benchmark."""

    @property
    def is_kept(self) -> bool:
        """Did every promise hold?"""

    def as_json(self) -> dict[str, Any]:
        """Return what goes into the file."""

    def show(self, console: Console) -> None:
        """Print the results."""


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


def described_conditions(found: dict[str, Any]) -> str:
    """Return the conditions as one line."""
    versions = ", ".join(f"{name} {number}" for name, number in found["versions"].items())
    machine = f"{found['cores']} cores for everything ({found['cpu_model']})"
    return f"Conditions: {machine}; {versions}; commit {found['commit'] or 'unknown'}."
