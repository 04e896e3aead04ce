"""`segmented server`: the embedded servers in the foreground, for other commands to use."""

from __future__ import annotations

import json
import os
import shlex
import signal
from pathlib import Path
from types import FrameType
from typing import Annotated, Final

import typer

from segmented.errors import InvalidInput, SegmentedError
from segmented.servers import PostgresServer, ValkeyServer
from segmented.servers.announcement import announcing

LOOK_SECONDS: Final = 0.5
CONNECTIONS: Final = 128
NOT_ANNOUNCED: Final = "another `segmented server` is the one that workers find by themselves; give them these two URLs"


def server(
    *,
    data: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Keep the servers' data in this folder; without it, nothing is kept."),
    ] = None,
    max_connections: Annotated[
        int,
        typer.Option(metavar="N", help="Connections that PostgreSQL takes: those of all programs that will use it."),
    ] = CONNECTIONS,
    json_file: Annotated[
        Path | None,
        typer.Option("--json", metavar="FILE", help="Write the two URLs to this file once both servers answer."),
    ] = None,
) -> None:
    """Run Valkey and PostgreSQL in the foreground until Ctrl-C.

    Prints their URLs, which other commands take as --url and --database; Celery workers of the same account that are
    told no address find them by themselves. Both are real servers; each listens on a socket in a private folder, and
    ends with this command, however that ends.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt_once)
    try:
        with (
            ValkeyServer.start(data) as valkey,
            PostgresServer.start(data, max_connections=max_connections) as postgres,
            announcing(valkey.url, postgres.url) as is_announced,
        ):
            if json_file is not None:
                _write(json_file, {"url": valkey.url, "database": postgres.url})
            if not is_announced:
                typer.echo(NOT_ANNOUNCED, err=True)
            _show(valkey.url, postgres.url)
            _watch(valkey, postgres)
    except KeyboardInterrupt:
        typer.echo("stopped", err=True)


def _interrupt_once(_number: int, _frame: FrameType | None) -> None:
    """End the wait; a second Ctrl-C must not cut the servers' stop short."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt


def _show(url: str, database: str) -> None:
    options = shlex.join(["--url", url, "--database", database])
    lines = (
        f"stock     {url}",
        f"database  {database}",
        f"Use them: segmented sell ORDERS.csv --stock 1000 --segments 20 {options}",
        "Ctrl-C stops both.",
    )
    typer.echo("\n".join(lines))


def _watch(*servers: ValkeyServer | PostgresServer) -> None:
    """Wait until one of the servers is gone, which is a failure, or a signal ends the wait."""
    while True:
        for running in servers:
            if running.wait(LOOK_SECONDS):
                last = "".join(f": {line}" for line in running.log_tail(1))
                message = f"{running.name} (process {running.pid}) has stopped by itself{last}"
                raise SegmentedError(message)


def _write(file: Path, urls: dict[str, str]) -> None:
    """Write the file in one step: who waits for it never reads half of it."""
    part = file.with_name(f"{file.name}.{os.getpid()}.part")
    try:
        part.write_text(json.dumps(urls, indent=2) + "\n")
        part.replace(file)
    except OSError as error:
        message = f"{file} cannot be written: {error.strerror}"
        raise InvalidInput(message) from error
