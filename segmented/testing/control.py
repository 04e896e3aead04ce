"""How a test stops the worker process it started at a named point: files in a private folder of that worker.

The test replaces the whole plan atomically; the worker reads it at each point it passes, so a plan applies to every
passage after the call that wrote it. Files survive a killed process and need no reply: a test may be busy, and a worker
may be paused.

| file | writer | content |
| --- | --- | --- |
| `plan.json` | test | the action at each passage of each point |
| `released-<id>` | test | this pause is over |
| `guard` | worker | the process id of the guard that kills the worker when its test is gone |
| `ready` | worker | the worker takes messages |
| `passed` | worker | one line per passage: point, process id |
| `count-<id>` | worker | passages so far, over all its processes |
| `struck-<id>` | worker | the action has happened, in that process |
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import signal
import sys
import time
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final, Literal

from segmented import protocol
from segmented.errors import InvalidInput
from segmented.protocol import Operation

if TYPE_CHECKING:
    from pathlib import Path

PLAN: Final = "plan.json"
PASSED: Final = "passed"
READY: Final = "ready"
LOOK_SECONDS: Final = 0.005
PAUSE_SECONDS: Final = 300.0
"""Maximum pause. A worker that is not released by then is killed: its test is wrong, or gone."""

Action = Literal["kill", "pause"]
Scope = Literal["worker", "process"]
POPPED: Final = "popped"
"""A message has left its queue, and is not yet among the unacknowledged ones."""
COMMIT: Final = "commit"
PUBLISH: Final = "publish"
ACK: Final = "ack"
STEPS: Final = (COMMIT, PUBLISH, ACK)
SIDES: Final = ("before", "after")


@dataclass(frozen=True, slots=True)
class Strike:
    """The action at the `nth` passage of a point, counted from the request."""

    number: int
    point: str
    action: Action
    nth: int = 1
    scope: Scope = "worker"
    """The target: the worker with all its processes, or the one process that passes the point."""
    seconds: float = PAUSE_SECONDS


def write_plan(folder: Path, strikes: list[Strike]) -> None:
    """Replace the plan."""
    fresh = folder / f"{PLAN}.new"
    fresh.write_text(json.dumps([asdict(strike) for strike in strikes]))
    fresh.replace(folder / PLAN)


def has_struck(folder: Path, strike: Strike) -> bool:
    """Return whether the strike has happened."""
    return (folder / f"struck-{strike.number}").exists()


def release(folder: Path, strike: Strike) -> None:
    """Let the worker continue."""
    (folder / f"released-{strike.number}").touch()


def passages(folder: Path) -> list[str]:
    """Return the points that all processes of the worker have passed, in order."""
    path = folder / PASSED
    return [line.split(" ")[0] for line in path.read_text().splitlines()] if path.exists() else []


class Control:
    """The worker's side, for all its threads and the processes it forks."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._passed = os.open(folder / PASSED, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._read: tuple[object, list[Strike]] = (None, [])

    def is_ready(self) -> None:
        """Report that the worker takes messages now."""
        (self._folder / READY).touch()

    def reach(self, point: str) -> None:
        """Pass a point: immediately, after a pause, or never."""
        for strike in self._struck(point):
            self._kill_if_asked(strike)
            deadline = time.monotonic() + strike.seconds
            while not self._is_over(strike, deadline):
                time.sleep(LOOK_SECONDS)

    async def areach(self, point: str) -> None:
        """Pass a point without blocking the event loop."""
        for strike in self._struck(point):
            self._kill_if_asked(strike)
            deadline = time.monotonic() + strike.seconds
            while not self._is_over(strike, deadline):  # noqa: ASYNC110  # another process ends it
                await asyncio.sleep(LOOK_SECONDS)

    def _struck(self, point: str) -> list[Strike]:
        """Record the passage, and return its strikes."""
        os.write(self._passed, f"{point} {os.getpid()}\n".encode())
        struck = [strike for strike in self._plan() if strike.point == point and self._count(strike) == strike.nth]
        for strike in struck:
            (self._folder / f"struck-{strike.number}").write_text(f"{os.getpid()}\n")
        return struck

    def _plan(self) -> list[Strike]:
        path = self._folder / PLAN
        try:
            found = path.stat()
        except FileNotFoundError:
            return []
        version = (found.st_ino, found.st_mtime_ns, found.st_size)
        if self._read[0] != version:
            self._read = (version, [Strike(**strike) for strike in json.loads(path.read_text())])
        return self._read[1]

    def _count(self, strike: Strike) -> int:
        """Count this passage, under a lock against other threads and processes."""
        with (self._folder / f"count-{strike.number}").open("a+b") as counted:
            fcntl.flock(counted, fcntl.LOCK_EX)
            counted.write(b".")
            counted.flush()
            return counted.tell()

    def _is_over(self, strike: Strike, deadline: float) -> bool:
        if (self._folder / f"released-{strike.number}").exists():
            return True
        if time.monotonic() > deadline:
            sys.stderr.write(f"the pause at {strike.point} was not released within {strike.seconds:g} s: killed\n")
            _kill("worker")
        return False

    @staticmethod
    def _kill_if_asked(strike: Strike) -> None:
        if strike.action == "kill":
            _kill(strike.scope)


def _kill(scope: Scope) -> None:
    """Kill the process like a crash; nothing after this call runs."""
    if scope == "worker":
        os.killpg(os.getpgrp(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
    while True:
        signal.pause()


def operation_names() -> tuple[str, ...]:
    """Return the names of all operations on a store."""
    named = ((name, getattr(protocol, name)) for name in protocol.LATE)
    return tuple(name for name, found in sorted(named) if isinstance(found, type) and issubclass(found, Operation))


def known_points() -> tuple[str, ...]:
    """Return all points, `popped` first."""
    return (POPPED, *(f"{side}:{step}" for step in (*STEPS, *operation_names()) for side in SIDES))


def checked_point(point: str) -> str:
    """Return the point. Raises InvalidInput, which lists all points, if no worker can reach it."""
    known = known_points()
    if point in known:
        return point
    near = get_close_matches(point, known, n=1)
    meant = f" (did you mean {near[0]!r}?)" if near else ""
    plain = ", ".join(known[: 1 + len(STEPS) * len(SIDES)])
    raise InvalidInput(
        f"there is no point {point!r}{meant}: known are {plain}, and before: and after: with the name of an operation: "
        f"{', '.join(operation_names())}"
    )
