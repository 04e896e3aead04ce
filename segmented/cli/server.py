"""`segmented server`: the embedded servers in the foreground, for other commands to use."""

from __future__ import annotations

import errno
import secrets
import shlex
import signal
import socket
from pathlib import Path
from types import FrameType
from typing import Annotated, Final

import typer

from segmented.cli.output import URL_VARIABLE, data_folder, output_file, write_json
from segmented.errors import InvalidInput, SegmentedError
from segmented.files import STDOUT
from segmented.servers import PostgresServer, ValkeyServer
from segmented.servers.announcement import announcing

LOOK_SECONDS: Final = 0.5
CONNECTIONS: Final = 128
PORT: Final = 6_379
PASSWORD_BYTES: Final = 24
PORT_MAX: Final = 65_535
PROBE_SECONDS: Final = 1.0
NO_IPV6: Final = frozenset({errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, errno.ENETUNREACH})
"""Error of a connection to ::1 on a machine without IPv6."""
NOT_ANNOUNCED: Final = "another `segmented server` is the one that workers find by themselves; give them these two URLs"


def server(
    *,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", parser=data_folder, help="Folder for the servers' data. [default: nothing is kept]"
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            metavar="PORT",
            min=0,
            max=PORT_MAX,
            help=f"Valkey's port on the loopback addresses; 0 for a socket only. [default: {PORT}, or a free one]",
        ),
    ] = None,
    no_password: Annotated[
        bool,
        typer.Option(
            "--no-password",
            help="Let every account of this machine use the port: redis://localhost:PORT/0, without a password.",
        ),
    ] = False,
    max_connections: Annotated[
        int, typer.Option(metavar="N", help="Maximum number of PostgreSQL connections, over all programs.")
    ] = CONNECTIONS,
    json_file: Annotated[
        Path | None,
        typer.Option(
            "--json",
            metavar="FILE",
            parser=output_file,
            help="Write both URLs to this file once the servers answer; - is standard output.",
        ),
    ] = None,
) -> None:
    """Run Valkey and PostgreSQL in the foreground until Ctrl-C.

    Prints their URLs. Commands and Celery workers of the same account use them when no address is given (`sell` starts
    its own). Both are real servers and end with this command. Valkey listens on a loopback port, with a new random
    password in its URL (--no-password: without one; --port 0: on a socket). PostgreSQL listens on a socket in a private
    folder.
    """
    chosen, password = chosen_port(port), "" if no_password else secrets.token_urlsafe(PASSWORD_BYTES)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt_once)
    try:
        with (
            ValkeyServer.start(data, config=directives(chosen, password)) as valkey,
            PostgresServer.start(data, max_connections=max_connections) as postgres,
            announcing(url := address_of(chosen, password) or valkey.url, postgres.url) as is_announced,
        ):
            database = postgres.url.replace("+psycopg", "", 1)  # psql knows no drivers
            write_json(json_file, {"url": url, "database": database}, is_secret=True)
            if port is None and chosen != PORT:
                typer.echo(
                    f"port {PORT} is taken by another server: use the URL of this one, with port {chosen}", err=True
                )
            if not is_announced:
                typer.echo(NOT_ANNOUNCED, err=True)
            _show(url, database, is_beside=json_file == STDOUT)
            _watch(valkey, postgres)
    except KeyboardInterrupt:
        typer.echo("stopped", err=True)


def _interrupt_once(_number: int, _frame: FrameType | None) -> None:
    """End the wait; a second Ctrl-C must not interrupt the servers' shutdown."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt


def _show(url: str, database: str, *, is_beside: bool) -> None:
    is_secret = "@" in url  # other accounts can read the command line of a process
    options = shlex.join(["--url", f"env:{URL_VARIABLE}" if is_secret else url, "--database", database])
    before = f"{URL_VARIABLE}={url} " if is_secret else ""
    lines = (
        f"stock     {url}",
        f"database  {database}",
        f"Use them: {before}segmented sell ORDERS.csv --stock 1000 --segments 20 {options}",
        "Ctrl-C stops both.",
    )
    typer.echo("\n".join(lines), err=is_beside)


def _watch(*servers: ValkeyServer | PostgresServer) -> None:
    """Wait until a server ends, which is a failure, or a signal ends the wait."""
    while True:
        for running in servers:
            if running.wait(LOOK_SECONDS):
                last = "".join(f": {line}" for line in running.log_tail(1))
                raise SegmentedError(f"{running.name} (process {running.pid}) has stopped by itself{last}")


def chosen_port(asked: int | None) -> int:
    """Return the port to use: the requested one, or 6379, or a free one if that is taken; 0 for a socket only.

    Raises InvalidInput if the requested port is taken.
    """
    if asked == 0:
        return 0
    if _is_free(asked or PORT):
        return asked or PORT
    if asked is not None:
        raise InvalidInput(f"port {asked} of localhost is taken: choose another --port, or leave it out for a free one")
    with socket.create_server(("127.0.0.1", 0)) as trial:
        return int(trial.getsockname()[1])


def directives(port: int, password: str) -> dict[str, str]:
    """Return Valkey's directives for a port on the loopback addresses; none for 0."""
    if not port:
        return {}
    return {"port": str(port), "bind": "127.0.0.1 -::1", **({"requirepass": password} if password else {})}


def address_of(port: int, password: str) -> str:
    """Return the URL of the port; nothing for 0."""
    account = f":{password}@" if password else ""
    return f"redis://{account}localhost:{port}/0" if port else ""


def _is_free(port: int) -> bool:
    """Return whether nothing listens on the port, at any address of `localhost`."""
    try:
        socket.create_server(("127.0.0.1", port)).close()
        with socket.create_connection(("::1", port), timeout=PROBE_SECONDS):
            return False
    except ConnectionRefusedError:
        return True
    except OSError as error:
        return error.errno in NO_IPV6
