"""The pool for threads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from segmented import protocol as op
from segmented.errors import ChangeGated, NotGranted, PoolNotGated, SegmentedError
from segmented.locks.durations import checked_timeout
from segmented.models import Granted, Order, Settled, Superseded, check_id
from segmented.plans import perform, run_sync
from segmented.plans.store_kinds import checked_sync
from segmented.stock.audit import AuditReport, audit_plan
from segmented.stock.grant import GrantState
from segmented.stock.ledger import first_page_plan, next_page, trim_plan
from segmented.stock.order_handle import OrderHandle
from segmented.stock.outbox import Noted, Outbox, submit_plan, to_publish
from segmented.stock.plans import due_plan, expire_plan, renew_plan, resolve_plan, settle_many_plan
from segmented.stock.repair import RepairReport, repair_plan
from segmented.stock.settings import DEFAULT_HOLD, DEFAULT_TTL, PoolSettings, as_order, checked_verdicts
from segmented.stock.sold_out_mark import SoldOutMark, grant_marked, reserve_many_marked, reserve_marked, returning

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import TracebackType

    from segmented.models import (
        AlreadyOpen,
        Closed,
        LedgerEntry,
        Opened,
        OrderRecord,
        PoolClosed,
        PoolState,
        Refusal,
        Resized,
        Restocked,
        Taken,
        TooFew,
        Trimmed,
    )
    from segmented.plans.drivers import Store
    from segmented.stock.plans import Verdict


class Pool:
    """A stock of one sku, split over segments that are locked one by one.

    Never oversells, and never says sold out while enough units are free. A segment's lock bounds how many work at once
    and protects an outside resource; the units are taken in the same step as the lock, so losing the lock sells nothing
    twice.
    """

    def __init__(
        self,
        store: Store,
        sku: str,
        *,
        ttl: float = DEFAULT_TTL,
        hold: float = DEFAULT_HOLD,
        sold_out_mark: float = 0.0,
        outbox: Outbox | None = None,
    ) -> None:
        """Sell `sku` from `store`. A segment's lease lives `ttl` seconds, units stay reserved for `hold` seconds.

        `sold_out_mark` spares the server what it would refuse again: for so many seconds after a refusal this process
        itself refuses every new order that wants more than was free (0.1 is a good value; 0, the default, is off). It
        is for the process in which order ids are made. Where an order may have been placed through another process
        before, leave it off: the repeat would be refused for that time, although the order has its units.
        `outbox` says how orders are submitted to workers.
        """
        self.store = checked_sync(store, type(self).__name__)
        self._settings = PoolSettings(sku, ttl=ttl, hold=hold)
        self.sku = sku
        self._mark = SoldOutMark(sold_out_mark, store.clock)
        self._found: PoolState | None = None
        self.outbox = outbox or Outbox()
        self._noted = Noted(store.clock)

    def open(
        self,
        *,
        stock: int,
        segments: int,
        gated: bool = False,
        epoch: int = 1,
        customer_limit: int | None = None,
    ) -> Opened | AlreadyOpen:
        """Open the pool once; opening again changes nothing and says what is there.

        `gated`: somebody else, such as an order database, decides every order's fate, so nothing expires before it has
        been asked. With a `customer_limit` every order names its customer, who gets no more units than that.
        """
        operation = self._settings.open(stock, segments, gated=gated, epoch=epoch, customer_limit=customer_limit)
        return self.store.execute(operation)

    @property
    def refused_by_mark(self) -> int:
        """How many orders the sold-out mark has refused here, without a command sent."""
        return self._mark.refused_count

    def state(self) -> PoolState:
        """Read totals and units a segment in one step. Raises PoolMissing."""
        return self.store.execute(op.ReadPool(self.sku))

    def is_gated(self) -> bool:
        """Return whether an order database decides this pool's orders; the server is asked once. Raises PoolMissing."""
        return self._first_found().gated

    def epoch(self, *, at_least: int = 1) -> int:
        """Return the pool's epoch; the server is asked once, and again if it is known to be later by now."""
        if self._first_found().epoch < at_least:
            self._found = None
        return self._first_found().epoch

    def _first_found(self) -> PoolState:
        if self._found is None:
            self._found = self.state()
        return self._found

    def grant(
        self,
        order: Order | str,
        *,
        quantity: int = 1,
        timeout: float | None = None,
        holder_id: str | None = None,
        keep_refusal: bool = False,
        partial: bool = False,
        fair: bool = False,
    ) -> Grant | Refusal:
        """Take units and a free segment's lock, waiting up to `timeout` seconds (None: for ever) for a segment.

        In a `with` statement the order is confirmed at the end of the body, or cancelled if the body raises; a refusal
        raises NotGranted there. `holder_id` makes an explicit repeat recognisable; `keep_refusal` stores a sold-out
        answer as the order's final state. `partial` takes what is left, if that is less. `fair` keeps the order of
        arrival across processes, for two round trips more. Raises OrderMismatch when the id exists with other content.
        """
        operation = self._settings.grant(
            as_order(order, quantity), holder_id=holder_id, keep_refusal=keep_refusal, partial=partial
        )
        answer, asked_at = run_sync(
            grant_marked(self._mark, operation, checked_timeout(timeout), fair=fair), self.store
        )
        return Grant(self, answer, asked_at) if isinstance(answer, Granted) else answer

    def reserve(self, order: Order | str, *, quantity: int = 1, partial: bool = False) -> Taken:
        """Take units for the pool's hold time, without a lock; with `partial`, what is left if that is less."""
        operation = op.Reserve(self.sku, as_order(order, quantity), self._settings.hold_ms, partial)
        return run_sync(reserve_marked(self._mark, operation), self.store)

    def reserve_many(self, orders: Iterable[Order], *, partial: bool = False) -> list[Taken | SegmentedError]:
        """Reserve for many orders, up to 1,000 in a round trip, each as if alone and in this order.

        One answer an order, in their order; the failure that `reserve` would have raised stands in its place. An id
        that comes twice is a repeat. If a later round trip fails, the earlier ones stand: call again with the same ids.
        """
        operation = self._settings.reserve_many(orders, partial=partial)
        return run_sync(reserve_many_marked(self._mark, operation), self.store)

    def submit(self, order: Order | str, *, quantity: int = 1) -> OrderHandle:
        """Accept an order, and have a worker told of it: one round trip, then a message in the background.

        The handle says what has become of it. Units are taken now, or by the worker, as the pool's `outbox` says; what
        is refused at once is an outcome. Safe to run twice. Raises OrderMismatch for an id with other content.
        """
        (answer,) = self.submit_many((as_order(order, quantity),))
        if isinstance(answer, SegmentedError):
            raise answer
        return answer

    def submit_many(self, orders: Iterable[Order]) -> list[OrderHandle | SegmentedError]:
        """Accept many orders, up to 1,000 in a round trip; a handle each, or the failure of `submit` in its place."""
        operation = self._settings.submit_many(orders, self.outbox)
        answers = run_sync(submit_plan(self._mark, self.outbox, operation, noted=self._noted), self.store)
        waiting = to_publish(answers)
        if waiting and self.outbox.publisher is not None:
            self.outbox.publisher.put(self.sku, waiting)
        pairs = zip(operation.orders, answers, strict=True)
        return [
            answer if isinstance(answer, SegmentedError) else OrderHandle(self.store, self.sku, order.order_id, answer)
            for order, answer in pairs
        ]

    def handle(self, order_id: str) -> OrderHandle:
        """Return the handle of an order that was submitted, here or by another process; nothing is asked."""
        check_id(order_id, "order id")
        return OrderHandle(self.store, self.sku, order_id)

    def confirm(self, order_id: str, *, holder_id: str | None = None) -> Settled:
        """Make the order final; the answer says what had already happened, if anything had.

        With a holder id only that holder's segment is freed, not that of a successor in the same order.
        """
        return self.store.execute(self._settings.confirm(order_id, holder_id=holder_id))

    def cancel(self, order_id: str, *, holder_id: str | None = None, voided: bool = False) -> Settled | Superseded:
        """Give the units back; with a holder id only while the order is still that holder's.

        Of a gated pool, only what its order database has `voided`; raises PoolGated otherwise.
        """
        operation = self._settings.cancel(order_id, holder_id=holder_id, voided=voided)
        return run_sync(returning(self._mark, perform(operation)), self.store)

    def confirm_many(self, order_ids: Iterable[str]) -> list[Settled | SegmentedError | None]:
        """Confirm many orders, up to 1,000 in a round trip; one answer an order, or the failure of `confirm`."""
        operation = self._settings.settle_many("confirmed", order_ids)
        return run_sync(settle_many_plan(operation), self.store)

    def cancel_many(self, order_ids: Iterable[str], *, voided: bool = False) -> list[Settled | SegmentedError | None]:
        """Cancel many orders, up to 1,000 in a round trip; one answer an order, or the failure of `cancel`."""
        operation = self._settings.settle_many("cancelled", order_ids, voided=voided)
        plan = returning(self._mark, settle_many_plan(operation))
        return run_sync(plan, self.store)

    def expire(
        self, *, limit: int = 1_000, resolver: Callable[[OrderRecord], Verdict] | None = None
    ) -> tuple[Settled, ...]:
        """Give back what lapsed holds kept, up to `limit` orders, 100 in a step. Returns what this call decided.

        A gated pool gives nothing back by itself (PoolGated): its order database is asked (`expire_voided`), or a
        `resolver`, which is called with each order whose hold has lapsed and says "confirm", "release" or "wait".
        """
        limit = self._settings.expire_limit(limit)
        if resolver is None:
            return run_sync(returning(self._mark, expire_plan(self.sku, limit)), self.store)
        self._require_gated()
        records = run_sync(due_plan(self.sku, limit), self.store)
        verdicts = {record.order_id: resolver(record) for record in records}
        return run_sync(returning(self._mark, resolve_plan(self.sku, checked_verdicts(verdicts))), self.store)

    def _require_gated(self) -> None:
        if not self.state().gated:
            raise PoolNotGated(self.sku)

    def _require_stored(self, change: str, *, stored: bool) -> None:
        if not stored and self.state().gated:
            raise ChangeGated(self.sku, change)

    def restock(self, units: int, *, restock_id: str, stored: bool = False) -> Restocked | Closed:
        """Put units in while the sale runs, once for each id. Raises ChangeMismatch for an id of another change.

        Of a gated pool, only what its order database has `stored` (`restock_gated`); raises ChangeGated otherwise.
        """
        operation = self._settings.restock(units, restock_id)
        self._require_stored("restock", stored=stored)
        return run_sync(returning(self._mark, perform(operation)), self.store)

    def withdraw(self, units: int, *, withdraw_id: str, stored: bool = False) -> Restocked | TooFew:
        """Take free units out while the sale runs, all or none, once for each id. Raises ChangeMismatch.

        Of a gated pool, only what its order database has `stored` (`withdraw_gated`); raises ChangeGated otherwise.
        """
        operation = self._settings.withdraw(units, withdraw_id)
        self._require_stored("withdraw", stored=stored)
        return self.store.execute(operation)

    def resize(self, segments: int, *, stored: bool = False) -> Resized:
        """Change the number of segments while the sale runs, without a pause; free units are split evenly.

        Whoever holds a segment that goes away finishes undisturbed. Of a gated pool, only when its order database has
        `stored` rows for the new segments (`resize_gated`); raises ChangeGated otherwise.
        """
        operation = self._settings.resize(segments)
        self._require_stored("resize", stored=stored)
        return self.store.execute(operation)

    def close(self) -> PoolClosed:
        """Take no new orders any more. What is reserved can still be confirmed, cancelled, or lapse."""
        return self.store.execute(op.ClosePool(self.sku))

    def audit(self) -> AuditReport:
        """Fold the ledger and compare it with every number; safe while the pool sells."""
        return run_sync(audit_plan(self.sku), self.store)[0]

    def repair(self, report: AuditReport, *, yes: bool) -> RepairReport:
        """Mend what an audit's `report` names, if it is still so; without a yes, only tell what would be done.

        Safe while the pool sells, and safe to run twice. Each repair is one step and an entry `repaired` in the ledger.
        What is wrong in the ledger itself, oversold or refused wrongly cannot be mended, and is told.
        """
        return run_sync(repair_plan(report, self._settings.hold_ms, yes=yes), self.store)

    def read_ledger(self, *, after: int = 0) -> Iterator[LedgerEntry]:
        """Read every change after sequence number `after`, oldest first, in pages; a trimmed ledger has its rest."""
        page = run_sync(first_page_plan(self.sku, after), self.store)
        while page:
            yield from page
            page = self.store.execute(next_page(self.sku, page))

    def trim_ledger(self, *, keep: int) -> Trimmed:
        """Forget changes, but for the last `keep` and those since the checkpoint before them; audit first.

        A checkpoint of all numbers is written now, and counts for later trims. What is older than the checkpoint at
        which the ledger then begins is known in sums alone: that an order decided before it is missing can be found,
        but not which one; a refusal from before it cannot be found wrong. Orders keep their records.
        Raises PoolDrifted when the totals do not add up.
        """
        return run_sync(trim_plan(self._settings.trim(keep)), self.store)

    def renew(self, grant: GrantState) -> None:
        """Push the end of a grant's lease and hold out. Raises LeaseLost when it is too late."""
        operation = op.RenewGrant(
            self.sku, grant.order_id, grant.holder_id, self._settings.ttl_ms, self._settings.hold_ms
        )
        grant._note_renewal(*run_sync(renew_plan(operation), self.store))  # noqa: SLF001  # two halves of one object
        grant.require()

    def __repr__(self) -> str:
        """Name the pool."""
        return f"Pool({self.sku!r}, {self.store!r})"


class Grant(GrantState):
    """A granted order, for threads."""

    def __init__(self, pool: Pool, granted: Granted, asked_at: float) -> None:
        """Belong to `pool`."""
        super().__init__(granted, pool._settings.ttl_ms, asked_at, pool.store.clock)  # noqa: SLF001  # made by it
        self.pool = pool
        """The pool, or the shard, whose segment and units these are."""

    def confirm(self) -> Settled:
        """Make it final and free the segment."""
        settled = self.pool.confirm(self.order_id, holder_id=self.holder_id)
        self._is_settled = True
        return settled

    def cancel(self) -> Settled | Superseded:
        """Give the units back and free the segment, unless another holder has the order by now."""
        answer = self.pool.cancel(self.order_id, holder_id=self.holder_id)
        self._is_settled = True
        return answer

    def renew(self) -> None:
        """Push the end of the lease and the hold out. Raises LeaseLost when it is too late."""
        self.pool.renew(self)

    def __enter__(self) -> Self:
        """Return the grant."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Confirm; or cancel if the body raised, without hiding its error."""
        if self._is_settled:
            return
        if error is None:
            settled = self.confirm()
            if settled.state != "confirmed":
                raise NotGranted(settled)
            return
        try:
            self.cancel()
        except SegmentedError as failure:
            error.add_note(f"and the order could not be cancelled: {failure}")
