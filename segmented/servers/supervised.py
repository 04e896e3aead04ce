"""Our side of the guard: a private folder and one child at a time, which end with this process."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from segmented.errors import InvalidInput, SegmentedError
from segmented.servers import guard

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from segmented.servers.folders import Account

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
