"""The server's time for a claim among few and among many live keys, in alternating batches on one server."""

from __future__ import annotations

import statistics
from collections import deque
from typing import TYPE_CHECKING, Final

from bench.dedup.context import FEW, MANY, server_of
from bench.dedup.records import batches, claiming, performed
from bench.locks.figures import Figure
from bench.stock.context import Counter
from segmented.once_keys import once_keys

if TYPE_CHECKING:
    import redis

    from bench.dedup.context import BenchContext
    from segmented import RedisStore

RATIO_MAX: Final = 1.1
PROBE: Final = 500
"""Claims per batch; they are removed after it."""


def measure_claims(context: BenchContext) -> list[Figure]:
    """Fill two databases of the server, then claim more keys in each of them alternately."""
    few, many = context.sizes.live_keys
    with server_of(context, FEW) as small, server_of(context, MANY) as large:
        for (store, _), count in ((small, few), (large, many)):
            made = performed(context, store, f"claiming {count:,} keys", count, lambda index: claiming("live", index))
            deque(made, maxlen=0)
        found: dict[int, list[float]] = {few: [], many: []}
        probes = list(batches(context.sizes.claims, PROBE))
        for number, batch in enumerate(probes):
            context.progress("claims among live keys", number, len(probes))
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
    """Return the server's microseconds per claim of a batch, and remove its keys."""
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
    """Return the lower quartile: the server's clock includes time when another process had its core."""
    return statistics.quantiles(found, n=4)[0] if len(found) > 1 else found[0]
