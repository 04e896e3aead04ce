"""Starts and kills the processes of a trial: buyers, and workers where orders are submitted.

They come from a fork server, which starts one in milliseconds.
"""

from __future__ import annotations

import multiprocessing
from typing import TYPE_CHECKING, Final, Self

from bench.proof.durability.buyer import Assignment, be_buyer
from bench.proof.durability.worker import be_worker
from bench.proof.processes import end
from segmented.errors import SegmentedError

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerProcess
    from pathlib import Path

PROCESSES: Final = 2
WORKERS: Final = 2
PRELOADED: Final = ("bench.proof.durability.worker", "sqlalchemy.dialects.sqlite", "redis.cluster")


class Buyers:
    """The buying processes of one trial. As a context manager, it leaves none behind."""

    def __init__(self, folder: Path, url: str, database: str | None, *, has_workers: bool = False) -> None:
        """Start no process yet; journals are kept in `folder`. With workers, orders are submitted to them."""
        self.journals = [folder / f"journal-{number}" for number in range(PROCESSES)]
        self._assignments = [
            Assignment(number, url, database, str(journal), is_submitting=has_workers)
            for number, journal in enumerate(self.journals)
        ]
        self._processes: dict[int, ForkServerProcess] = {}
        self._worker_count = WORKERS if has_workers else 0
        self._workers: list[ForkServerProcess] = []

    def __enter__(self) -> Self:
        """Start all of them."""
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(list(PRELOADED))
        for assignment in self._assignments:
            process = context.Process(target=be_buyer, args=(assignment,))
            process.start()
            self._processes[assignment.process] = process
        for _ in range(self._worker_count):
            worker = context.Process(target=be_worker, args=(self._assignments[0],))
            worker.start()
            self._workers.append(worker)
        return self

    def __exit__(self, *_: object) -> None:
        """Kill the remaining ones."""
        for number in list(self._processes):
            self.kill(number)
        while self._workers:
            self.kill_worker()

    @property
    def running(self) -> list[int]:
        """The numbers of the processes that were not killed."""
        return sorted(self._processes)

    @property
    def are_done(self) -> bool:
        """Return whether all that were not killed have ended. Raises SegmentedError if one failed."""
        codes = {number: process.exitcode for number, process in self._processes.items()}
        for number, code in codes.items():
            if code:
                message = f"buying process {number} ended by itself with code {code}"
                raise SegmentedError(message)
        return all(code == 0 for code in codes.values())

    def kill(self, number: int) -> None:
        """Kill one process."""
        end(self._processes.pop(number))

    def kill_worker(self) -> None:
        """Kill one worker."""
        end(self._workers.pop())
