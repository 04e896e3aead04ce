"""The processes of contenders: started, killed, paused, and all of them gone in the end."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Self

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.torture.assignment import Assignment

GONE_SECONDS: Final = 10.0


class Fleet:
    """Processes by their number. Used as a context manager, it leaves none behind."""

    def __init__(self, assigned: Callable[[int], Assignment]) -> None:
        """Start processes that are told what `assigned` returns for their number."""
        self._assigned = assigned
        self._numbers = count(1)
        self._running: dict[int, subprocess.Popen[str]] = {}
        self._paused: set[int] = set()
        self._words: dict[int, Any] = {}
        self.started = 0
        self.crashes: list[str] = []
        """What those said that ended by themselves, too early."""

    def __enter__(self) -> Self:
        """Return the fleet."""
        return self

    def __exit__(self, *_: object) -> None:
        """Kill whoever is still there; a process that is stopped dies of it, too."""
        for number in list(self._running):
            self.kill(number)

    def start(self) -> int:
        """Start one more, and return its number."""
        number = next(self._numbers)
        words = tempfile.TemporaryFile("w+")  # noqa: SIM115  # closed when the process has ended
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "bench.torture.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=words,
            text=True,
            start_new_session=True,  # a terminal's Ctrl-C reaches us alone, and we end the rest
        )
        self._running[number], self._words[number] = process, words
        self.started += 1
        if process.stdin is not None:
            with suppress(BrokenPipeError):  # it ended already, and `look` says so
                process.stdin.write(self._assigned(number).as_json() + "\n")
                process.stdin.flush()
        return number

    @property
    def running(self) -> list[int]:
        """Return the numbers of those that live, paused ones included."""
        return sorted(self._running)

    @property
    def paused(self) -> set[int]:
        """Return the numbers of those that stand still."""
        return set(self._paused)

    def pause(self, number: int) -> None:
        """Make it stand still."""
        self._running[number].send_signal(signal.SIGSTOP)
        self._paused.add(number)

    def resume(self, number: int) -> None:
        """Let it go on."""
        if number in self._paused:
            self._paused.discard(number)
            self._running[number].send_signal(signal.SIGCONT)

    def kill(self, number: int) -> None:
        """End it without a chance to clean up."""
        self._running[number].kill()
        self._running[number].wait(GONE_SECONDS)
        self._forget(number)

    def look(self) -> None:
        """Note those that have ended by themselves."""
        self._note_ended(may_end=False)

    def ask_to_stop(self) -> None:
        """Let all go on, and tell them that it is over."""
        for number, process in self._running.items():
            self.resume(number)
            if process.stdin is not None:
                with suppress(BrokenPipeError):
                    process.stdin.close()

    def reap(self) -> bool:
        """Let go of those that have stopped as they were asked to, and note those that failed; are all gone?"""
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
        if process.stdin is not None:
            with suppress(BrokenPipeError):
                process.stdin.close()
        words.seek(0)
        last = [line.strip() for line in words.read().splitlines() if line.strip()][-1:]
        words.close()
        return last[0] if last else "it said nothing"
