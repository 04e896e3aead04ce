"""The order database of a gated pool, for commands that change both."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from segmented.errors import InvalidInput, PoolInShards
from segmented.models import (
    AlreadyOpen,
    Closed,
    Opened,
    OrderRecord,
    PoolState,
    Resized,
    Restocked,
    Returned,
    Settled,
    TooFew,
)
from segmented.orders import Gate, audit_both, connect, reopen_gated
from segmented.orders.changing import resize_gated, restock_gated, withdraw_gated
from segmented.orders.engine import parse, shown
from segmented.orders.opening import UNGATED, next_epoch, open_rows, state_of
from segmented.orders.sale import expire_voided
from segmented.orders.verifying import check_sale
from segmented.stock import Pool, ShardedPool, find_pool
from segmented.stock.settings import DEFAULT_HOLD, DEFAULT_TTL, PoolSettings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from segmented.orders import BothReport
    from segmented.stock.opening import Opening

ITS_OWN = "name the one that the pool was opened with"
LACKS_TABLES = f"{ITS_OWN}, or make what is missing by Gate.create"


@dataclass(frozen=True, slots=True)
class GatedPool:
    """A pool and its order database, with the methods of a pool."""

    pool: Pool
    gate: Gate

    def restock(self, units: int, *, restock_id: str) -> Restocked | Closed:
        """Add units on both sides."""
        return restock_gated(self.pool, self.gate, units, restock_id=restock_id)

    def withdraw(self, units: int, *, withdraw_id: str) -> Restocked | TooFew:
        """Remove units on both sides."""
        return withdraw_gated(self.pool, self.gate, units, withdraw_id=withdraw_id)

    def return_units(self, order_id: str, units: int, *, return_id: str) -> Returned:
        """Give units of a sold order back on both sides."""
        return Pool(self.pool.store, self.pool.sku, gate=self.gate).return_units(order_id, units, return_id=return_id)

    def order(self, order_id: str) -> OrderRecord | None:
        """Read the pool's record of an order."""
        return self.pool.order(order_id)

    def resize(self, segments: int) -> Resized:
        """Change the number of segments on both sides."""
        return resize_gated(self.pool, self.gate, segments)

    def expire(self) -> tuple[Settled, ...]:
        """Settle expired holds as the database decides."""
        return expire_voided(self.pool, self.gate)

    def reopen(self, segments: int, epoch: int | None, *, queue: str | None, step: str | None) -> Opened | AlreadyOpen:
        """Open the pool again with what the database has not sold, in this epoch or the next one."""
        if epoch is None:
            epoch = next_epoch(self.pool, self.gate)
        return reopen_gated(self.pool, self.gate, segments=segments, epoch=epoch, queue=queue, step=step)

    def audit_both(self) -> list[tuple[int | None, BothReport]]:
        """Compare both sides."""
        return [(None, audit_both(self.pool, self.gate))]


@dataclass(frozen=True, slots=True)
class AuditedShards:
    """A pool in shards and its order database, for an audit."""

    pool: ShardedPool
    gate: Gate

    def audit_both(self) -> list[tuple[int | None, BothReport]]:
        """Compare both sides of each shard; returns its number with the report."""
        return [(number, audit_both(shard.plain, self.gate)) for number, shard in enumerate(self.pool.shards)]


@contextmanager
def audited(pool: Pool | ShardedPool, database: str) -> Iterator[GatedPool | AuditedShards]:
    """Connect to the order database of either kind of pool. Raises InvalidInput as `gated_pool`."""
    with _connected(database, ITS_OWN) as gate:
        _check_tables(gate, database, LACKS_TABLES)
        yield AuditedShards(pool, gate) if isinstance(pool, ShardedPool) else GatedPool(pool, gate)


@contextmanager
def gated_pool(pool: Pool, database: str) -> Iterator[GatedPool]:
    """Connect to a pool's order database. Raises InvalidInput if it cannot be used or has no tables."""
    with _connected(database, ITS_OWN) as gate:
        _check_tables(gate, database, LACKS_TABLES)
        yield GatedPool(pool, gate)


@contextmanager
def gated_shards(pool: ShardedPool, database: str) -> Iterator[ShardedPool]:
    """Connect to the order database of a pool in shards. Raises InvalidInput if it cannot be used or has no tables."""
    with _connected(database, ITS_OWN) as gate:
        _check_tables(gate, database, LACKS_TABLES)
        yield ShardedPool(pool.store, pool.sku, gate=gate)


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
        return ShardedPool(pool.store, pool.sku, gate=gate).open(
            stock=asked.stock,
            segments=asked.segments,
            shards=asked.shards,
            epoch=asked.epoch,
            limit_per_customer=asked.limit_per_customer,
            profile=asked.profile,
            queue=asked.queue,
            step=asked.step,
        )


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
