"""Reads, audits and repairs of a pool. None of them decides an order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from segmented import protocol as op
from segmented.models import checked_id
from segmented.plans import run_sync
from segmented.plans.store_kinds import checked_sync
from segmented.stock.audit import AuditReport, audit_plan
from segmented.stock.ledger import first_page_plan, next_page, trim_plan
from segmented.stock.order_handle import OrderHandle
from segmented.stock.order_list import checked_state, chosen, ids_plan, reads
from segmented.stock.plans import available_plan
from segmented.stock.repair import RepairReport, repair_plan
from segmented.stock.settings import PoolSettings, checked_epoch
from segmented.stock.sold_out_mark import SoldOutMark
from segmented.stock.thawing import thaw_plan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from segmented.clock import Duration
    from segmented.models import LedgerEntry, OrderRecord, OrderState, PoolState, Settled, Thawed, Trimmed
    from segmented.plans.drivers import Store


class PoolBooks:
    """The state and the ledger of a pool."""

    def __init__(self, store: Store, sku: str, *, ttl: Duration, hold: Duration, sold_out_mark: Duration) -> None:
        """Read the pool of `sku` from `store`; the other arguments are those of `Pool`."""
        self.store = checked_sync(store, "Pool")
        self._settings = PoolSettings(sku, ttl=ttl, hold=hold)
        self.sku = self._settings.sku
        self._mark = SoldOutMark(sold_out_mark, store.clock)
        self._found: PoolState | None = None

    @property
    def refused_by_mark(self) -> int:
        """Number of orders that the sold-out mark has refused here without contacting the server."""
        return self._mark.refused_count

    def state(self) -> PoolState:
        """Read all totals and each segment's units atomically. Raises PoolMissing."""
        return self.store.execute(op.ReadPool(self.sku))

    def available(self) -> int:
        """Return how many units are free now, with those of holds that have ended. Raises PoolMissing."""
        return run_sync(available_plan(self.state()), self.store)

    def order(self, order_id: str) -> OrderRecord | None:
        """Return an order's record, or None if the pool has none: the order took no units here, or was forgotten."""
        order_id = checked_id(order_id, "order id")
        return self.store.execute(op.ReadOrders(self.sku, (order_id,)))[0]

    def orders(self, *, state: OrderState | None = None) -> Iterator[OrderRecord]:
        """Read the orders in `state`, such as "confirmed" (None: all), each once and in no particular order.

        Safe while the pool sells: pages are bounded, and an order that arrives meanwhile may be missing. Raises
        PoolMissing, and InvalidInput for a state that no order has.
        """
        wanted = checked_state(state)
        ids = run_sync(ids_plan(self.sku), self.store)
        return (one for read in reads(self.sku, ids) for one in chosen(self.store.execute(read), wanted))

    def is_gated(self, *, again: bool = False) -> bool:
        """Return whether an order database decides this pool's orders. Raises PoolMissing.

        Asks the server once, or `again`: the pool may have been opened again in the meantime.
        """
        return self.known_state(again=again).gated

    def epoch(self, *, at_least: int = 1) -> int:
        """Return the pool's epoch; asks the server once, and again if `at_least` is later than the known epoch."""
        checked_epoch(self.sku, at_least)
        is_later = self.known_state().epoch < at_least
        found = self.known_state(again=is_later)
        return max(found.epoch, at_least)  # a server that forgot the last one is behind

    def known_state(self, *, again: bool = False) -> PoolState:
        """Return the state that this object has read first, or, with `again`, reads now. Raises PoolMissing."""
        if again or self._found is None:
            self._found = self.state()
        return self._found

    _decision: Callable[[str], Settled | None] | None = None
    """Asks a gate for its decision on an order that the pool does not know."""

    def handle(self, order_id: str) -> OrderHandle:
        """Return the handle of an order that this or another process submitted; sends no command."""
        order_id = checked_id(order_id, "order id")
        return OrderHandle(self.store, self.sku, order_id, decision=self._decision)

    def thaw(self, *, sold: int, stocked: int | None = None) -> Thawed:
        """Let a frozen pool that is not gated sell again, in a new epoch, with `sold` units sold.

        You say how many are sold, from what your customers have: the server has lost it. Units that are still reserved
        stay so, and all others are free. If more are sold and reserved than were stocked, the newest reserved orders
        are cancelled; `cancelled_count` of the answer says how many. If a restock or a withdrawal was lost too, give
        the units ever `stocked`, without those withdrawn. The ledger begins again with these numbers and names both
        states. Raises PoolNotFrozen for a pool that sells, PoolGated for one whose order database knows what is sold
        (`rebuild`), and InvalidInput if more are sold than were ever stocked.
        """
        return run_sync(thaw_plan(self._settings.thaw(sold, stocked)), self.store)

    def audit(self) -> AuditReport:
        """Recompute all numbers from the ledger and compare them; safe while the pool sells."""
        return run_sync(audit_plan(self.sku), self.store)[0]

    def repair(self, report: AuditReport, *, yes: bool) -> RepairReport:
        """Correct what an audit's `report` names, if it still holds; without `yes`, only report what would be done.

        Safe while the pool sells, and safe to repeat. Each repair is one atomic step and adds an entry `repaired` to
        the ledger. Errors in the ledger itself, oversold units and wrong refusals cannot be corrected; they are
        reported.
        """
        return run_sync(repair_plan(report, self._settings.hold_ms, yes=yes), self.store)

    def read_ledger(self, *, after: int = 0) -> Iterator[LedgerEntry]:
        """Read every change after sequence number `after`, oldest first, in pages; a trimmed ledger has the rest."""
        page = run_sync(first_page_plan(self.sku, after), self.store)
        while page:
            yield from page
            page = self.store.execute(next_page(self.sku, page))

    def trim_ledger(self, *, keep: int, relayed_only: bool = False) -> Trimmed:
        """Delete old changes, except the last `keep` and those since the checkpoint before them; audit first.

        Writes a checkpoint, where audits begin: of changes before it only sums are known, so a missing order is noticed
        but not named, and no wrong refusal is found. Raises PoolDrifted when the totals do not add up, and StoreRefused
        if it would delete changes of a relayed ledger that were not relayed; with `relayed_only` it keeps them.
        """
        return run_sync(trim_plan(self._settings.trim(keep, relayed_only=relayed_only)), self.store)

    @property
    def tokens_above(self) -> int:
        """The highest token that a resource is known to have accepted; grants get higher ones."""
        return self._settings.above

    def note_token(self, token: int) -> None:
        """Grant only tokens above this one from now on: a resource has accepted it."""
        self._settings.above = max(self._settings.above, token)
