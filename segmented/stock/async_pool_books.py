"""Reads, audits and repairs of a pool, for asyncio."""

from __future__ import annotations

from typing import TYPE_CHECKING

from segmented import protocol as op
from segmented.models import checked_id
from segmented.plans import run_async
from segmented.plans.store_kinds import checked_async
from segmented.stock.audit import AuditReport, audit_plan
from segmented.stock.ledger import first_page_plan, next_page, trim_plan
from segmented.stock.order_handle import AsyncOrderHandle
from segmented.stock.order_list import checked_state, chosen, ids_plan, reads
from segmented.stock.plans import available_plan
from segmented.stock.repair import RepairReport, repair_plan
from segmented.stock.settings import PoolSettings, checked_epoch
from segmented.stock.sold_out_mark import SoldOutMark
from segmented.stock.thawing import thaw_plan

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from segmented.clock import Duration
    from segmented.models import LedgerEntry, OrderRecord, OrderState, PoolState, Settled, Thawed, Trimmed
    from segmented.plans.drivers import AsyncStore


class AsyncPoolBooks:
    """The state and the ledger of a pool; the asyncio twin of `PoolBooks`."""

    def __init__(self, store: AsyncStore, sku: str, *, ttl: Duration, hold: Duration, sold_out_mark: Duration) -> None:
        """Read the pool of `sku` from `store`; the other arguments are those of `AsyncPool`."""
        self.store = checked_async(store, "AsyncPool")
        self._settings = PoolSettings(sku, ttl=ttl, hold=hold)
        self.sku = self._settings.sku
        self._mark = SoldOutMark(sold_out_mark, store.clock)
        self._found: PoolState | None = None

    @property
    def refused_by_mark(self) -> int:
        """Number of orders that the sold-out mark has refused here without contacting the server."""
        return self._mark.refused_count

    async def state(self) -> PoolState:
        """Read all totals and each segment's units atomically. Raises PoolMissing."""
        return await self.store.execute(op.ReadPool(self.sku))

    async def available(self) -> int:
        """Return how many units are free now, with those of holds that have ended. Raises PoolMissing."""
        return await run_async(available_plan(await self.state()), self.store)

    async def order(self, order_id: str) -> OrderRecord | None:
        """Return an order's record, or None if the pool has none: the order took no units here, or was forgotten."""
        order_id = checked_id(order_id, "order id")
        return (await self.store.execute(op.ReadOrders(self.sku, (order_id,))))[0]

    async def orders(self, *, state: OrderState | None = None) -> AsyncIterator[OrderRecord]:
        """Read the orders in `state`, such as "confirmed" (None: all), each once and in no particular order.

        See `Pool.orders`.
        """
        wanted = checked_state(state)
        for read in reads(self.sku, await run_async(ids_plan(self.sku), self.store)):
            for one in chosen(await self.store.execute(read), wanted):
                yield one

    async def is_gated(self, *, again: bool = False) -> bool:
        """Return whether an order database decides this pool's orders. Asks the server once, or `again`."""
        return (await self.known_state(again=again)).gated

    async def epoch(self, *, at_least: int = 1) -> int:
        """Return the pool's epoch; asks the server once, and again if `at_least` is later than the known epoch."""
        checked_epoch(self.sku, at_least)
        is_later = (await self.known_state()).epoch < at_least
        found = await self.known_state(again=is_later)
        return max(found.epoch, at_least)  # a server that forgot the last one is behind

    async def known_state(self, *, again: bool = False) -> PoolState:
        """Return the state that this object has read first, or, with `again`, reads now. Raises PoolMissing."""
        if again or self._found is None:
            self._found = await self.state()
        return self._found

    _decision: Callable[[str], Awaitable[Settled | None]] | None = None
    """Asks a gate for its decision on an order that the pool does not know."""

    def handle(self, order_id: str) -> AsyncOrderHandle:
        """Return the handle of an order that this or another process submitted; sends no command."""
        order_id = checked_id(order_id, "order id")
        return AsyncOrderHandle(self.store, self.sku, order_id, decision=self._decision)

    async def thaw(self, *, sold: int, stocked: int | None = None) -> Thawed:
        """Let a frozen pool that is not gated sell again, in a new epoch, with `sold` units sold. See `Pool.thaw`."""
        return await run_async(thaw_plan(self._settings.thaw(sold, stocked)), self.store)

    async def audit(self) -> AuditReport:
        """Recompute all numbers from the ledger and compare them; safe while the pool sells."""
        return (await run_async(audit_plan(self.sku), self.store))[0]

    async def repair(self, report: AuditReport, *, yes: bool) -> RepairReport:
        """Correct what an audit's `report` names, if it still holds; without `yes`, only report what would be done.

        Safe while the pool sells, and safe to repeat. Each repair is one atomic step and adds an entry `repaired` to
        the ledger. Errors in the ledger itself, oversold units and wrong refusals cannot be corrected; they are
        reported.
        """
        return await run_async(repair_plan(report, self._settings.hold_ms, yes=yes), self.store)

    async def read_ledger(self, *, after: int = 0) -> AsyncIterator[LedgerEntry]:
        """Read every change after sequence number `after`, oldest first, in pages; a trimmed ledger has the rest."""
        page = await run_async(first_page_plan(self.sku, after), self.store)
        while page:
            for entry in page:
                yield entry
            page = await self.store.execute(next_page(self.sku, page))

    async def trim_ledger(self, *, keep: int, relayed_only: bool = False) -> Trimmed:
        """Delete old changes, except the last `keep` and those since the checkpoint before them; audit first.

        Writes a checkpoint, where audits begin: of changes before it only sums are known, so a missing order is noticed
        but not named, and no wrong refusal is found. Raises PoolDrifted when the totals do not add up, and StoreRefused
        if it would delete changes of a relayed ledger that were not relayed; with `relayed_only` it keeps them.
        """
        return await run_async(trim_plan(self._settings.trim(keep, relayed_only=relayed_only)), self.store)

    @property
    def tokens_above(self) -> int:
        """The highest token that a resource is known to have accepted; grants get higher ones."""
        return self._settings.above

    def note_token(self, token: int) -> None:
        """Grant only tokens above this one from now on: a resource has accepted it."""
        self._settings.above = max(self._settings.above, token)
