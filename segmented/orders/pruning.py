"""Delete old rows of the order database: orders that no pool and no repeat needs, and old entries of relayed ledgers.

| the pool, on the stock server | which of its orders go, if they are older than the date |
| --- | --- |
| is there, open or closed | those of which it has no record: forgotten ones, and those of an earlier epoch |
| was archived or deleted | all |
| is not there | all, but only if the caller says that it is gone: a server that lost its data has no pool either |

Each page is a transaction of its own, so that an interrupted run leaves nothing half done, and the next one goes on.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

from sqlalchemy import and_, delete, func, or_, select, text, update
from sqlalchemy.dialects import mysql, postgresql, sqlite

from segmented import protocol as op
from segmented.clock import WallClock
from segmented.errors import InvalidInput, PoolArchived, PoolMissing, ShardVanished
from segmented.models import checked_id
from segmented.orders.relaying import relay
from segmented.orders.statements import Rows, in_utc
from segmented.orders.tables import CONFIRMED, VOID, behind, ledger, orders
from segmented.orders.verifying import own_totals, when_verified
from segmented.stock import ShardedPool, find_pool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from sqlalchemy import ColumnElement, Connection, Insert, Select

    from segmented.models.pools import PoolKey
    from segmented.orders.database import OrderDatabase
    from segmented.plans.drivers import Store
    from segmented.protocol.archive import Erased
    from segmented.stock import Pool


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
        raise InvalidInput(f"the date {before} needs a time zone, such as datetime.UTC")
    newest = datetime.fromtimestamp(WallClock().now(), UTC) - AGE_MIN
    if before > newest:
        raise InvalidInput(
            f"the date {before:%Y-%m-%d %H:%M} is less than a day ago: an order may be repeated until then; name one "
            f"before {newest:%Y-%m-%d %H:%M}"
        )
    rows = PruneRows(gate)
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


# --- old and personal rows: read in pages, and deleted or changed a page in one transaction ---

PAGE: Final = 1_000
PRUNED_ID: Final = "\tpruned"
"""The id of the row that keeps a pool's deleted sold units, so that the sums of an audit stay right.

No order can have a tab in its id. The row has epoch 0, as a sold order has that its pool does not know any more.
"""
_LAST: Final = (ledger.c.epoch.desc(), ledger.c.sequence.desc())
_FIRST: Final = (ledger.c.epoch, ledger.c.sequence, ledger.c.line)


@dataclass(frozen=True, slots=True)
class OldRow:
    """An order's row, and when it was made."""

    order_id: str
    state: str
    epoch: int | None
    created_at: datetime


class PruneRows(Rows):
    """Deletes old rows."""

    def names(self) -> Iterator[str]:
        """Read the skus and shards that have orders, one after the other: the whole index would take too long."""
        return (sku for (sku,) in self._each((orders.c.sku,), ("",)))

    def page(self, sku: str, after: str) -> tuple[OldRow, ...]:
        """Read the next orders behind an id, sorted by their ids' bytes."""
        columns = (orders.c.order_id, orders.c.state, orders.c.epoch, orders.c.created_at)
        chosen = select(*columns).where(orders.c.sku == sku, orders.c.order_id > max(after, PRUNED_ID))
        page = chosen.order_by(orders.c.order_id).limit(PAGE)

        def work(connection: Connection) -> tuple[OldRow, ...]:
            return tuple(OldRow(*row[:-1], in_utc(row[-1])) for row in connection.execute(page))

        return self._run(work)

    def delete(self, sku: str, order_ids: Sequence[str]) -> tuple[int, int]:
        """Delete up to 1,000 orders, add their sold units to the pool's row, and return both numbers."""
        chosen = select(orders.c.order_id, orders.c.state, orders.c.quantity).where(
            orders.c.sku == sku, orders.c.order_id.in_(order_ids)
        )

        def work(connection: Connection) -> tuple[int, int]:
            found = connection.execute(chosen.with_for_update()).all()
            gone = [row.order_id for row in found]  # others may have come back since they were read
            connection.execute(delete(orders).where(orders.c.sku == sku, orders.c.order_id.in_(gone)))
            units = sum(row.quantity for row in found if row.state == CONFIRMED)
            if units:
                connection.execute(_add_pruned(connection.dialect.name, sku, units))
            return len(found), units

        return self._write(work)

    def units(self, sku: str) -> int:
        """Return the sold units of all orders of a sku that were deleted."""
        pruned = select(orders.c.quantity).where(orders.c.sku == sku, orders.c.order_id == PRUNED_ID)
        return self._run(lambda connection: connection.execute(pruned).scalar() or 0)

    def ledgers(self) -> Iterator[tuple[str, int]]:
        """Read the skus and the numbers of shards that have a relayed ledger, one after the other."""
        return self._each((ledger.c.sku, ledger.c.shard), ("", 0))

    def _each(self, key: tuple[ColumnElement[Any], ...], last: tuple[Any, ...] | None) -> Iterator[Any]:
        while last is not None:
            following = select(*key).where(behind(*key, *last)).order_by(*key).limit(1)
            last = self._run(partial(_first_of, following))
            if last is not None:
                yield last

    def delete_entries(self, sku: str, shard: int, before: datetime, *, dry_run: bool) -> int:
        """Delete about 1,000 of the oldest rows of a shard's ledger; 0 if none is left. A dry run counts all.

        The last entry stays: the relay continues behind it.
        """
        of_it = (ledger.c.sku == sku, ledger.c.shard == shard)
        last = select(ledger.c.epoch, ledger.c.sequence).where(*of_it).order_by(*_LAST).limit(1)
        first = select(ledger.c.epoch, ledger.c.sequence, ledger.c.changed_at).where(*of_it).order_by(*_FIRST)

        def work(connection: Connection) -> int:
            end = connection.execute(last).one_or_none()
            old = None
            for row in connection.execute(first if dry_run else first.limit(PAGE)).yield_per(PAGE):
                if in_utc(row.changed_at) >= before or (row.epoch, row.sequence) == tuple(end or ()):
                    break
                old = row
            if old is None:
                return 0
            up_to: ColumnElement[bool] = or_(
                ledger.c.epoch < old.epoch, and_(ledger.c.epoch == old.epoch, ledger.c.sequence <= old.sequence)
            )
            if dry_run:
                counted = select(func.count()).select_from(ledger).where(*of_it, up_to)
                return int(connection.execute(counted).scalar_one())
            return connection.execute(delete(ledger).where(*of_it, up_to)).rowcount

        return self._write(work)

    def erase(self, customer_id: str, *, dry_run: bool) -> int:
        """Take a customer's id out of all rows, about 1,000 in a transaction, and return how many had it."""
        count = 0
        for sku in self.names():
            count += self._erase((orders.c.sku == sku,), (orders.c.order_id,), customer_id, dry_run=dry_run)
        for sku, shard in self.ledgers():
            of_it = (ledger.c.sku == sku, ledger.c.shard == shard)
            count += self._erase(of_it, (ledger.c.epoch, ledger.c.sequence), customer_id, dry_run=dry_run)
        return count

    def _erase(
        self, of_it: tuple[ColumnElement[bool], ...], key: tuple[Any, ...], customer_id: str, *, dry_run: bool
    ) -> int:
        """Go through rows by their key, in pages, and take the customer out."""
        table = key[0].table
        count, after, is_more = 0, None, True
        while is_more:
            rest = of_it if after is None else (*of_it, behind(*key, *after))
            end = select(*key).where(*rest).order_by(*key).offset(PAGE - 1).limit(1)

            def work(connection: Connection) -> tuple[int, Any]:
                last = connection.execute(end).one_or_none()  # noqa: B023  # runs before the next page
                page = rest if last is None else (*rest, ~behind(*key, *last))  # noqa: B023  # runs before the next page
                named = (*page, table.c.customer_id == customer_id)
                if dry_run:
                    return connection.execute(select(func.count()).select_from(table).where(*named)).scalar_one(), last
                return connection.execute(update(table).where(*named).values(customer_id=None)).rowcount, last

            found, after = self._write(work)
            count, is_more = count + found, after is not None
        return count

    def sizes(self) -> dict[str, int]:
        """Return the bytes of both tables with their indexes; empty on other databases than PostgreSQL."""
        size = text(
            "SELECT relname, pg_total_relation_size(oid) FROM pg_class "
            "WHERE oid IN (to_regclass(:a), to_regclass(:b)) ORDER BY relname"
        )

        def work(connection: Connection) -> dict[str, int]:
            if connection.dialect.name != "postgresql":
                return {}
            found = connection.execute(size, {"a": orders.name, "b": ledger.name})
            return {row[0]: row[1] for row in found}

        return self._run(work)


def _add_pruned(dialect: str, sku: str, units: int) -> Insert:
    """Build the insert of the row with a pool's deleted units, or its update."""
    content = {"sku": sku, "order_id": PRUNED_ID, "state": CONFIRMED, "segment": 0, "epoch": 0, "quantity": units}
    summed = {"quantity": orders.c.quantity + units}
    if dialect in {"mysql", "mariadb"}:
        return mysql.insert(orders).values(content).on_duplicate_key_update(summed)
    insert = postgresql.insert if dialect == "postgresql" else sqlite.insert
    key = (orders.c.sku, orders.c.order_id)
    return insert(orders).values(content).on_conflict_do_update(index_elements=key, set_=summed)


def _first_of(wanted: Select[Any], connection: Connection) -> tuple[Any, ...] | None:
    found = connection.execute(wanted).one_or_none()
    return None if found is None else tuple(found)


# --- erasing a customer: the id goes out of every record, ledger and row, while the audits of both sides stay clean ---
#
# 1. The ledger of a pool that names the customer is copied to the order database if it is relayed, and trimmed: its
#    entries follow from each other by digests, so none of them can be changed.
# 2. The pool's records of decided orders go without the customer; a step lowers the units that the customer has bought
#    with them. Records of finished carts go as a whole.
# 3. The rows of the order database and of relayed ledgers go without the customer.
#
# Each step leaves what an audit finds clean, and the next run finishes an interrupted one. An order that is not decided
# keeps its customer. Archives keep what they have: `segmented orders erase` names them.

ROUNDS_MAX: Final = 5
ENTRIES_READ: Final = 100


@dataclass(frozen=True, slots=True)
class EraseReport:
    """Counts of what was changed, or would be."""

    records: int
    """Records of orders and carts in pools, and counts of what the customer has bought."""
    ledgers: int
    """Ledgers that named the customer and were trimmed."""
    rows: int
    """Rows of the order database, of relayed ledgers included."""
    undecided: int
    """Orders and carts that keep the customer because they are not decided: erase again once they are."""


def erase_customer(
    store: Store, customer_id: str, *, gate: OrderDatabase | None = None, dry_run: bool = False
) -> EraseReport:
    """Take a customer's id out of all pools of a server, and of an order database. Safe to repeat.

    The ledger of a pool that names the customer is trimmed up to now; without a relay its older changes are known as
    sums alone. Raises InvalidInput for a pool whose ledger is relayed, without its database.
    """
    customer_id = checked_id(customer_id, "customer id")
    eraser = _Eraser(store, customer_id, gate, dry_run=dry_run)
    pools = [find_pool(store, sku) for sku in store.execute(op.ListPools())]
    for pool in pools:
        eraser.erase(pool)
    rows = 0 if gate is None else PruneRows(gate).erase(customer_id, dry_run=dry_run)
    return EraseReport(eraser.records, eraser.ledgers, rows, eraser.undecided)


class _Eraser:
    def __init__(self, store: Store, customer_id: str, gate: OrderDatabase | None, *, dry_run: bool) -> None:
        self._store, self._customer, self._gate, self._dry_run = store, customer_id, gate, dry_run
        self.records = self.ledgers = self.undecided = 0

    def erase(self, pool: Pool | ShardedPool) -> None:
        """Erase the customer from a pool."""
        for shard in pool.shards if isinstance(pool, ShardedPool) else (pool,):
            is_named = self._in_ledger(shard)
            self.ledgers += is_named
            undecided = recent = 0
            for _ in range(ROUNDS_MAX):
                if is_named and not self._dry_run:
                    self._trim(pool, shard)
                undecided, recent = self._records(shard)
                if not recent or self._dry_run:
                    break
                is_named = True  # an order was decided meanwhile
            self.undecided += undecided + recent

    def _in_ledger(self, shard: Pool) -> bool:
        after = "0-0"
        while entries := self._store.execute(op.ScanLedger(shard.sku, after, ENTRIES_READ)):
            for _, fields in entries:
                if any(self._customer in line.split("\t") for line in dict(fields).get("lines", "").split("\n")):
                    return True
            after = entries[-1][0]
        return False

    def _trim(self, pool: Pool | ShardedPool, shard: Pool) -> None:
        if shard.state().relayed is None:
            gate = self._gate if shard.state().gated else None
            while when_verified(shard, gate, lambda: shard.trim_ledger(keep=0)).is_more_left:
                pass
            return
        if self._gate is None:
            raise InvalidInput(f"the ledger of pool {pool.sku!r} is relayed: name the order database, which has it too")
        for _ in range(ROUNDS_MAX):  # the first one writes the checkpoint, which the next one relays
            if relay(pool, self._gate, trim_keep=0).entries_behind == 0 and not self._in_ledger(shard):
                break

    def _records(self, shard: Pool) -> tuple[int, int]:
        """Erase the customer from a shard's records; returns how many are undecided, and how many are in its ledger."""
        gate = self._gate if shard.state().gated else None
        undecided = recent = 0
        for kind, ids in self._named(shard.sku):
            if self._dry_run:
                self.records += len(ids)
                continue
            done = when_verified(shard, gate, partial(self._step, shard.sku, kind, ids))
            undecided, recent = undecided + done.undecided, recent + done.recent
        if not (self._dry_run or undecided or recent):  # what is left is of orders that the pool has forgotten
            when_verified(shard, gate, partial(self._step, shard.sku, "count", ()))
        return undecided, recent

    def _step(self, sku: str, kind: Literal["orders", "carts", "count"], ids: tuple[str, ...]) -> Erased:
        done = self._store.execute(op.EraseCustomer(sku, self._customer, kind, ids))
        self.records += done.erased
        return done

    def _named(self, sku: str) -> Iterator[tuple[Literal["orders", "carts"], tuple[str, ...]]]:
        """Find the orders and carts that name the customer."""
        for key in ("orders", "entries", "dead", "carts"):
            for page in self._scan(sku, key):
                is_named = self._is_cart if key == "carts" else self._is_order
                ids = [name for name, value in page if is_named(value)]
                for first in range(0, len(ids), op.BATCH_MAX):
                    yield "carts" if key == "carts" else "orders", tuple(ids[first : first + op.BATCH_MAX])

    def _scan(self, sku: str, key: PoolKey) -> Iterator[tuple[tuple[str, str], ...]]:
        cursor = -1
        while cursor != 0:
            cursor, page = self._store.execute(op.ScanRecords(sku, key, max(cursor, 0)))
            yield page

    def _is_order(self, value: str) -> bool:
        return self._customer in value.split("\t")

    def _is_cart(self, value: str) -> bool:
        return value.partition("\n")[2].startswith(f"[{json.dumps(self._customer, ensure_ascii=False)},")
