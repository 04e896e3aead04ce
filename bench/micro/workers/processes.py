"""The processes of the benchmark: two workers, a publisher, and beat if it is needed.

It holds the names of the benchmark's app, which is not imported here: the app reads settings from the environment.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from bench.children import start_child, tell_child
from segmented.errors import SegmentedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

POOL: Final = "solo"
PROCESSES: Final = 2
QUIET: Final = ("--loglevel=WARNING", "--without-gossip", "--without-mingle", "--without-heartbeat")
READY_SECONDS: Final = 60.0
LEAVE_SECONDS: Final = 15.0
WORDS_MAX: Final = 2_000
APP: Final = "bench.micro.workers.app"
EMPTY: Final = "bench.empty"
READY: Final = "BENCH_READY_FILE"
"""Environment variable: the file that a worker creates when it takes messages."""
QUEUE: Final = "segmented"
"""The queue that workers serve by default."""
PLAIN_QUEUE: Final = "bench-plain"
"""The queue of the workers with Celery's own consumer."""
CONSUMER: Final = "BENCH_CONSUMER"
"""Environment variable: the consumer of a worker, if it is not the app's."""
CELERYS_CONSUMER: Final = "celery.worker.consumer:Consumer"
LOADING: Final = "bench-loading"
"""A queue that no worker serves: messages are collected there, then the queue is renamed."""


def environment(url: str, broker: str, database: str) -> dict[str, str]:
    """Return the environment of workers and publisher: default settings except for addresses and the kind of pool."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SEGMENTED_")}
    return {
        **kept,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "SEGMENTED_URL": url,
        "SEGMENTED_BROKER": broker,
        "SEGMENTED_DATABASE": database,
        "SEGMENTED_POOL": POOL,
        "SEGMENTED_CONCURRENCY": "1",
    }


class BenchProcesses:
    """Starts the processes, and ends all of them."""

    def __init__(self, given: Mapping[str, str], folder: Path) -> None:
        """Start no process yet. Processes get this environment, and their output goes to `folder`."""
        self.given = given
        self.folder = folder
        self._processes: list[subprocess.Popen[str]] = []
        self._publisher: subprocess.Popen[str] | None = None

    # --- starting ---

    def start_workers(self, count: int = PROCESSES, more: Mapping[str, str] | None = None) -> list[int]:
        """Start workers, and return their process ids when all take messages. `more` is added to their environment."""
        marks = [self.folder / f"ready-{len(self._processes)}-{index}" for index in range(count)]
        workers = [
            self._start(
                ("-m", "celery", "-A", APP, "worker", *QUIET, f"--hostname={mark.name}@here"),
                {READY: str(mark), "SEGMENTED_ENDS_WITH_STDIN": "1", **(more or {})},
            )
            for mark in marks
        ]
        deadline = time.monotonic() + READY_SECONDS
        while not all(mark.exists() for mark in marks):
            if time.monotonic() > deadline or any(worker.poll() is not None for worker in workers):
                message = f"a worker of the benchmark was not ready within {READY_SECONDS:g} s, or ended"
                raise self._trouble(message)
            time.sleep(0.02)
        return [worker.pid for worker in workers]

    def start_plain_workers(self) -> list[int]:
        """Start workers with Celery's own consumer, on a queue of their own; return their process ids."""
        return self.start_workers(more={CONSUMER: CELERYS_CONSUMER, "SEGMENTED_QUEUE": PLAIN_QUEUE})

    def start_beat(self) -> None:
        """Start beat, which schedules the sweep of the outbox."""
        self._start(("-m", "bench.beat"), {})

    def ask(self, said: Mapping[str, object]) -> Any:  # noqa: ANN401  # what the publisher answers
        """Send a request to the publisher, and return its answer."""
        if self._publisher is None:
            self._publisher = self._start(("-m", "bench.micro.workers.app"), {}, stdout=subprocess.PIPE)
        publisher = self._publisher
        tell_child(publisher, json.dumps(said))
        line = "" if publisher.stdout is None else publisher.stdout.readline()
        if not line:
            message = "the publisher of the benchmark ended"
            raise self._trouble(message)
        return json.loads(line)

    def _start(
        self, words: Sequence[str], more: Mapping[str, str], *, stdout: int | None = None
    ) -> subprocess.Popen[str]:
        with (self.folder / f"words-{len(self._processes)}").open("wb") as log:
            output = log if stdout is None else stdout
            given = {**self.given, **more}
            process = start_child(words, errors=log, output=output, environment=given, folder=self.folder)
        self._processes.append(process)
        return process

    # --- ending ---

    def close(self) -> None:
        """End all processes."""
        for process in reversed(self._processes):
            if process.stdin is not None:
                process.stdin.close()
            process.terminate()
        deadline = time.monotonic() + LEAVE_SECONDS
        for process in self._processes:
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()

    def _trouble(self, message: str) -> SegmentedError:
        error = SegmentedError(message)
        words = [path.read_text(errors="replace") for path in sorted(self.folder.glob("words-*"))]
        error.add_note("\n".join(words)[-WORDS_MAX:])
        return error


@contextmanager
def running_processes(given: Mapping[str, str], folder: Path) -> Iterator[BenchProcesses]:
    """Yield the processes; all of them are ended afterwards."""
    found = BenchProcesses(given, folder)
    try:
        yield found
    finally:
        found.close()
