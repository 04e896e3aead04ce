"""The report of a session: figures, one HTML file, a table, and how to repeat it, all from the raw results."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from bench.report_page.drawing import Progress, Report


def redraw(folder: Path, progress: Progress) -> Report:
    """Draw everything of a results folder again, as `bench.report_page.drawing.redraw` says.

    What draws is imported only now, so that a command line that draws nothing does not wait for it.
    """
    from bench.report_page.drawing import redraw as draw  # noqa: PLC0415  # matplotlib and scipy take a second to import

    return draw(folder, progress)
