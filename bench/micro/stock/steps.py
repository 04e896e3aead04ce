"""The server's CPU time for each script at the largest sizes that are allowed: no other client is served meanwhile.

A figure is the CPU time of the server's main thread for one operation, divided by the number of its scripts, and of
several rounds the least: a processor that is shared with others is slower.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from bench.figures import Figure
from bench.micro.stock.context import Counter, cpu_ms, server_of
from bench.micro.stock.largest_pools import LargestPools
from bench.micro.stock.other_scripts import OtherScripts

if TYPE_CHECKING:
    import redis

    from bench.micro.stock.context import BenchContext
    from bench.micro.stock.largest_pools import Prepared
    from segmented import RedisStore

MILLISECONDS_MAX: Final = 10.0
PAGE_BYTES_MAX: Final = 262_144


def measure_steps(context: BenchContext) -> list[Figure]:
    """Measure each operation, and the size of a page of the ledger."""
    rounds = context.sizes.step_rounds
    figures: list[Figure] = []
    with server_of(context) as (store, client):
        cases = LargestPools(context, store).cases() | OtherScripts(context, store).cases()
        for number, (name, prepare) in enumerate(cases.items()):
            context.progress("largest steps", number, len(cases))
            found = [_measured(store, client, prepare()) for _ in range(rounds)]
            least = min(milliseconds for milliseconds, _, _ in found)
            detail = {"calls": found[0][1], "segments": context.sizes.segments_most, "rounds": rounds}
            label = f"server CPU a script: {name}"
            figures.append(Figure(label, least, "ms", at_most=MILLISECONDS_MAX, detail=detail))
            if name.startswith("read_ledger"):
                steps = [len(step.lines) for step in found[0][2]]
                label = f"bytes in {name}, without the last change"
                figures.append(Figure(label, sum(steps[:-1]), "bytes", at_most=PAGE_BYTES_MAX, is_promise=True))
    return figures


def _measured(store: RedisStore, client: redis.Redis, operation: Prepared) -> tuple[float, int, Any]:
    """Return the milliseconds of an operation's scripts, on average, their number, and the answer."""
    counter = Counter(client)
    first, before = cpu_ms(client), cpu_ms(client)
    answer = store.execute(operation)
    used = cpu_ms(client) - before - (before - first)  # without the question itself
    calls, _ = counter.of()
    return max(0.0, used) / max(1, calls), calls, answer
