"""What deduplication records cost a server: its time for a claim, and its memory a record in each of its states.

Records are made by number, with keys and ids as long as those of real tasks. Claims are timed among few and among many
live keys, batch by batch in turns, on one server. Memory is the server's used memory before and after, index and
overhead included.
"""

from __future__ import annotations

import statistics
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

from bench.dedup.stage import FEW, MANY, MEMORY, NAMESPACE, server_of
from bench.locks.figures import Figure
from bench.stock.stage import Counter
from segmented.models.dedup import RecordName, RunBegun
from segmented.once_keys import once_keys
from segmented.protocol import BeginRun, ClaimKey, FinishRun

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import redis

    from bench.dedup.stage import Stage
    from segmented import RedisStore
    from segmented.protocol import Operation

BATCH: Final = 1_000
HOUR_MS: Final = 3_600_000
TASK: Final = "shop.tasks.charge"
HOLDER: Final = "0123456789abcdef" * 2
PRINT: Final = "fedcba9876543210" * 2
RATIO_MAX: Final = 1.1
PROBE: Final = 500
"""Claims of a batch, which are taken away again after it."""
SMALL: Final = '{"charged": true}'
LARGER: Final = "7" * 200
LESS: Final = 5
"""For the larger result, so many times fewer records: what is wanted is a size, and it takes time to make them."""


def claiming(name: str, index: int) -> ClaimKey:
    """Claim one key; `name` is one of up to 15 characters, and tells sets of records apart."""
    return ClaimKey(_record(name, index), _message(name, index), PRINT, TASK, HOUR_MS, HOUR_MS)


def beginning(name: str, index: int) -> BeginRun:
    """Begin the run of that key's message."""
    return BeginRun(_record(name, index), _message(name, index), HOLDER, PRINT, TASK, HOUR_MS, HOUR_MS)


def batches(count: int, size: int = BATCH) -> Iterator[range]:
    """Divide so many numbers."""
    for first in range(0, count, size):
        yield range(first, min(first + size, count))


def performed(
    stage: Stage, store: RedisStore, phase: str, count: int, make: Callable[[int], Operation[Any]]
) -> Iterator[Any]:
    """Perform one operation a number, in batches, two under way: one on the server, one being made here."""

    def perform(batch: range) -> list[Any]:
        return store.execute_many([make(index) for index in batch])

    with ThreadPoolExecutor(2) as threads:
        for done, answers in enumerate(threads.map(perform, batches(count))):
            stage.told(phase, done * BATCH, count)
            yield from answers


def _record(name: str, index: int) -> RecordName:
    return RecordName(NAMESPACE, f"{name:->16}{index:016x}")  # as long as a digest


def _message(name: str, index: int) -> str:
    return f"{name:->20}{index:016x}"  # as long as a task id


def measure_claims(stage: Stage) -> list[Figure]:
    """Fill two databases of the server, then claim further keys in each of them in turns."""
    few, many = stage.sizes.live_keys
    with server_of(stage, FEW) as small, server_of(stage, MANY) as large:
        for (store, _), count in ((small, few), (large, many)):
            made = performed(stage, store, f"claiming {count:,} keys", count, lambda index: claiming("live", index))
            deque(made, maxlen=0)
        found: dict[int, list[float]] = {few: [], many: []}
        probes = list(batches(stage.sizes.claims, PROBE))
        for number, batch in enumerate(probes):
            stage.told("claims among live keys", number, len(probes))
            sides = [(few, small), (many, large)]
            for count, side in sides if number % 2 else reversed(sides):
                found[count].append(_claimed(*side, batch))
    ratio = _quiet(found[many]) / _quiet(found[few])
    return [
        Figure(f"a claim: server time, {many:,} live keys / {few:,}", ratio, "", at_most=RATIO_MAX),
        *(
            Figure(
                f"a claim: server time, at {count:,} live keys",
                _quiet(times),
                "us",
                min(times),
                max(times),
                detail={"interval": "least and most of the batches"},
            )
            for count, times in found.items()
        ),
    ]


def _claimed(store: RedisStore, client: redis.Redis, batch: range) -> float:
    """Return the server's microseconds for a claim of a batch, and take its keys away."""
    claims = [claiming("probe", index) for index in batch]
    counter = Counter(client)
    store.execute_many(claims)
    calls, used = counter.of()
    pipe = client.pipeline(transaction=False)
    for claim in claims:
        keys = once_keys(claim.record.namespace, claim.record.key)
        pipe.delete(keys.record)
        pipe.zrem(keys.claims, claim.record.key)
    pipe.execute()
    return used / max(1, calls)


def _quiet(found: list[float]) -> float:
    """Return the lower quartile: the server's clock also counts the time in which something else had its core."""
    return statistics.quantiles(found, n=4)[0] if len(found) > 1 else found[0]


def measure_memory(stage: Stage) -> list[Figure]:
    """Take records from state to state, all of them to one before any to the next; and fewer to a larger result."""
    count = stage.sizes.records
    with server_of(stage, MEMORY) as (store, client):
        waiting, running, done = _states(stage, store, client, count, SMALL)
        *_, larger = _states(stage, store, client, max(1, count // LESS), LARGER)
    return [
        _figure("waiting", waiting, count),
        _figure("running", running, count),
        _figure(f"done, with a result of {len(SMALL)} bytes", done, count),
        _figure(f"done, with a result of {len(LARGER)} bytes", larger, max(1, count // LESS)),
    ]


def _states(stage: Stage, store: RedisStore, client: redis.Redis, count: int, result: str) -> list[float]:
    """Return the bytes of a record that waits, runs, and is done."""
    tokens: dict[int, int] = {}
    empty = _used(client)

    def finishing(index: int) -> FinishRun:
        begun = beginning("memory", index)
        return FinishRun(begun.record, begun.message, HOLDER, tokens[index], "value", result, HOUR_MS, HOUR_MS)

    sizes = []
    for make in (lambda index: claiming("memory", index), lambda index: beginning("memory", index), finishing):
        for index, answer in enumerate(performed(stage, store, "memory of records", count, make)):
            if isinstance(answer, RunBegun):
                tokens[index] = answer.fencing_token
        sizes.append((_used(client) - empty) / count)
    client.execute_command("FLUSHDB", "SYNC")  # not in the background: its memory is to be free now
    return sizes


def _figure(state: str, size: float, count: int) -> Figure:
    return Figure(f"memory of a record, {state}", size, "bytes", detail={"records": count})


def _used(client: redis.Redis) -> int:
    return int(client.info("memory")["used_memory"])
