"""How the commands that compare libraries end: a failure is one sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from segmented.errors import SegmentedError

if TYPE_CHECKING:
    from typer import Typer


def run(program: Typer) -> None:
    """Run; a failure is one sentence, and exit code 2."""
    try:
        program()
    except SegmentedError as error:
        typer.echo(f"error: {error}", err=True)
        raise SystemExit(2) from error
