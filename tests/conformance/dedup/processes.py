"""The processes of a case: workers and publishers, each in its own session, ended by its id."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from bench.children import close_process, kill_group, start_child, tell_child
from bench.environments import ROOT, last_line
from segmented.errors import SegmentedError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tests.conformance.dedup.settings import Settings

END_SECONDS: Final = 10.0
START_SECONDS: Final = 30.0


class Child:
    """A process that logs errors to a file, and is ended completely."""

    def __init__(
        self, python: Path, arguments: Sequence[str], settings: Settings, log: Path, *, output: int = subprocess.PIPE
    ) -> None:
        """Start it."""
        self.log = log
        given = {**os.environ, "PYTHONPATH": str(ROOT), **settings.to_environment()}
        with log.open("ab") as words:
            self.process = start_child(
                arguments, errors=words, output=output, environment=given, folder=ROOT, python=str(python)
            )

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Kill it."""
        self.kill()

    def kill(self) -> None:
        """Send SIGKILL to it and its children, and wait for its end."""
        kill_group(self.process)
        close_process(self.process, seconds=END_SECONDS)

    def last_words(self) -> str:
        """Return the last line of its log."""
        return last_line(self.log.read_text(encoding="utf-8", errors="replace"), "no output")


class Worker(Child):
    """A `celery worker` process of a contender."""

    def __init__(self, python: Path, adapter: str, settings: Settings, log: Path, *, pool: str) -> None:
        """Start the worker; it writes `ready` into the journal when it takes messages."""
        quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", "INFO"]
        command = ["-m", "celery", "-A", adapter, "worker", "--pool", pool, "--concurrency", "1", *quiet]
        super().__init__(python, [*command, "--hostname", log.stem], settings, log, output=subprocess.DEVNULL)


@dataclass(frozen=True, slots=True)
class Answer:
    """A contender's answer to a caller: a value, or an error in one line."""

    ok: Any = None
    error: str = ""


class Publisher(Child):
    """A process that submits tasks like a web application."""

    def __init__(self, python: Path, adapter: str, settings: Settings, log: Path) -> None:
        """Start the publisher, and wait until it has imported the tasks. Raises SegmentedError if it fails."""
        super().__init__(python, ["-m", "tests.conformance.dedup.publisher", adapter], settings, log)
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        answer = self._answer(START_SECONDS)
        if answer.error:
            self.kill()
            raise SegmentedError(f"a publisher did not start: {self.last_words()}")

    def ask(self, do: str, request: Mapping[str, Any] | None = None, *, seconds: float = 15.0) -> Answer:
        """Send a request, and return the answer; no answer is an error too."""
        tell_child(self.process, json.dumps({"do": do, **(request or {})}))
        return self._answer(seconds)

    def submit(self, task: str, *arguments: object, named: Mapping[str, Any] | None = None) -> Answer:
        """Call `delay` of a task."""
        return self.ask("submit", {"task": task, "args": arguments, "kwargs": dict(named or {})})

    def result(self, submitted: Answer, *, seconds: float = 15.0) -> Answer:
        """Wait for the result of a handle from `submit`."""
        if submitted.error:
            return submitted
        request = {"handle": submitted.ok["handle"], "seconds": seconds}
        return self.ask("result", request, seconds=seconds + END_SECONDS)

    def _answer(self, seconds: float) -> Answer:
        try:
            line = self._lines.get(timeout=seconds)
        except queue.Empty:
            return Answer(error=f"no answer within {seconds:g} s")
        return Answer(**json.loads(line)) if line else Answer(error="the process ended")

    def _read(self) -> None:
        with suppress(ValueError, OSError):  # closed by the end of the case
            for line in self.process.stdout or ():
                self._lines.put(line)
        self._lines.put("")
