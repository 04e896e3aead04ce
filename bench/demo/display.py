"""The demo while it runs: a bar chart that grows with each sale on a terminal, lines in a pipe."""

from __future__ import annotations

import os
import sys
import time
import webbrowser
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Final

from rich.live import Live
from rich.text import Text

from bench.demo.results import STORIES, bars
from bench.display import LineDisplay
from bench.watch_page import watch_page
from segmented.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from bench.demo.results import DemoRun
    from bench.display import Progress

SALE: Final = "sale"


class Story:
    """Says what each sale does before it begins, and draws the chart so far."""

    def __init__(self, console: Console) -> None:
        """Tell the story on `console`."""
        self._console = console
        self._runs: list[DemoRun] = []

    @contextmanager
    def page(self, url: str) -> Iterator[None]:
        """Serve the page that shows the pools while they sell; open it if there is a display. Only on a terminal."""
        with ExitStack() as stack:
            if self._console.is_terminal:
                with suppress(InvalidInput):  # such as without the extra `watch`: the demo needs no page
                    address = stack.enter_context(watch_page(url))
                    self._console.print(f"Watch it: {address}", highlight=False)
                    if has_display():
                        webbrowser.open(address)
            yield

    @contextmanager
    def strategy(self, name: str) -> Iterator[Progress]:
        """Follow one strategy."""
        self._console.print(f"{len(self._runs) + 1}/{len(STORIES)} {STORIES[name]}", highlight=False, soft_wrap=True)
        if not self._console.is_terminal:
            with LineDisplay(self._console).strategy(name) as progress:
                yield progress
            return
        with Live(console=self._console, transient=True, refresh_per_second=4) as live:
            began: list[float] = []

            def progress(phase: str, done: int, total: int) -> None:
                if phase == SALE and not began:
                    began.append(time.monotonic())
                seconds = time.monotonic() - began[0] if began else 0.0
                rate = f", {done / seconds:,.0f} orders/s" if done and seconds else ""
                sold = f"{done:,} of {total:,} units{rate}" if phase == SALE else phase
                live.update(Text("\n".join((*bars(self._runs), f"{name}: {sold}"))))

            yield progress

    def add(self, run: DemoRun) -> None:
        """Add a finished run to the chart."""
        self._runs.append(run)


def has_display() -> bool:
    """Return whether a browser could open a window."""
    return sys.platform in {"darwin", "win32"} or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
