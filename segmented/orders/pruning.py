"""Delete old rows of the order database: orders that no pool and no repeat needs, and old entries of relayed ledgers.

| the pool, on the stock server | which of its orders go, if they are older than the date |
| --- | --- |
| is there, open or closed | those of which it has no record: forgotten ones, and those of an earlier epoch |
| was archived or deleted | all |
| is not there | all, but only if the caller says that it is gone: a server that lost its data has no pool either |

Each page is a transaction of its own, so that an interrupted run leaves nothing half done, and the next one goes on.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, Literal

from segmented import protocol as op
from segmented.clock import WallClock
from segmented.errors import InvalidInput, PoolArchived, PoolMissing, ShardVanished
from segmented.orders.tables import VOID
from segmented.orders.verifying import own_totals

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from segmented.orders.database import OrderDatabase
    from segmented.orders.prune_rows import OldRow
    from segmented.plans.drivers import Store

AGE_MIN: Final = timedelta(days=1)
"""Age of the youngest rows that may go: until then clients and queues repeat their messages."""
Standing = Literal["there", "removed", "unknown"]


@dataclass(frozen=True, slots=True)
class PruneReport:
    """Counts of what was deleted, or would be."""

    before: datetime
    orders: int
    """Rows of orders."""
    units: int
    """Sold units of these, which the database keeps as a sum."""
    entries: int
    """Rows of relayed ledgers."""
    unknown: tuple[str, ...]
    """Pools that the stock server does not know, whose orders stay."""
    sizes: Mapping[str, int]
    """Bytes of each table with its indexes; empty on SQLite. Deleted space is used again, after a vacuum."""


def prune(
    store: Store,
    gate: OrderDatabase,
    before: datetime,
    *,
    gone: bool = False,
    dry_run: bool = False,
    on_page: Callable[[int, int], None] = lambda _orders, _entries: None,
) -> PruneReport:
    """Delete orders and relayed ledger entries from before a date that no pool and no repeat needs. Safe to repeat.

    Orders of a pool that is there go only once it has no record of them: use `forget` first. With `gone`, orders of
    pools that the server does not know go too. `on_page` gets how many rows have gone so far. Raises InvalidInput for a
    date without a time zone, or less than a day ago: until then an order may be repeated.
    """
    if before.tzinfo is None:
        message = f"the date {before} needs a time zone, such as datetime.UTC"
        raise InvalidInput(message)
    newest = datetime.fromtimestamp(WallClock().now(), UTC) - AGE_MIN
    if before > newest:
        message = (
            f"the date {before:%Y-%m-%d %H:%M} is less than a day ago: an order may be repeated until then; name one "
            f"before {newest:%Y-%m-%d %H:%M}"
        )
        raise InvalidInput(message)
    rows = gate.pruning
    orders = units = entries = 0
    unknown: list[str] = []
    for sku in rows.names():
        standing, epoch = _standing(store, gate, sku)
        if standing == "unknown" and not gone:
            unknown.append(sku)
            continue
        after = ""
        while page := rows.page(sku, after):
            after = page[-1].order_id
            old = [row for row in page if row.created_at < before]
            ids = _unneeded(store, sku, old, epoch) if standing == "there" else [row.order_id for row in old]
            count, sold = (len(ids), 0) if dry_run or not ids else rows.delete(sku, ids)
            orders, units = orders + count, units + sold
            on_page(orders, entries)
    for sku, shard in rows.ledgers():
        while count := rows.delete_entries(sku, shard, before, dry_run=dry_run):
            entries += count
            on_page(orders, entries)
            if dry_run:
                break
    return PruneReport(before, orders, units, entries, tuple(unknown), rows.sizes())


def _standing(store: Store, gate: OrderDatabase, sku: str) -> tuple[Standing, int]:
    """Return how a pool or shard stands on the stock server, and its epoch there.

    Raises InvalidInput if the database is that of another sale of the sku.
    """
    try:
        state = store.execute(op.ReadPool(sku))
    except PoolArchived as error:
        return "removed" if error.is_removed else "there", error.epoch
    except (PoolMissing, ShardVanished):
        return "unknown", 0
    if not state.gated:  # another pool of this name
        return "unknown", 0
    own_totals(gate, state)
    return "there", state.epoch


def _unneeded(store: Store, sku: str, rows: list[OldRow], epoch: int) -> list[str]:
    """Return those orders of which the pool has no record, and which it did not sell in its present epoch."""
    over = tuple(row.order_id for row in rows if row.state == VOID or (row.epoch or 0) < epoch)
    inspected = store.execute(op.InspectOrders(sku, over)) if over else ()
    return [one.order_id for one in inspected if one.raw is None]
