"""Options that several commands have, and how a command ends."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from bench.engine.session import Ended, ends_as_exceptions
from bench.results import Findings, write
from segmented.cli.output import ELSEWHERE, address
from segmented.process import EXIT_INTERRUPTED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from segmented.cli.console import Console

EXIT_BY_SIGNAL: Final = 128
NOTHING_KEPT: Final = "nothing is kept, because the figures come from all rounds together"
UrlOption = Annotated[
    str | None,
    typer.Option(metavar="URL", parser=address, help=f"Redis or Valkey to use instead of an embedded one; {ELSEWHERE}"),
]
DatabaseOption = Annotated[
    str | None,
    typer.Option(metavar="URL", parser=address, help=f"Order database to use instead of an embedded one; {ELSEWHERE}"),
]
JsonOption = Annotated[
    Path | None, typer.Option(help="Write the results to this file; - is standard output.", metavar="FILE")
]


@contextmanager
def exits_by_signal(kept: Callable[[], str] = lambda: NOTHING_KEPT) -> Iterator[None]:
    """Leave the block as by an exception when a signal asks for the end, so that all is removed; exit with its code.

    The sentence that it then prints ends with what is `kept`, and how to go on.
    """
    exit_code = 0
    try:
        with ends_as_exceptions():
            yield
    except Ended as end:
        exit_code = EXIT_BY_SIGNAL + end.number
    except KeyboardInterrupt:
        exit_code = EXIT_INTERRUPTED
    if exit_code:
        typer.echo(f"segmented: interrupted: {kept()}", err=True)
        raise typer.Exit(exit_code)


def finish(results: Findings, console: Console, json: Path | None) -> None:
    """Print the results and write them to the file, if one was given; exit with 1 if a guarantee was broken."""
    results.show(console)
    write(results, json)
    if not results.is_kept:
        raise typer.Exit(1)
