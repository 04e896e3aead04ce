"""What the user sees while a sale runs: a bar on a terminal, a plain line every few seconds elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from types import TracebackType

    from rich.console import Console

    from segmented.celery.selling.book import Book
    from segmented.clock import Clock

LINE_SECONDS: Final = 2.0


class Screen:
    """Shows the book of a sale."""

    def __init__(self, console: Console, book: Book, clock: Clock) -> None:
        """Show nothing yet."""
        self._console = console
        self._book = book
        self._clock = clock
        self._line_due = clock.now() + LINE_SECONDS
        self._progress = Progress(
            TextColumn("selling"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[counts]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task("selling", total=len(book.orders), counts="")

    def show(self) -> None:
        """Show how far the sale is, if it is time to."""
        counts = self._book.counts
        done = len(self._book.outcomes)
        text = f"{counts['confirmed']:,} confirmed, {counts['refused']:,} refused"
        if self._console.is_terminal:
            self._progress.update(self._task, completed=done, counts=text)
        elif self._clock.now() >= self._line_due:
            self._line_due = self._clock.now() + LINE_SECONDS
            self._console.print(f"{done:,} of {len(self._book.orders):,} orders decided: {text}", highlight=False)

    def __enter__(self) -> Self:
        """Begin."""
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the terminal as it was."""
        self._progress.stop()
