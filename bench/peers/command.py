"""Common parts of the comparison commands: they print a failure as one sentence, and run all or the chosen names."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import typer

from segmented.errors import InvalidInput, SegmentedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typer import Typer


def run(program: Typer) -> None:
    """Run a program; print a failure as one sentence, and exit with 2."""
    try:
        program()
    except SegmentedError as error:
        typer.echo(f"error: {error}", err=True)
        raise SystemExit(2) from error


def chosen(names: Sequence[str], all_names: Sequence[str], what: str) -> list[str]:
    """Return the given names in the order of all names, or all if none is given. Raises InvalidInput."""
    unknown = [name for name in names if name not in all_names]
    if unknown:
        message = f"there is no {what} {unknown[0]!r}: {', '.join(all_names)}"
        raise InvalidInput(message)
    return [name for name in all_names if not names or name in names]


def free_port() -> int:
    """Return a free port of the loopback address."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
