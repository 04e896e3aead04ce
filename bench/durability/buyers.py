"""Starts and kills the buying processes of a trial. They come from a fork server, which starts one in milliseconds."""

from __future__ import annotations

import multiprocessing
from typing import TYPE_CHECKING, Final, Self

from bench.durability.buyer import Assignment, be_buyer
from segmented.errors import SegmentedError

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerProcess
    from pathlib import Path

PROCESSES: Final = 2
PRELOADED: Final = ("bench.durability.buyer", "sqlalchemy.dialects.sqlite", "redis.cluster")


class Buyers:
    """The buying processes of one trial. As a context manager, it leaves none behind."""

    def __init__(self, folder: Path, url: str, database: str | None) -> None:
        """Start no process yet; journals are kept in `folder`."""
        self.journals = [folder / f"journal-{number}" for number in range(PROCESSES)]
        self._assignments = [
            Assignment(number, url, database, str(journal)) for number, journal in enumerate(self.journals)
        ]
        self._processes: dict[int, ForkServerProcess] = {}

    def __enter__(self) -> Self:
        """Start all of them."""
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(list(PRELOADED))
        for assignment in self._assignments:
            process = context.Process(target=be_buyer, args=(assignment,))
            process.start()
            self._processes[assignment.process] = process
        return self

    def __exit__(self, *_: object) -> None:
        """Kill the remaining ones."""
        for number in list(self._processes):
            self.kill(number)

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
        process = self._processes.pop(number)
        process.kill()
        process.join()
        process.close()
