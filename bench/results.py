"""The interface that all results of benchmarks share, their file, and how conditions are printed."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Protocol

from rich.table import Table

from segmented import files

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
