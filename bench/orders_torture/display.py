"""Shows progress: a bar on a terminal, or a line every few seconds in a pipe."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from rich.console import Console

    from segmented.clock import Clock

LINE_SECONDS: Final = 10.0
ESTIMATE_SHARE: Final = 0.03
"""Share of the orders that must be done before the time left is estimated."""


class RunDisplay:
    """Shows the progress of a run. Kills are spread evenly over the orders, so their rate gives the time left."""

    def __init__(self, console: Console, total: int, kills: int, clock: Clock) -> None:
        """Create a display that shows nothing yet."""
        self._console = console
        self._total = total
        self._kills = kills
        self._clock = clock
        self._began: float | None = None
        self._line_due = clock.now() + LINE_SECONDS
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[more]}"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task("starting", total=total, more="")

    def __enter__(self) -> Self:
        """Start the display."""
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the bar from the terminal."""
        self._progress.stop()

    def phase(self, name: str) -> None:
        """Show the current phase."""
        self._progress.update(self._task, description=name, more="")
        if not self._console.is_terminal:
            self._console.print(name, highlight=False, soft_wrap=True)

    def show(self, done: int, kills: int) -> None:
        """Show how many orders are done, and how many workers have been killed."""
        now = self._clock.now()
        self._began = self._began or now
        more = f"{kills:,} of {self._kills:,} kills{left(done, self._total, now - self._began)}"
        self._progress.update(self._task, completed=done, more=more)
        if not self._console.is_terminal and now >= self._line_due:
            self._line_due = now + LINE_SECONDS
            self._console.print(f"{done:,} of {self._total:,} orders, {more}", highlight=False, soft_wrap=True)


def left(done: int, total: int, seconds: float) -> str:
    """Return the estimated time left as text, or nothing if it is too early."""
    if done < total * ESTIMATE_SHARE or not done:
        return ""
    rest = seconds * (total - done) / done
    return f", about {rest / 60:.0f} min left" if rest >= 120 else f", about {rest:.0f} s left"  # noqa: PLR2004  # two minutes
