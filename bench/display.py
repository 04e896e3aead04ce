"""Shows the progress of a benchmark: a bar on a terminal, or plain lines in a pipe."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress as RichProgress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from rich.console import Console

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
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        with RichProgress(*columns, console=self._console, transient=True) as bars:
            bar = bars.add_task(f"{name}: starting", total=1)

            def progress(phase: str, done: int, total: int) -> None:
                bars.update(bar, description=f"{name}: {phase}", completed=done, total=total)

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
