"""One shell and one Python process for each page, in one folder, as a reader has them."""

import contextlib
import fcntl
import itertools
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple, Self

import psutil

from tests.real.docs.compare import missing
from tests.real.docs.warm import PAGE

PROCESS: Final = Path(__file__).with_name("page_process.py")
BLOCK_SECONDS: Final = 240.0
END_SECONDS: Final = 60.0
LOOK_SECONDS: Final = 0.05
ROWS: Final = 50
COLUMNS: Final = 160


class Failed(Exception):
    """A block did not do what the page says."""


class Done(NamedTuple):
    """The end of a command."""

    code: int
    printed: str


class PythonSession:
    """The Python of a page, in a process that warns of nothing without failing."""

    def __init__(self, folder: Path, environment: Mapping[str, str], warm: Path | None) -> None:
        # the second: celery_once, where its byte code was not compiled when it was installed
        cold = [sys.executable, "-W", "error", "-W", "ignore:invalid escape sequence", str(PROCESS)]
        self._errors = (folder / ".python-errors").open("w+")
        self._process = subprocess.Popen(
            cold if warm is None else [str(warm / "segmented"), PAGE],
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def run(self, code: str, *, name: str, line: int) -> str:
        """Run a block and return what it printed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"code": code, "name": name, "line": line}) + "\n")
        self._process.stdin.flush()
        if not select.select([self._process.stdout], [], [], BLOCK_SECONDS)[0]:
            raise Failed(f"{name}, line {line}: no end within {BLOCK_SECONDS:g} s")
        answer = json.loads(self._process.stdout.readline() or '{"error": "the process is gone", "printed": ""}')
        if answer["error"]:
            raise Failed(answer["error"])
        return str(answer["printed"])

    def close(self) -> None:
        """Let the process end, as a program ends after its last line."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            code = self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        self._process.stdout.close()
        self._errors.seek(0)
        said = self._errors.read()
        self._errors.close()
        if code:
            raise Failed(f"Python ended with {code}: {said}")


class ShellSession:
    """A bash on a terminal, whose background jobs end with it."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._folder = folder
        self._numbers = itertools.count()
        self._jobs: list[int] = []
        self._terminal, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self._process = subprocess.Popen(
            ["bash", "--norc", "--noprofile"],  # noqa: S607  # bash is wherever it is
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        self._send("set -m -o pipefail\n")

    def run(self, command: str) -> Done:
        """Run a command to its end; it reads nothing."""
        mark = f"end-of-command-{next(self._numbers)}"
        self._send(f"{{ {command}\n}} </dev/null\nprintf '\\n%s %s.\\n' {mark} $?\n")
        printed, deadline = "", time.monotonic() + BLOCK_SECONDS
        while (found := re.search(rf"\n{mark} (\d+)\.", printed)) is None:
            if not select.select([self._terminal], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise Failed(f"{command}: no end within {BLOCK_SECONDS:g} s; so far: {printed}")
            printed += self._read()
        return Done(int(found[1]), printed[: found.start()])

    def start(self, command: str, *, ready: str) -> None:
        """Start a command that goes on, and wait until it has printed the lines that the page shows."""
        output = self._folder / f".background-{next(self._numbers)}"
        self._send(f"{command} >{output} 2>&1 </dev/null &\n")
        pid = self.run("echo pid=$!")
        job = int(pid.printed.rpartition("pid=")[2])
        self._jobs.append(job)
        deadline = time.monotonic() + BLOCK_SECONDS
        while True:
            is_over = not Path(f"/proc/{job}").exists() or time.monotonic() > deadline  # before the last look
            if (lacking := missing(ready, said(output))) is None and said(output):
                return
            if is_over:
                raise Failed(f"{command} did not print {lacking!r}, but: {said(output)}")
            time.sleep(LOOK_SECONDS)

    def close(self) -> None:
        """End what runs in the background as Ctrl-C does, the last first, and then the shell."""
        for job in reversed(self._jobs):
            end_group(job)
        for process in in_session(self._process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._terminal)

    def __enter__(self) -> Self:
        """Use the session for a block."""
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        self.close()

    def _send(self, text: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(text.encode())
        self._process.stdin.flush()

    def _read(self) -> str:
        return os.read(self._terminal, 65_536).decode(errors="replace").replace("\r\n", "\n")


def said(output: Path) -> str:
    """Return what a background job has printed so far."""
    return output.read_text(errors="replace") if output.exists() else ""


def in_session(leader: int) -> list[int]:
    """Return the other processes of a session, such as a page's own background jobs."""
    found = []
    for pid in psutil.pids():
        with contextlib.suppress(ProcessLookupError):
            if pid != leader and os.getsid(pid) == leader:
                found.append(pid)
    return found


def end_group(group: int) -> None:
    """End a process group: Ctrl-C, then what cannot be refused."""
    for number, seconds in ((signal.SIGINT, END_SECONDS), (signal.SIGKILL, END_SECONDS)):
        try:
            os.killpg(group, number)
        except ProcessLookupError:
            return
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            try:
                os.killpg(group, 0)
            except ProcessLookupError:
                return
            time.sleep(LOOK_SECONDS)
