"""Records by number for the parts of the benchmark: keys and ids are as long as those of real tasks."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

from bench.dedup.context import NAMESPACE
from segmented.models.dedup import RecordName
from segmented.protocol import BeginRun, ClaimKey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.dedup.context import BenchContext
    from segmented import RedisStore
    from segmented.protocol import Operation

BATCH: Final = 1_000
HOUR_MS: Final = 3_600_000
TASK: Final = "shop.tasks.charge"
HOLDER: Final = "0123456789abcdef" * 2
PRINT: Final = "fedcba9876543210" * 2


def claiming(name: str, index: int) -> ClaimKey:
    """Return the operation that claims one key; `name`, up to 15 characters, distinguishes sets of records."""
    return ClaimKey(_record(name, index), _message(name, index), PRINT, TASK, HOUR_MS, HOUR_MS)


def beginning(name: str, index: int) -> BeginRun:
    """Return the operation that begins the run of that key's message."""
    return BeginRun(_record(name, index), _message(name, index), HOLDER, PRINT, TASK, HOUR_MS, HOUR_MS)


def batches(count: int, size: int = BATCH) -> Iterator[range]:
    """Divide `count` numbers into batches."""
    for first in range(0, count, size):
        yield range(first, min(first + size, count))


def performed(
    context: BenchContext, store: RedisStore, phase: str, count: int, make: Callable[[int], Operation[Any]]
) -> Iterator[Any]:
    """Perform one operation per number, in batches, two at a time: one on the server, one being made here."""

    def perform(batch: range) -> list[Any]:
        return store.execute_many([make(index) for index in batch])

    with ThreadPoolExecutor(2) as threads:
        for done, answers in enumerate(threads.map(perform, batches(count))):
            context.progress(phase, done * BATCH, count)
            yield from answers


def _record(name: str, index: int) -> RecordName:
    return RecordName(NAMESPACE, f"{name:->16}{index:016x}")  # as long as a digest


def _message(name: str, index: int) -> str:
    return f"{name:->20}{index:016x}"  # as long as a task id
