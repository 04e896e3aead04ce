"""The report of a session: figures, one HTML file, a table, and how to repeat it, all from the raw results."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.engine.folder import HISTORY_MAX

if TYPE_CHECKING:
    from pathlib import Path

    from bench.report.drawing import Progress, Report


def redraw(
    folder: Path, progress: Progress, *, history_max: int = HISTORY_MAX, core_hour: float | None = None
) -> Report:
    """Redraw the report of a results folder; see `bench.report.drawing.redraw`.

    The drawing code is imported only here, so that commands that draw nothing start fast.
    """
    from bench.report.drawing import redraw as draw  # noqa: PLC0415  # matplotlib and scipy take a second to import

    return draw(folder, progress, history_max=history_max, core_hour=core_hour)
