"""A sharded pool on the command line: its rows, its JSON, and its audit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any, Final, TypeVar

from segmented.cli.output import Row
from segmented.errors import InvalidInput, PoolInShards, SegmentedError
from segmented.models import LedgerEntry, Restocked, ShardedState
from segmented.models.ids import plural
from segmented.models.shards import units_away
from segmented.stock import Pool, Repair, ShardedAuditReport, ShardedPool, find_pool
from segmented.stock.sharded import ShardedRepairReport
from segmented.stores.redis import RedisStore

SHARD_HEADS: Final = ("shard", "segments", "available", "reserved", "confirmed", "on the way")
BETWEEN: Final = "between"
"""The place of drift that does not belong to a single shard."""

ChangeT = TypeVar("ChangeT")
Placed = tuple[int | None, Repair]
"""The number of a shard, None for a repair between shards; and the repair."""


def required_no_database(pool: Pool | ShardedPool, *, is_said: bool) -> None:
    """Raise InvalidInput if an order database is given for a pool that has none."""
    if is_said:
        what = "in shards" if isinstance(pool, ShardedPool) else "not gated"
        raise InvalidInput(f"pool {pool.sku!r} is {what}: it has no order database, so leave --database out")


def required_in_one_piece(store: RedisStore, sku: str) -> None:
    """Raise PoolInShards if the pool is sharded."""
    if isinstance(find_pool(store, sku), ShardedPool):
        raise PoolInShards(sku)


def shard_rows(state: ShardedState) -> list[Row]:
    """Return one row per shard: its units, and the units that left it and have not arrived."""
    rows = []
    away_by_shard = units_away(state.shards, state.shards)
    for number, (shard, away) in enumerate(zip(state.shards, away_by_shard, strict=True)):
        counts = (shard.segment_count, shard.available, shard.reserved, shard.confirmed, away)
        rows.append((str(number), *map(str, counts)))
    return rows


def shards_json(state: ShardedState) -> dict[str, Any]:
    """Return the details beyond the sum: each shard, its number first, and the units in transit."""
    away_by_shard = units_away(state.shards, state.shards)
    return {
        "away": state.away,
        "shards": [
            {"shard": number} | asdict(shard) | {"sku": state.sku, "stocked": shard.stocked, "away": away}
            for number, (shard, away) in enumerate(zip(state.shards, away_by_shard, strict=True))
        ],
    }


def in_all(pool: object, answer: ChangeT) -> ChangeT | Restocked:
    """Return the answer with the free units of all shards, not just of the changed one."""
    if isinstance(pool, ShardedPool) and isinstance(answer, Restocked):
        with suppress(SegmentedError):  # the units are added or removed even if a shard cannot be read
            return replace(answer, available=pool.state().available)
    return answer


def ledgers(
    pool: Pool | ShardedPool, shard: int | None, after: int
) -> tuple[bool, Iterator[tuple[int | None, LedgerEntry]]]:
    """Return whether the pool is in shards, and its changes, each with the number of its shard.

    Raises InvalidInput for a shard that does not exist, and for a ledger position without its shard.
    """
    if isinstance(pool, Pool):
        if shard is not None:
            raise InvalidInput(f"pool {pool.sku!r} is not in shards, so --shard {shard} cannot be given")
        return False, ((None, entry) for entry in pool.read_ledger(after=after))
    shards = pool.shards
    if shard is None and after:
        message = f"each shard of {pool.sku!r} counts its own changes: name one by --shard with --after {after}"
        raise InvalidInput(message)
    if shard is not None and not 0 <= shard < len(shards):
        message = f"--shard {shard} must be between 0 and {len(shards) - 1}: {pool.sku!r} has {len(shards)} shards"
        raise InvalidInput(message)
    numbers = range(len(shards)) if shard is None else [shard]
    return True, ((number, entry) for number in numbers for entry in shards[number].read_ledger(after=after))


def drift_lines(report: ShardedAuditReport) -> Iterator[str]:
    """Yield each drift as a line that begins with its shard."""
    for number, own in enumerate(report.shards):
        yield from (f"shard {number}: {one}" for one in own.drift)
        if own.drift_count > len(own.drift):
            yield f"shard {number}: and {own.drift_count - len(own.drift)} more"
    yield from (f"{BETWEEN} shards: {one}" for one in report.transfers)


def placed(report: ShardedRepairReport) -> list[Placed]:
    """Return the repairs, each with the number of its shard."""
    own = ((number, each) for number, repairs in enumerate(report.shards) for each in repairs)
    return [*own, *((None, each) for each in report.between)]


def place(number: int | None) -> str:
    """Return the name of a repair's shard."""
    return BETWEEN if number is None else str(number)


def away_line(units: int) -> Iterable[str]:
    """Return a line about units in transit, if there are any."""
    return [f"{units} {plural(units, 'unit')} on the way between shards"] if units else []
