"""The process between the program and an embedded server, so that the server never outlives the program.

The program runs this file by its path, with `python -I -S`. It imports only the standard library, and starts in about
40 ms.

How it handles each death:

1. the program ends in any way, including SIGKILL: the guard's standard input, which only the program holds open,
   reaches its end; the guard stops the server and removes the private folder;
2. the program dies while a forked child still holds that pipe: the parent's process id changes, with the same effect;
3. the server dies: the guard reports it and keeps the folder, so that the log can be read and the server restarted;
4. the guard is killed: Linux then signals the server (a parent-death signal), and the program's `stop` does the rest.

A separate session keeps the terminal's Ctrl-C away from the server: the program decides when it stops.

The program writes one JSON object per line to standard input: first the order (`folder`, `parent`, `stops`,
`death_signal`, `kept_fds`), then children to run, one at a time (`argv`, `environment`, `input`, `user`, `group`).
The guard answers, one per line: `{"event": "ready"}`, `{"event": "started", "pid": ...}`,
`{"event": "exited", "code": ...}`, `{"event": "failed", "reason": ...}`.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, Any, Final

LOG_NAME: Final = "server.log"
LOOK_SECONDS: Final = 0.5
"""Interval of checks of the parent's process id; the end of the pipe and of the child are noticed at once."""
REMOVE_SECONDS: Final = 5.0
PR_SET_PDEATHSIG: Final = 1


class Guard:
    """Runs one child at a time in a private folder until its program is gone."""

    def __init__(self, order: dict[str, Any]) -> None:
        """Create the guard of an order; it creates no files yet."""
        self._folder = Path(order["folder"])
        self._parent: int = order["parent"]
        self._stops: list[tuple[int, float]] = order["stops"]
        self._death_signal: int = order["death_signal"]
        self._kept_fds: list[int] = order["kept_fds"]
        self._child: subprocess.Popen[bytes] | None = None
        self._reported = True
        self._ended = False

    def run(self) -> None:
        """Serve requests until the end, then clean up."""
        self._folder.mkdir(mode=0o700)
        try:
            self._folder.chmod(0o700)  # the umask may have taken rights away
            say({"event": "ready"})
            while not self._ended and os.getppid() == self._parent:
                if select.select([sys.stdin], [], [], LOOK_SECONDS)[0]:
                    line = sys.stdin.buffer.readline()
                    if not line:
                        return
                    self._start(json.loads(line))
        finally:
            self._stop_child()
            remove_folder(self._folder)

    def end(self) -> None:
        """Leave the loop at its next check."""
        self._ended = True

    def report(self) -> None:
        """Say once that the child has ended."""
        if self._child is not None and not self._reported and self._child.poll() is not None:
            self._reported = True
            say({"event": "exited", "code": self._child.returncode})

    def _start(self, command: dict[str, Any]) -> None:
        try:
            child = self._spawn(command)
        except (OSError, subprocess.SubprocessError) as error:
            say({"event": "failed", "reason": str(error)})
            return
        self._child, self._reported = child, False
        say({"event": "started", "pid": child.pid})
        if child.stdin is not None:
            with contextlib.suppress(OSError), child.stdin:
                child.stdin.write(command["input"].encode())
        self.report()  # its signal may have come too early

    def _spawn(self, command: dict[str, Any]) -> subprocess.Popen[bytes]:
        with open_log(self._folder / LOG_NAME) as log:
            return subprocess.Popen(  # noqa: S603  # the program that started us names the command
                command["argv"],
                cwd=self._folder,
                env=command["environment"],
                stdin=subprocess.PIPE if command["input"] else subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=self._kept_fds,
                start_new_session=True,
                user=command["user"],
                group=command["group"],
                extra_groups=None if command["user"] is None else [],
                preexec_fn=parent_death_signal(self._death_signal),  # noqa: PLW1509  # there is one thread here
            )

    def _stop_child(self) -> None:
        if self._child is None or self._child.poll() is not None:
            return
        for number, seconds in self._stops:
            if self._child.poll() is not None:
                break
            self._child.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._child.wait(seconds)
        with contextlib.suppress(OSError):
            os.killpg(self._child.pid, signal.SIGKILL)  # remaining processes of a killed initdb


def open_log(path: Path) -> IO[bytes]:
    """Open the log to append. Root does so in a folder of the server's account, so it follows no link there."""
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    return os.fdopen(fd, "ab")


def say(report: dict[str, Any]) -> None:
    """Send one object to the program, if it is still alive."""
    with contextlib.suppress(BrokenPipeError):
        os.write(sys.stdout.fileno(), json.dumps(report).encode() + b"\n")


def parent_death_signal(number: int) -> Any:  # noqa: ANN401  # Popen's own type for it is Callable[[], Any] | None
    """Return a function that makes a new child get signal `number` when we die, if the system supports it."""
    if sys.platform != "linux":
        return None
    import ctypes  # noqa: PLC0415  # only Linux needs it

    library = ctypes.CDLL(None)
    return lambda: library.prctl(PR_SET_PDEATHSIG, number, 0, 0, 0)


def remove_folder(folder: Path) -> None:
    """Remove the folder, with a bounded number of retries while dying processes still write to it."""
    end = time.monotonic() + REMOVE_SECONDS
    shutil.rmtree(folder, ignore_errors=True)
    while folder.exists() and time.monotonic() < end:
        time.sleep(0.05)
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    """Read the order and run the guard."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)  # not SIG_IGN, which the server would inherit
    line = sys.stdin.buffer.readline()
    if not line:
        return
    guard = Guard(json.loads(line))
    signal.signal(signal.SIGTERM, lambda *_: guard.end())
    signal.signal(signal.SIGCHLD, lambda *_: guard.report())
    try:
        guard.run()
    except OSError as error:
        say({"event": "failed", "reason": str(error)})


if __name__ == "__main__":
    main()
