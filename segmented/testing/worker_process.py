"""A real Celery worker in its own session, controlled by a test."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from segmented.errors import InvalidInput, SegmentedError
from segmented.testing import control, worker_main
from segmented.testing.control import Scope, Strike, checked_point
from segmented.testing.worker_main import DISMISSED, GUARD

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

READY_SECONDS: Final = 60.0
REACH_SECONDS: Final = 30.0
STOP_SECONDS: Final = 45.0
"""Celery's prefork may take half a minute, while parent and child wait for each other; our own app avoids that."""
END_SECONDS: Final = 20.0
"""Timeout for processes to end after SIGKILL, on a busy machine."""
LOOK_SECONDS: Final = 0.01
LAST_LINES: Final = 25
QUIET: Final = ("--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", "INFO")


class WorkerTrouble(SegmentedError):
    """The worker did not do what the test waited for."""


@dataclass(frozen=True, slots=True)
class Launch:
    """The parameters of a worker's start."""

    app: str
    folder: Path
    """Private to this worker: its log, and the files by which test and worker communicate."""
    pool: str = "threads"
    concurrency: int = 1
    environment: Mapping[str, str] = field(default_factory=dict)
    """The whole environment."""
    clock_offset: float = 0.0
    options: Sequence[str] = ()
    """Additional options of `celery worker`."""

    def __post_init__(self) -> None:
        """Raise InvalidInput for parameters that cannot start a worker."""
        if self.concurrency < 1:
            raise InvalidInput(f"concurrency is {self.concurrency}: a worker takes 1 message at a time or more")

    def command(self, *fds: int) -> list[str]:
        """Return the command as a list of arguments."""
        ours = [sys.executable, "-P", worker_main.__file__, str(self.folder), repr(self.clock_offset)]
        size = ("--pool", self.pool, "--concurrency", str(self.concurrency), "--hostname", f"{self.folder.name}@here")
        return [*ours, *map(str, fds), "-A", self.app, "worker", *QUIET, *size, *self.options]


class WorkerProcess:
    """A worker that a test can kill, stop or freeze at any time, or kill or pause at a named point."""

    def __init__(self, launch: Launch, *, kill_at: str | None = None, pause_at: str | None = None) -> None:
        """Start the process; `kill_at` and `pause_at` apply from its first step on. `wait_ready` waits for it."""
        self._folder = launch.folder
        self._strikes: list[Strike] = []
        self._log = launch.folder / "worker.log"
        if kill_at is not None:
            self.kill_at(kill_at)
        if pause_at is not None:
            self.pause_at(pause_at)
        tree, tree_held = os.pipe()
        guard, guard_held = os.pipe()
        self._tree, self._guard = tree, guard
        """A pipe ends when its other side is closed everywhere: in the worker and its children, or in its guard."""
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603  # our own module, run by our own interpreter
                launch.command(tree_held, guard_held),
                env=dict(launch.environment),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=(tree_held, guard_held),
                start_new_session=True,
            )
        os.close(tree_held)
        os.close(guard_held)
        self._leader = listed(self.pid)
        self._is_gone = False
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<WorkerProcess pid {self.pid}>"

    @property
    def pid(self) -> int:
        """The process id of the worker itself, which is also that of its group."""
        return self._process.pid

    @property
    def guard_pid(self) -> int:
        """The process id of the guard, which kills a ready worker when the test's own process is gone."""
        return int((self._folder / GUARD).read_text())

    @property
    def is_running(self) -> bool:
        """Return whether the worker's own process exists; it may be frozen."""
        return self._process.poll() is None

    def log(self) -> str:
        """Return the worker's whole output."""
        return self._log.read_text(errors="replace")

    def passed(self) -> list[str]:
        """Return the points that the worker has passed since its start, in order."""
        return control.passages(self._folder)

    # --- ends ---

    def wait(self, timeout: float = REACH_SECONDS) -> int:
        """Wait until the worker is gone, and return its exit code: -9 after SIGKILL. Raises WorkerTrouble."""
        self._until(lambda: not self.is_running, timeout, "was not gone", may_be_gone=True)
        return self._process.wait()

    def kill(self) -> None:
        """Kill the worker and all its processes like a crash, frozen ones too, and wait until they are gone.

        Afterwards no process of its session runs, including orphans and new ones. A zombie whose parent has not read
        its exit code may still be listed. Raises WorkerTrouble if this takes longer than 20 s.
        """
        deadline = time.monotonic() + END_SECONDS
        while not self._is_gone:
            self._is_gone = self._is_killed()
            if not self._is_gone and time.monotonic() > deadline:
                raise WorkerTrouble(f"processes of worker {self.pid} were not gone within {END_SECONDS:g} s of SIGKILL")
            if not self._is_gone:
                time.sleep(LOOK_SECONDS)

    def stop(self, timeout: float = STOP_SECONDS) -> int:
        """Ask the worker to finish its current messages and end, as a rollout does; return its exit code.

        A frozen worker is resumed first; a paused one stays paused. Raises WorkerTrouble, with the worker killed, if it
        has not ended within `timeout` seconds.
        """
        if self.is_running:
            self.resume()
            os.kill(self.pid, signal.SIGTERM)
        try:
            code = self.wait(timeout)
        finally:
            self.kill()  # processes that a pool may have left
        return code

    def close(self) -> None:
        """Kill remaining processes, end the guard, and close all files. A second call does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self.kill()
        finally:
            if self._process.stdin is not None:
                with contextlib.suppress(BrokenPipeError):
                    self._process.stdin.write(DISMISSED)
                    self._process.stdin.flush()
                with contextlib.suppress(BrokenPipeError):
                    self._process.stdin.close()
            _ends(self._guard, END_SECONDS)
            os.close(self._guard)
            os.close(self._tree)

    # --- freezing ---

    def freeze(self) -> None:
        """Stop the worker and all its processes, as on a suspended machine."""
        self._signal(signal.SIGSTOP)
        self._until(self._is_stopped, END_SECONDS, "did not stand still")

    def resume(self) -> None:
        """Resume a frozen worker."""
        self._signal(signal.SIGCONT)

    # --- points ---

    def kill_at(self, point: str, nth: int = 1, *, scope: Scope = "worker") -> None:
        """Kill the worker when it passes `point` for the `nth` time from now on.

        `scope="process"` kills only the process that passes it, such as a child of a prefork pool. Raises InvalidInput
        for an unknown point.
        """
        self._plan(control.Strike(len(self._strikes), checked_point(point), "kill", _checked_nth(nth), scope))

    def pause_at(self, point: str, nth: int = 1, *, seconds: float = control.PAUSE_SECONDS) -> None:
        """Pause the worker at `point` when it gets there for the `nth` time from now on, until `release`.

        Pauses only the thread that got there. Kills the worker if it is not released within `seconds`. Raises
        InvalidInput for an unknown point.
        """
        strike = control.Strike(len(self._strikes), checked_point(point), "pause", _checked_nth(nth), seconds=seconds)
        self._plan(strike)

    def reached(self, point: str, timeout: float = REACH_SECONDS) -> None:
        """Wait until the last requested action at `point` has happened, including a killed worker's end.

        Without a request, wait until the point was passed, possibly before this call. Raises WorkerTrouble with the end
        of the worker's log.
        """
        checked_point(point)
        asked = [strike for strike in self._strikes if strike.point == point]
        if not asked:
            self._until(lambda: point in self.passed(), timeout, f"did not reach {point}")
            return
        strike = asked[-1]
        is_last = strike.action == "kill" and strike.scope == "worker"
        self._until(lambda: control.has_struck(self._folder, strike), timeout, f"did not reach {point}")
        if is_last:
            self.wait(timeout)
            self.kill()

    def release(self, point: str) -> None:
        """End the pause at `point`, even one that has not started yet."""
        checked_point(point)
        for strike in self._strikes:
            if strike.point == point and strike.action == "pause":
                control.release(self._folder, strike)

    def wait_ready(self, timeout: float = READY_SECONDS) -> None:
        """Wait until the worker takes messages, or a requested action has happened. Raises WorkerTrouble."""
        self._until(self._is_ready, timeout, "was not ready")

    # --- helpers ---

    def _is_ready(self) -> bool:
        is_there = (self._folder / control.READY).exists()
        return is_there or any(control.has_struck(self._folder, strike) for strike in self._strikes)

    def _plan(self, strike: Strike) -> None:
        self._strikes.append(strike)
        control.write_plan(self._folder, self._strikes)

    def _signal(self, number: signal.Signals) -> None:
        if not self.is_running:
            raise WorkerTrouble(f"worker {self.pid} is gone, and cannot be sent {number.name}")
        os.killpg(self.pid, number)

    def _is_stopped(self) -> bool:
        """Return whether all processes are stopped, if the system can tell; stopping takes a moment."""
        return all(one.state == "T" for one in self._living() if one.group == self.pid)

    def _is_killed(self) -> bool:
        """Send SIGKILL to all running processes, and return whether there were none.

        A process closes our pipe before it has ended, and a program started by exec has no pipe. So this also checks
        the system's list of processes; without such a list, it uses the pipe alone.
        """
        is_running = self.is_running
        living = self._living()
        is_held = not _ends(self._tree, 0)
        if living or is_running or (is_held and self._leader is None):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)  # all at once, so that none of the group starts another in between
        for one in living:
            if one.group != self.pid:
                kill(one)
        return not (living or is_running or is_held)

    def _living(self) -> list[Listed]:
        """Return the processes of the worker's session that have not ended; none once its id is reused."""
        now = listed(self.pid)
        if now is not None and self._leader is not None and now.began_at != self._leader.began_at:
            return []
        return living(self.pid)

    def _until(self, is_so: Callable[[], bool], seconds: float, failed: str, *, may_be_gone: bool = False) -> None:
        deadline = time.monotonic() + seconds
        while not is_so():
            is_gone = not self.is_running
            if is_gone and is_so():  # it happened just before the end
                return
            if is_gone and not may_be_gone:
                message = f"worker {self.pid} {failed}: it ended with code {self._process.wait()}{self._last_words()}"
                raise WorkerTrouble(message)
            if time.monotonic() > deadline:
                raise WorkerTrouble(f"worker {self.pid} {failed} within {seconds:g} s{self._last_words()}")
            time.sleep(LOOK_SECONDS)

    def _last_words(self) -> str:
        lines = self.log().splitlines()[-LAST_LINES:]
        return "; it printed nothing" if not lines else "; its log ends with\n" + "\n".join(lines)


def _ends(fd: int, seconds: float) -> bool:
    """Return whether the other side of this pipe is closed everywhere within that many seconds."""
    return bool(select.select([fd], [], [], seconds)[0])


def _checked_nth(nth: int) -> int:
    if nth < 1:
        raise InvalidInput(f"nth is {nth}: the first passage is 1")
    return nth


PROC: Final = Path("/proc")
ENDED: Final = frozenset("ZX")
"""States of an ended process whose parent has not read its exit code yet."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A process at the time of the reading."""

    pid: int
    state: str
    """One letter: T for a stopped process."""
    group: int
    session: int
    threads: int
    began_at: int
    """In ticks since the system's start; together with the process id, it identifies the process."""

    @property
    def is_living(self) -> bool:
        """Return whether any of its threads still runs; the first one may end before the others."""
        return self.state not in ENDED or self.threads > 1


def listed(pid: int) -> Listed | None:
    """Return a process, or None if it does not exist or is not listed."""
    try:
        said = (PROC / str(pid) / "stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = said.rpartition(")")[2].split()  # from the third field on: a name may contain anything
    return Listed(pid, fields[0], int(fields[2]), int(fields[3]), int(fields[17]), int(fields[19]))


def living(session: int) -> list[Listed]:
    """Return the processes of a session that have not ended."""
    pids = (int(entry.name) for entry in PROC.glob("[0-9]*"))
    found = (listed(pid) for pid in pids)
    return [one for one in found if one is not None and one.session == session and one.is_living]


def kill(process: Listed) -> None:
    """Send SIGKILL to this process, unless it is gone or another process has its id now."""
    now = listed(process.pid)
    if now is not None and now.began_at == process.began_at:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
