"""The order database of a gated pool, for commands that change both."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from segmented.errors import InvalidInput, PoolInShards
from segmented.models import AlreadyOpen, Opened, PoolState
from segmented.orders import Gate, connect
from segmented.orders.engine import parse, shown
from segmented.orders.opening import UNGATED, open_rows, state_of
from segmented.orders.verifying import check_sale
from segmented.stock import Pool, ShardedPool, find_pool
from segmented.stock.settings import DEFAULT_HOLD, DEFAULT_TTL, PoolSettings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from segmented.stock.settings import Opening

ITS_OWN = "name the one that the pool was opened with"
LACKS_TABLES = f"{ITS_OWN}, or make what is missing by Gate.create"


@contextmanager
def order_gate(database: str) -> Iterator[Gate]:
    """Connect to a pool's order database. Raises InvalidInput if it cannot be used or has no tables."""
    with _connected(database, ITS_OWN) as gate:
        _check_tables(gate, database, LACKS_TABLES)
        yield gate


@contextmanager
def migrated_gate(database: str) -> Iterator[Gate]:
    """Connect to an order database that has all tables. Raises InvalidInput otherwise."""
    with _connected(database, "name another one, or create it with 'segmented orders migrate --database URL'") as gate:
        _check_tables(gate, database, "create what is missing with 'segmented orders migrate --database URL'")
        yield gate


def open_both(pool: Pool, database: str, asked: Opening, *, creates_tables: bool) -> Opened | AlreadyOpen:
    """Open a pool and its rows, or return the open pool, which gets no rows in another database.

    Raises InvalidInput without changes, also if the open pool has no order database or another one.
    """
    there = state_of(pool)
    with _gate_to_open(pool, there, database, asked, creates_tables=creates_tables) as gate:
        if there is not None:
            rows = gate.totals(pool.sku)
            check_sale(gate, there, rows)
            if not rows.segments:
                raise InvalidInput(
                    f"pool {pool.sku!r} is open already, and the order database {_where(database)} has no rows for it: "
                    "name the one that it was opened with"
                )
            if (there.opened, there.segment_count, there.epoch) != (asked.stock, asked.segments, asked.epoch):
                return AlreadyOpen(there)
        return open_rows(pool, gate, asked)


def open_shards(pool: ShardedPool, database: str, asked: Opening, *, creates_tables: bool) -> Opened | AlreadyOpen:
    """Open a pool in shards and the rows of each; an open pool gets no rows in another database.

    Raises InvalidInput as `open_both`, and PoolInShards without changes if the sku is sold in one piece.
    """
    if isinstance(found := find_pool(pool.store, pool.sku), Pool) and state_of(found) is not None:
        raise PoolInShards(pool.sku, is_in_shards=False)
    with _gate_to_open(pool, state_of(pool), database, asked, creates_tables=creates_tables) as gate:
        options = {name: value for name, value in asdict(asked).items() if name != "gated"}
        return ShardedPool(pool.store, pool.sku, gate=gate).open(**options)


@contextmanager
def _gate_to_open(
    pool: Pool | ShardedPool, there: PoolState | None, database: str, asked: Opening, *, creates_tables: bool
) -> Iterator[Gate]:
    """Connect to the order database of a pool that is opened, or is `there`; create its tables if asked to."""
    settings = PoolSettings(pool.sku, ttl=DEFAULT_TTL, hold=DEFAULT_HOLD)
    settings.open(asked)  # before creating tables
    if asked.shards != 1:
        settings.shard_count(asked.shards, asked.stock, asked.segments)
    if there is not None and not there.gated:
        raise InvalidInput(f"pool {pool.sku!r} is open already, and {UNGATED}")
    is_new = there is None
    advice = "--create-tables makes it" if is_new else ITS_OWN
    with _connected(database, advice, may_be_new=is_new and creates_tables) as gate:
        if is_new and creates_tables:
            gate.create()
        _check_tables(gate, database, "--create-tables makes what a new one lacks" if is_new else LACKS_TABLES)
        yield gate


@contextmanager
def _connected(database: str, advice: str, *, may_be_new: bool = False) -> Iterator[Gate]:
    """Connect to an order database. A file that does not exist is refused with `advice`, unless it may be new."""
    parsed = parse(database)
    is_file = parsed.get_backend_name() == "sqlite" and not parsed.query
    if is_file and not may_be_new and not Path(parsed.database or "").exists():  # connecting would create it
        raise InvalidInput(f"the order database {shown(parsed)} cannot be used: the file does not exist; {advice}")
    with Gate(connect(database, pool_size=1)) as gate:
        yield gate


def _check_tables(gate: Gate, database: str, advice: str) -> None:
    missing = gate.missing_tables()
    if missing:
        what = f"table{'s' if len(missing) > 1 else ''} {', '.join(missing)}"
        raise InvalidInput(f"the order database {_where(database)} has no {what}: {advice}")


def _where(database: str) -> str:
    return shown(parse(database))
