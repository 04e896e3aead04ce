"""Erase a customer: take the id out of every record, ledger and row, while the audits of both sides stay clean.

1. The ledger of a pool that names the customer is copied to the order database if it is relayed, and trimmed: its
   entries follow from each other by digests, so none of them can be changed.
2. The pool's records of decided orders go without the customer; a step lowers the units that the customer has bought
   with them. Records of finished carts go as a whole.
3. The rows of the order database and of relayed ledgers go without the customer.

Each step leaves what an audit finds clean, and the next run finishes an interrupted one. An order that is not decided
keeps its customer. Archives keep what they have: `segmented orders erase` names them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from segmented import protocol as op
from segmented.errors import InvalidInput
from segmented.models import checked_id
from segmented.orders.pruning import PruneRows
from segmented.orders.relaying import relay
from segmented.orders.verifying import when_verified
from segmented.stock import ShardedPool, find_pool

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Literal

    from segmented.models.pools import PoolKey
    from segmented.orders.database import OrderDatabase
    from segmented.plans.drivers import Store
    from segmented.protocol.archive import Erased
    from segmented.stock import Pool

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
