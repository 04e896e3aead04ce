"""The worker processes of one sale: started, watched, restarted when one dies, and ended with the command.

Each runs in its own session, so that Ctrl-C reaches only the command, which shuts down in order. Each also holds the
reading end of a pipe that closes when the command ends, however it ends. Their output goes to unnamed files, which
nobody has to remove.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Final, Self

from segmented.errors import SegmentedError

if TYPE_CHECKING:
    from types import TracebackType

    from segmented.celery.settings import WorkerSettings

DEATHS_MAX: Final = 5
"""Maximum deaths in a row without an order decided in between."""
STOP_SECONDS: Final = 8.0
TAIL_LINES: Final = 12
TAIL_BYTES: Final = 16_384
COMMAND: Final = (
    *(sys.executable, "-P", "-m", "segmented.celery", "--loglevel", "WARNING"),
    *("--without-gossip", "--without-mingle", "--without-heartbeat"),
)


@dataclass(slots=True)
class _Worker:
    name: str
    process: subprocess.Popen[bytes]
    log: IO[bytes]

    def tail(self) -> str:
        """Return the last lines that it wrote."""
        self.log.seek(max(0, self.log.seek(0, os.SEEK_END) - TAIL_BYTES))
        lines = [line.rstrip() for line in self.log.read().decode(errors="replace").splitlines()]
        return "\n".join([line for line in lines if line][-TAIL_LINES:])


class Fleet:
    """A number of workers that run from `start` to the end of the `with` statement."""

    def __init__(self, settings: WorkerSettings, count: int) -> None:
        self.restarted = 0
        self._environment = {**os.environ, **settings.environment()}
        self._count = count
        self._workers: list[_Worker] = []
        self._deaths = 0
        self._has_decided = False

    @property
    def pids(self) -> list[int]:
        """The process ids, in the order of the workers' numbers."""
        return [worker.process.pid for worker in self._workers]

    def start(self) -> None:
        """Start all workers."""
        for number in range(1, self._count + 1):
            self._workers.append(self._start(f"worker {number}"))

    def note_decided(self) -> None:
        """Reset the count of deaths, since the workers make progress."""
        self._has_decided = True
        self._deaths = 0

    def look(self) -> None:
        """Restart dead workers. Raises SegmentedError, with their last words, if they die too often."""
        for index, worker in enumerate(self._workers):
            code = worker.process.poll()
            if code is None:
                continue
            self._deaths += 1
            if (code >= 0 and not self._has_decided) or self._deaths > DEATHS_MAX:
                raise SegmentedError(f"{worker.name} {_ended(code)}; its last output:\n{worker.tail()}")
            self._bury(worker)
            self._workers[index] = self._start(worker.name)
            self.restarted += 1

    def tail(self) -> str:
        """Return the last words of the workers that wrote anything."""
        return "\n".join(f"{worker.name}:\n{words}" for worker in self._workers if (words := worker.tail()))

    def stop(self) -> None:
        """Let each worker finish its current order, then end it, within a time limit. A second call does nothing."""
        deadline = time.monotonic() + STOP_SECONDS
        for worker in self._workers:
            _signal(worker.process, signal.SIGTERM)
        for worker in self._workers:
            with suppress(subprocess.TimeoutExpired):
                worker.process.wait(max(0.0, deadline - time.monotonic()))
        for worker in self._workers:
            self._bury(worker)
        self._workers.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _start(self, name: str) -> _Worker:
        log = tempfile.TemporaryFile()  # noqa: SIM115  # stays open as long as its worker
        process = subprocess.Popen(  # noqa: S603  # our own module, run by our own interpreter
            [*COMMAND, "--hostname", f"{name.replace(' ', '-')}.{os.getpid()}@%h"],
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        return _Worker(name, process, log)

    def _bury(self, worker: _Worker) -> None:
        """End the remaining processes, including children, and close their files and pipes."""
        with suppress(ProcessLookupError):
            os.killpg(worker.process.pid, signal.SIGKILL)
        worker.process.wait()
        if worker.process.stdin is not None:
            worker.process.stdin.close()
        worker.log.close()


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        process.send_signal(number)


def _ended(code: int) -> str:
    return f"ended with code {code}" if code >= 0 else f"was killed by {signal.Signals(-code).name}"
