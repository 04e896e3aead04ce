"""The worker processes of one sale: started, watched, restarted when one dies, and ended with the command.

Each runs in its own session, so that Ctrl-C reaches only the command, which shuts down in order. Each also holds the
reading end of a pipe that closes when the command ends, however it ends. Their output goes to unnamed files, which
nobody has to remove.

Their peak memory is read at the end. Linux reports it for each process; other systems only report a maximum.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, Self

from segmented.errors import SegmentedError

if TYPE_CHECKING:
    from collections.abc import Mapping
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
PROC: Final = Path("/proc")
KIB: Final = 1_024
MIB: Final = 1_024 * KIB


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


def own_peak_mib() -> float:
    """Return the peak memory of this process."""
    # Not getrusage first: on Linux a process inherits the peak of its starter there.
    peak = _status_mib(PROC / "self")
    return peak if peak is not None else _rusage_mib(resource.RUSAGE_SELF)


def children_peak_mib(names: Mapping[int, str]) -> dict[str, float]:
    """Return the peak of the largest process of each name among our descendants.

    `names` are better names than the system's for some process ids.
    """
    if not (PROC / "self" / "stat").exists():
        return {"largest": _rusage_mib(resource.RUSAGE_CHILDREN)}
    found: dict[str, float] = {}
    for folder, system_name in _descendants():
        peak = _status_mib(folder)
        if peak is not None:
            name = names.get(int(folder.name), system_name)
            found[name] = max(peak, found.get(name, 0.0))
    return dict(sorted(found.items()))


def _descendants() -> list[tuple[Path, str]]:
    parents: dict[int, int] = {}
    names: dict[int, str] = {}
    for folder in PROC.glob("[0-9]*"):
        try:
            stat = (folder / "stat").read_text()
        except OSError:
            continue  # gone
        name, _, rest = stat.partition("(")[2].rpartition(")")
        parents[int(folder.name)] = int(rest.split()[1])
        names[int(folder.name)] = name
    ours = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in ours} - ours:
        ours |= more
    return [(PROC / str(pid), names[pid]) for pid in ours if pid in names and pid != os.getpid()]


def _status_mib(folder: Path) -> float | None:
    try:
        lines = (folder / "status").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * KIB / MIB
    return None


def _rusage_mib(who: int) -> float:
    peak = resource.getrusage(who).ru_maxrss
    return peak / MIB if sys.platform == "darwin" else peak * KIB / MIB
