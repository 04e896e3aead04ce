"""Memory per record in each of its states: the server's used memory before and after, with index and overhead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench.dedup.context import MEMORY, server_of
from bench.dedup.records import HOLDER, HOUR_MS, beginning, claiming, performed
from bench.locks.figures import Figure
from segmented.models.dedup import RunBegun
from segmented.protocol import FinishRun

if TYPE_CHECKING:
    import redis

    from bench.dedup.context import BenchContext
    from segmented import RedisStore

SMALL: Final = '{"charged": true}'
LARGER: Final = "7" * 200
LESS: Final = 5
"""Divisor of the number of records with the larger result: making them takes time, and only the size matters."""


def measure_memory(context: BenchContext) -> list[Figure]:
    """Move all records from state to state, and fewer records to a larger result."""
    count = context.sizes.records
    with server_of(context, MEMORY) as (store, client):
        waiting, running, done = _states(context, store, client, count, SMALL)
        *_, larger = _states(context, store, client, max(1, count // LESS), LARGER)
    return [
        _figure("waiting", waiting, count),
        _figure("running", running, count),
        _figure(f"done, with a result of {len(SMALL)} bytes", done, count),
        _figure(f"done, with a result of {len(LARGER)} bytes", larger, max(1, count // LESS)),
    ]


def _states(context: BenchContext, store: RedisStore, client: redis.Redis, count: int, result: str) -> list[float]:
    """Return the bytes of a record when it waits, runs, and is done."""
    tokens: dict[int, int] = {}
    empty = _used(client)

    def finishing(index: int) -> FinishRun:
        begun = beginning("memory", index)
        return FinishRun(begun.record, begun.message, HOLDER, tokens[index], "value", result, HOUR_MS, HOUR_MS)

    sizes = []
    for make in (lambda index: claiming("memory", index), lambda index: beginning("memory", index), finishing):
        for index, answer in enumerate(performed(context, store, "memory of records", count, make)):
            if isinstance(answer, RunBegun):
                tokens[index] = answer.fencing_token
        sizes.append((_used(client) - empty) / count)
    client.execute_command("FLUSHDB", "SYNC")  # synchronously: the memory must be free now
    return sizes


def _figure(state: str, size: float, count: int) -> Figure:
    return Figure(f"memory of a record, {state}", size, "bytes", detail={"records": count})


def _used(client: redis.Redis) -> int:
    return int(client.info("memory")["used_memory"])
