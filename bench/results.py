"""The interface that all results of benchmarks share, their file, and how conditions are printed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Protocol

from rich.table import Table

from segmented import files

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rich.console import Console


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


def show_torture(
    console: Console, title: str, rows: Sequence[tuple[str, str]], broken: Sequence[str], conditions: dict[str, Any]
) -> None:
    """Print the rows of a torture run, what broke, and the conditions."""
    if console.is_terminal:
        shown = Table("", title)
        for row in rows:
            shown.add_row(*row)
        console.print(shown)
    else:
        for label, value in rows:
            console.print(f"{label}: {value}", highlight=False, soft_wrap=True)
    end = [f"BROKEN: {sentence}" for sentence in broken] or ["Every promise held."]
    for sentence in (*end, described_conditions(conditions)):
        console.print(sentence, highlight=False, soft_wrap=not console.is_terminal)


def described_conditions(found: dict[str, Any]) -> str:
    """Return the conditions as one line."""
    versions = ", ".join(f"{name} {number}" for name, number in found["versions"].items())
    machine = f"{found['cores']} cores for everything ({found['cpu_model']})"
    return f"Conditions: {machine}; {versions}; commit {found['commit'] or 'unknown'}."
