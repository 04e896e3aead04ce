"""`segmented demo`: the main claim, measured."""

from __future__ import annotations

from typing import Annotated

import typer

from bench.cli.tools import DatabaseOption, JsonOption, UrlOption, finish
from bench.demo.display import Story
from bench.demo.measure import DemoOptions, measure_demo
from bench.results import check_writable
from segmented.cli.console import console_beside


def demo(
    *,
    json: JsonOption = None,
    hold: Annotated[
        float, typer.Option(help="Extra time inside the critical section, milliseconds.", metavar="MS")
    ] = 20.0,
    buyers: Annotated[int, typer.Option(help="Number of concurrent buyers.", metavar="N")] = 64,
    segments: Annotated[int, typer.Option(help="Number of segments, each with its own lock.", metavar="K")] = 20,
    seconds: Annotated[float, typer.Option(help="Duration of each sale at its bound.", metavar="S")] = 15.0,
    verbose: Annotated[bool, typer.Option("--verbose", help="Print all figures.")] = False,
    url: UrlOption = None,
    database: DatabaseOption = None,
) -> None:
    """Compare segment locks with no lock, one lock, and a lock-free script."""
    options = DemoOptions(
        hold_ms=hold,
        buyers=buyers,
        segments=segments,
        seconds=seconds,
        url=url,
        database=database,
        is_verbose=verbose,
    )
    check_writable(json)
    console = console_beside(json)
    story = Story(console)
    results = measure_demo(options, story, story.add, story.page)
    finish(results, console, json)
