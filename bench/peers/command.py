"""Runs the comparison commands, and prints a failure as one sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from segmented.errors import SegmentedError

if TYPE_CHECKING:
    from typer import Typer


def run(program: Typer) -> None:
    """Run a program; print a failure as one sentence, and exit with 2."""
    try:
        program()
    except SegmentedError as error:
        typer.echo(f"error: {error}", err=True)
        raise SystemExit(2) from error
