"""Runs the command line as its user does: in a pipe, or on a terminal.

A process of its own takes half a second to start, so where only the two streams and the exit code are looked at, `ran`
calls the command in this one. What a process adds is for `ran_apart`, `started` and `on_a_terminal`.
"""

import contextlib
import io
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from unittest import mock

from segmented.cli.main import run as run_command
from tests.support.paths import ROOT

MAIN: Final = (sys.executable, "-c", "from segmented.__main__ import main; main()")
SECONDS: Final = 200.0


def environment(url: str | None, database: str | None = None) -> dict[str, str]:
    """Return our environment with these servers in it, and no others."""
    said = {"SEGMENTED_URL": url, "SEGMENTED_DATABASE": database}
    ours = {name: value for name, value in os.environ.items() if name not in said}
    return ours | {name: value for name, value in said.items() if value is not None}


def started(*words: str, url: str | None, database: str | None = None) -> subprocess.Popen[str]:
    """Start the command in a pipe; to be ended by the caller."""
    return subprocess.Popen(
        [*MAIN, *words],
        cwd=ROOT,
        env=environment(url, database),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ran(*words: str, url: str | None, database: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command as in a pipe, but in this process and thread, with the URLs from the environment."""
    shown, wrong = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    with (
        _nobody_typing(),
        contextlib.redirect_stdout(shown),
        contextlib.redirect_stderr(wrong),
        contextlib.chdir(ROOT),
        mock.patch.dict(os.environ, {"COLUMNS": "80"} | environment(url, database), clear=True),
    ):
        exit_code = run_command(words)
    said = []
    for stream in (shown, wrong):
        stream.seek(0)
        said.append(stream.read())
    return subprocess.CompletedProcess(["segmented", *words], exit_code, *said)


@contextlib.contextmanager
def _nobody_typing() -> Iterator[None]:
    with Path(os.devnull).open(encoding="utf-8") as nothing, mock.patch.object(sys, "stdin", nothing):
        yield


def ran_apart(*words: str, url: str | None, database: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command in a pipe and a process of its own, with the URLs from the environment."""
    with started(*words, url=url, database=database) as run:
        try:
            shown, wrong = run.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            run.kill()
            raise
    return subprocess.CompletedProcess(run.args, run.returncode, shown, wrong)


def on_a_terminal(*words: str, url: str, typed: str = "") -> tuple[int, str]:
    """Run the command on a terminal, and type something; return the exit code and what was shown, without colours."""
    ours, theirs = pty.openpty()
    around = {**environment(url), "TERM": "xterm", "COLUMNS": "100", "LINES": "60"}
    with subprocess.Popen([*MAIN, *words], cwd=ROOT, env=around, stdin=theirs, stdout=theirs, stderr=theirs) as run:
        os.close(theirs)
        os.write(ours, typed.encode())
        shown = b""
        try:
            while part := os.read(ours, 4096):
                shown += part
        except OSError:  # how Linux says that the other end is closed
            pass
        os.close(ours)
        code = run.wait(SECONDS)
    return code, re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())
