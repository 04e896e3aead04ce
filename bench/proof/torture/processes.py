"""The processes of contenders and their assignments: starts, kills and pauses them, and ends all of them."""

from __future__ import annotations

import json
import signal
import subprocess
import tempfile
from dataclasses import asdict, dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Self

from bench.children import hang_up, start_child, tell_child

if TYPE_CHECKING:
    from collections.abc import Callable

GONE_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Assignment:
    """The work of one process of contenders, sent to it as one line of JSON."""

    process: int
    """Its number, from 1; no two processes of a run have the same."""
    kind: str
    urls: list[str]
    socket_path: str
    """Path of the resource's socket."""
    names: list[str]
    threads: int
    ttl: float
    seed: int
    client_name: str = ""
    """Name of the process's connections to the servers; the URLs have it already."""
    tasks: int = 0
    """Number of asyncio tasks that contend beside the threads, and are cancelled."""

    def as_json(self) -> str:
        """Return the line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, line: str) -> Assignment:
        """Read the line."""
        return cls(**json.loads(line))


class ContenderProcesses:
    """Processes by number. As a context manager, it leaves none behind."""

    def __init__(self, assigned: Callable[[int], Assignment]) -> None:
        """Start no process yet. `assigned` returns the assignment for a process number."""
        self._assigned = assigned
        self._numbers = count(1)
        self._running: dict[int, subprocess.Popen[str]] = {}
        self._paused: set[int] = set()
        self._words: dict[int, Any] = {}
        self.started = 0
        self.crashes: list[str] = []
        """Error messages of processes that ended by themselves."""

    def __enter__(self) -> Self:
        """Return the processes."""
        return self

    def __exit__(self, *_: object) -> None:
        """Kill the remaining processes, paused ones included."""
        for number in list(self._running):
            self.kill(number)

    def start(self) -> int:
        """Start one more process, and return its number."""
        number = next(self._numbers)
        words = tempfile.TemporaryFile("w+")  # noqa: SIM115  # closed when the process has ended
        process = start_child(("-m", "bench.proof.torture.worker"), errors=words, output=subprocess.DEVNULL)
        self._running[number], self._words[number] = process, words
        self.started += 1
        tell_child(process, self._assigned(number).as_json())
        return number

    @property
    def running(self) -> list[int]:
        """Return the numbers of the live processes, paused ones included."""
        return sorted(self._running)

    @property
    def paused(self) -> set[int]:
        """Return the numbers of the paused processes."""
        return set(self._paused)

    def pause(self, number: int) -> None:
        """Pause a process."""
        self._running[number].send_signal(signal.SIGSTOP)
        self._paused.add(number)

    def resume(self, number: int) -> None:
        """Resume a process."""
        if number in self._paused:
            self._paused.discard(number)
            self._running[number].send_signal(signal.SIGCONT)

    def kill(self, number: int) -> None:
        """Kill a process, so that it cannot clean up."""
        self._running[number].kill()
        self._running[number].wait(GONE_SECONDS)
        self._forget(number)

    def look(self) -> None:
        """Record the processes that ended by themselves."""
        self._note_ended(may_end=False)

    def ask_to_stop(self) -> None:
        """Resume all processes, and ask them to stop."""
        for number, process in self._running.items():
            self.resume(number)
            hang_up(process)

    def reap(self) -> bool:
        """Forget processes that stopped as asked, record those that failed, and return whether all are gone."""
        self._note_ended(may_end=True)
        return not self._running

    def _note_ended(self, *, may_end: bool) -> None:
        for number, process in list(self._running.items()):
            code = process.poll()  # once: it may end at any moment
            if code is not None:
                said = self._forget(number)
                if code or not may_end:
                    self.crashes.append(f"process {number} ended with code {code}: {said}")

    def _forget(self, number: int) -> str:
        process, words = self._running.pop(number), self._words.pop(number)
        self._paused.discard(number)
        hang_up(process)
        words.seek(0)
        last = [line.strip() for line in words.read().splitlines() if line.strip()][-1:]
        words.close()
        return last[0] if last else "no output"
