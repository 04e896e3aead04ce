"""An embedded PostgreSQL: the order database of a first run and of every test, with fsync on.

Its status file `postmaster.pid` in the data folder has its process id, and says whether it accepts connections.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import ClassVar, Final, Self
from urllib.parse import quote

from segmented.errors import InvalidInput
from segmented.servers.embedded import Command, EmbeddedServer, Stops, Supervised, postgres_tree, reachable_tree
from segmented.servers.folders import (
    SOCKET_NAME_LONGEST,
    Account,
    Claim,
    check_passable,
    private_folder,
    server_account,
)

SOCKET_NAME: Final = SOCKET_NAME_LONGEST
DATABASE: Final = "segmented"
SUPERUSER: Final = "postgres"
PREPARE_SECONDS: Final = 60.0
CONNECTIONS_MAX: Final = 10_000
# SIGINT requests PostgreSQL's fast shutdown, SIGQUIT the immediate one.
STOPS: Final = Stops(((signal.SIGINT, 10.0), (signal.SIGQUIT, 5.0), (signal.SIGKILL, 5.0)))
INITDB_OPTIONS: Final = (
    f"--username={SUPERUSER}",
    "--auth-local=trust",  # accounts that can enter the socket's folder are trusted: its owner and root
    "--auth-host=reject",
    "--locale=C",
    "--encoding=UTF8",
    "--no-instructions",
)
SETTINGS: Final = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "shared_buffers": "64MB",
    "superuser_reserved_connections": "0",  # the only account is the superuser: every connection is for it
    "dynamic_shared_memory_type": "mmap",  # in the data folder: leaves nothing in /dev/shm after a SIGKILL
    "log_min_messages": "log",  # refused orders are normal here, and a log in a temporary folder stays small
    "logging_collector": "off",
}
FILE_NAME: Final = "postmaster.pid"
STATUS_LINE: Final = 7
PROGRAM: Final = "postgres"


class PostgresServer(EmbeddedServer):
    """PostgreSQL 18 on a socket, without TCP, with an empty database `segmented`."""

    name: ClassVar[str] = "PostgreSQL"
    children_left: ClassVar[str | None] = "pre-existing shared memory block"

    @classmethod
    def start(cls, data: str | os.PathLike[str] | None = None, *, max_connections: int = 64) -> Self:
        """Start a server; with `data` it keeps its databases in `data`/postgres.

        `max_connections` must cover every connection pool of every process that will use it. Raises InvalidInput if the
        server cannot start: the package is missing, the data is in use or belongs to another account, or (as root) no
        account can be created.
        """
        if not 1 <= max_connections <= CONNECTIONS_MAX:
            raise InvalidInput(f"max_connections is {max_connections}: it must be between 1 and {CONNECTIONS_MAX:,}")
        tree = postgres_tree()
        home = None if data is None else Path(data).absolute() / "postgres"
        account = server_account()
        folder = private_folder(account)
        with contextlib.ExitStack() as stack:
            kept_fds: tuple[int, ...] = ()
            if home is not None:
                claim = _claim(home, account)
                stack.callback(claim.hand_over)
                home = claim.folder
                kept_fds = (claim.fd,)
            supervised = stack.enter_context(Supervised(folder, stops=STOPS, kept_fds=kept_fds))
            if account is not None:
                os.chown(folder, account.user, account.group)
            programs = reachable_tree(tree, folder, account) / "bin"
            cluster = (home or folder) / "data"
            if not cluster.exists():
                _make_cluster(supervised, programs, cluster, account=account, is_kept=home is not None)
            forget_dead(cluster)
            settings = {**SETTINGS, "unix_socket_directories": str(folder), "max_connections": str(max_connections)}
            options = tuple(word for name, value in settings.items() for word in ("-c", f"{name}={value}"))
            return cls(
                supervised,
                Command((str(programs / "postgres"), "-D", str(cluster), *options), account=account),
                url=f"postgresql+psycopg://{SUPERUSER}@/{DATABASE}?host={quote(str(folder))}",
                socket_path=folder / SOCKET_NAME,
                is_ready=lambda: is_ready(cluster, supervised.pid),
            )


def _claim(home: Path, account: Account | None) -> Claim:
    claim = Claim.take(home, account)
    if account is not None:
        try:
            check_passable(claim.folder, account)
        except InvalidInput:
            claim.hand_over()
            raise
        os.chown(claim.folder, account.user, account.group, follow_symlinks=False)
    return claim


def _make_cluster(
    supervised: Supervised, programs: Path, cluster: Path, *, account: Account | None, is_kept: bool
) -> None:
    """Create the database files in a temporary place and rename them: an interrupted start leaves nothing usable."""
    fresh = cluster.with_name("data.new")
    shutil.rmtree(fresh, ignore_errors=True)
    unsynced = () if is_kept else ("--no-sync",)
    initdb = (str(programs / "initdb"), "-D", str(fresh), *INITDB_OPTIONS, *unsynced)
    supervised.run(Command(initdb, account=account), PREPARE_SECONDS)
    create = (str(programs / "postgres"), "--single", *(() if is_kept else ("-F",)), "-D", str(fresh), SUPERUSER)
    supervised.run(Command(create, text=f"CREATE DATABASE {DATABASE};\n", account=account), PREPARE_SECONDS)
    fresh.rename(cluster)


def is_ready(cluster: Path, pid: int) -> bool:
    """Return whether this process accepts connections; the file of a dead server may still exist."""
    lines = _lines(cluster)
    return lines[:1] == [str(pid)] and lines[STATUS_LINE : STATUS_LINE + 1] == ["ready"]


def forget_dead(cluster: Path) -> None:
    """Remove the file of a dead server if its process id now belongs to another program.

    PostgreSQL itself only checks whether such a process exists, and in a restarted container one often does. Call this
    with a claim on the data folder, which proves that no process of an earlier server is left.
    """
    pid = "".join(_lines(cluster)[:1])
    if pid.isdecimal() and PROGRAM not in Path(program_of(int(pid))).name:
        (cluster / FILE_NAME).unlink(missing_ok=True)


def program_of(pid: int) -> str:
    """Return the program that a process runs, or nothing if there is no such process or only a zombie."""
    if Path("/proc/self/cmdline").exists():
        try:
            return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").partition("\0")[0]
        except OSError:
            return ""
    argv = ["/bin/ps", "-p", str(pid), "-o", "comm="]
    return subprocess.run(argv, capture_output=True, text=True, check=False).stdout.strip()  # noqa: S603  # fixed words


def _lines(cluster: Path) -> list[str]:
    try:
        return [line.strip() for line in (cluster / FILE_NAME).read_text().splitlines()]
    except OSError:
        return []
