"""The processes of a run: workers, beat, and the submitter. Each is ended by its own id.

A worker starts with more than a second of imports. A thousand starts would take most of a long run, and two kills in a
row would leave no worker running. So workers come from a fork server: a process that has only loaded their code, and
forks a worker in milliseconds. Each worker is its own process, in its own session, with its own connections.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import IO, TYPE_CHECKING, Final, Self

from bench.children import hang_up, start_child, tell_child
from bench.proof.orders_torture.event_log import LOG, LogTail
from bench.proof.processes import end, end_with_starter
from segmented.errors import SegmentedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from multiprocessing.context import ForkServerProcess
    from pathlib import Path

STOP_SECONDS: Final = 20.0
TAIL_LINES: Final = 8
SUBMITTER: Final = 0
"""The number of the submitter; workers are numbered from 1."""
PRELOADED: Final = (
    *("celery", "celery.apps.worker", "celery.bin.celery", "celery.bin.worker", "celery.concurrency.thread"),
    *("celery.loaders.app", "celery.worker.consumer", "celery.worker.strategy", "kombu.transport.redis"),
    *("psycopg", "pydantic_settings", "redis.cluster", "sqlalchemy.dialects.postgresql.psycopg"),
    *(
        "sqlalchemy.dialects.sqlite",
        "segmented",
        "segmented.orders",
        "segmented.stores.redis",
        "segmented.celery.settings",
    ),
)
"""Modules that do not read the environment: each worker gets its own."""
OPTIONS: Final = ("--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", "WARNING")


@dataclass(slots=True)
class _Worker:
    process: ForkServerProcess
    output: Path
    log_tail: LogTail


@dataclass(slots=True)
class _Helper:
    name: str
    process: subprocess.Popen[str]
    output: IO[str]
    log_tail: LogTail


class RunProcesses:
    """Processes by number. As a context manager, it leaves none behind."""

    def __init__(self, environment: Mapping[str, str], folder: Path) -> None:
        """Start no process yet. Processes run in `folder`, with this environment."""
        self._environment = dict(environment)
        self._folder = folder
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(list(PRELOADED))
        self._numbers = count(1)
        self._workers: dict[int, _Worker] = {}
        self._submitter: _Helper | None = None
        self._beat: _Helper | None = None
        self.started = 0
        """Workers started, replacements of killed ones included."""

    def __enter__(self) -> Self:
        """Return the processes."""
        return self

    def __exit__(self, *_: object) -> None:
        """Kill the remaining processes."""
        for worker in self._workers.values():
            end(worker.process)
        self._workers.clear()
        for helper in self._helpers():
            helper.process.kill()
            helper.process.wait()
            hang_up(helper.process)
            helper.output.close()
        self._submitter = self._beat = None

    def start_worker(self) -> int:
        """Start a worker and return its number."""
        number = next(self._numbers)
        log, output = self._folder / f"worker-{number}.log", self._folder / f"worker-{number}.output"
        given = {**self._environment, LOG: str(log)}
        process = self._context.Process(target=_be_worker, args=(number, given, str(self._folder), str(output)))
        process.start()
        self._workers[number] = _Worker(process, output, LogTail(log))
        self.started += 1
        return number

    def start_beat(self) -> None:
        """Start Celery beat, which schedules the sweep."""
        self._beat = self._start("bench.beat")

    def start_submitter(self, assignment: str) -> None:
        """Start the submitter; it waits for `allow`."""
        self._submitter = self._start("bench.proof.orders_torture.submitter")
        self._tell(assignment)

    def allow(self, upto: int) -> None:
        """Let the submitter continue up to this order."""
        self._tell(str(upto))

    def look(self) -> None:
        """Raise SegmentedError with the last output of a process that ended by itself."""
        for number, worker in self._workers.items():
            code = worker.process.exitcode
            if code is not None:
                words = worker.output.read_text(errors="replace") if worker.output.exists() else ""
                raise SegmentedError(_ended(f"worker {number}", code, words))
        for helper in self._helpers():
            code = helper.process.poll()
            if code is not None and not (helper is self._submitter and code == 0):
                helper.output.seek(0)
                raise SegmentedError(_ended(helper.name, code, helper.output.read()))

    def new_lines(self) -> Iterator[tuple[int, Iterator[str]]]:
        """Yield the lines that each process has logged since the last call."""
        if self._submitter is not None:
            yield SUBMITTER, self._submitter.log_tail.lines()
        for number, worker in self._workers.items():
            yield number, worker.log_tail.lines()

    def kill(self, number: int) -> tuple[int, list[str]]:
        """Kill a worker. Return when, in monotonic nanoseconds, and the last lines of its log."""
        worker = self._workers.pop(number)
        worker.process.kill()
        at_ns = time.monotonic_ns()
        end(worker.process)
        return at_ns, list(worker.log_tail.lines())

    def stop(self) -> None:
        """Let the processes finish and exit, within a time limit. `new_lines` has their last lines."""
        if self._submitter is not None:
            hang_up(self._submitter.process)
        if self._beat is not None:
            self._beat.process.kill()
        for worker in self._workers.values():
            worker.process.terminate()
        until = time.monotonic() + STOP_SECONDS
        for worker in self._workers.values():
            worker.process.join(max(0.0, until - time.monotonic()))
        for helper in self._helpers():
            with suppress(subprocess.TimeoutExpired):
                helper.process.wait(max(0.0, until - time.monotonic()))

    def _helpers(self) -> list[_Helper]:
        return [one for one in (self._submitter, self._beat) if one is not None]

    def _start(self, module: str) -> _Helper:
        name = module.rpartition(".")[2]
        output = tempfile.TemporaryFile("w+")  # noqa: SIM115  # closed when the process has ended
        log = self._folder / f"{name}.log"
        given = {**self._environment, LOG: str(log)}
        process = start_child(("-m", module), errors=output, output=output, environment=given, folder=self._folder)
        return _Helper(name, process, output, LogTail(log))

    def _tell(self, line: str) -> None:
        if self._submitter is not None:
            tell_child(self._submitter.process, line)


def _ended(name: str, code: int, words: str) -> str:
    lines = [line.rstrip() for line in words.splitlines() if line.strip()]
    return f"{name} ended by itself with code {code}: {chr(10).join(lines[-TAIL_LINES:]) or 'no output'}"


def _be_worker(number: int, environment: dict[str, str], folder: str, output: str) -> None:
    end_with_starter()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    descriptor = os.open(output, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    sys.argv = ["workers"]

    from segmented.celery.app import app  # noqa: PLC0415  # its settings come from the environment, which was not there before

    app.worker_main(["worker", *OPTIONS, "--hostname", f"worker-{number}@torture"])
