"""Memory a record, in each of its states: the server's used memory before and after, index and overhead included."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from bench.dedup.records import HOLDER, HOUR_MS, beginning, claiming, performed
from bench.dedup.stage import MEMORY, server_of
from bench.locks.figures import Figure
from segmented.models.dedup import RunBegun
from segmented.operations import FinishRun

if TYPE_CHECKING:
    from collections.abc import Callable

    import redis

    from bench.dedup.stage import Stage
    from segmented import RedisStore
    from segmented.operations import Operation

SMALL: Final = '{"charged": true}'
LARGER: Final = "7" * 200


def measure_memory(stage: Stage) -> list[Figure]:
    """Take all records from state to state; then others, whose result is larger."""
    count = stage.sizes.records
    tokens: dict[int, int] = {}
    figures = []

    def finishing(index: int, body: str) -> FinishRun:
        begun = beginning("memory", index)
        return FinishRun(begun.record, begun.message, HOLDER, tokens[index], "value", body, HOUR_MS, HOUR_MS)

    with server_of(stage, MEMORY) as (store, client):
        for result in (SMALL, LARGER):
            empty = _used(client)

            def note(state: str, empty: int = empty) -> None:
                each = (_used(client) - empty) / count
                figures.append(Figure(f"memory of a record, {state}", each, "bytes", detail={"records": count}))

            _all(stage, store, lambda index: claiming("memory", index))
            if result is SMALL:
                note("waiting")
            for index, answer in enumerate(_all(stage, store, lambda index: beginning("memory", index))):
                if isinstance(answer, RunBegun):
                    tokens[index] = answer.fencing_token
            if result is SMALL:
                note("running")
            _all(stage, store, lambda index, body=result: finishing(index, body))  # type: ignore[misc]  # of a default
            note(f"done, with a result of {len(result)} bytes")
            client.execute_command("FLUSHDB", "SYNC")  # not in the background: its memory is to be free now
    return figures


def _all(stage: Stage, store: RedisStore, make: Callable[[int], Operation[Any]]) -> list[Any]:
    return list(performed(stage, store, "memory of records", stage.sizes.records, make))


def _used(client: redis.Redis) -> int:
    return int(client.info("memory")["used_memory"])
