"""The pool for asyncio; it runs the same plans as `pool`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from segmented import protocol as op
from segmented.errors import ChangeGated, NotGranted, PoolNotGated, SegmentedError
from segmented.locks.durations import checked_timeout
from segmented.models import Granted, Order, Settled, Superseded, check_id
from segmented.plans import perform, run_async
from segmented.plans.store_kinds import checked_async
from segmented.stock.audit import AuditReport, audit_plan
from segmented.stock.coalescing import Coalescing
from segmented.stock.grant import Granting, GrantState
from segmented.stock.ledger import first_page_plan, next_page, trim_plan
from segmented.stock.opening import open_pool_plan
from segmented.stock.order_handle import AsyncOrderHandle
from segmented.stock.outbox import Noted, Outbox, submit_plan, to_publish
from segmented.stock.plans import due_plan, expire_plan, renew_plan, resolve_plan, settle_many_plan
from segmented.stock.repair import RepairReport, repair_plan
from segmented.stock.settings import DEFAULT_HOLD, DEFAULT_TTL, PoolSettings, as_order, checked_flag, checked_verdicts
from segmented.stock.sold_out_mark import SoldOutMark, grant_marked, reserve_many_marked, returning
from segmented.stock.thawing import thaw_plan

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
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
        Thawed,
        TooFew,
        Trimmed,
    )
    from segmented.plans.drivers import AsyncStore
    from segmented.stock.plans import Verdict


class AsyncPool:
    """The stock of one sku, split over segments with one lock each.

    The asyncio twin of `Pool`.
    """

    def __init__(
        self,
        store: AsyncStore,
        sku: str,
        *,
        ttl: float = DEFAULT_TTL,
        hold: float = DEFAULT_HOLD,
        sold_out_mark: float = 0.0,
        outbox: Outbox | None = None,
    ) -> None:
        """Sell `sku` from `store`. A segment's lease lives `ttl` seconds, units stay reserved for `hold` seconds.

        `sold_out_mark` and `outbox` are as for `Pool`. Concurrent calls of `reserve`, and of `confirm` and `cancel`
        without a holder id, are sent to the server in batches; an idle pool sends a call at once.

        A pool serves one event loop. Another loop can use it after the first is closed, if the store allows that;
        before, it gets InvalidInput.
        """
        self.store = checked_async(store, type(self).__name__)
        self._settings = PoolSettings(sku, ttl=ttl, hold=hold)
        self.sku = sku
        self._mark = SoldOutMark(sold_out_mark, store.clock)
        self._calls = Coalescing(store, sku, self._settings.hold_ms, self._mark.clear)
        self._found: PoolState | None = None
        self.outbox = outbox or Outbox()
        self._noted = Noted(store.clock)

    async def open(
        self,
        *,
        stock: int,
        segments: int,
        gated: bool = False,
        epoch: int = 1,
        customer_limit: int | None = None,
        profile: str | None = None,
    ) -> Opened | AlreadyOpen:
        """Open the pool; opening it again changes nothing and returns the existing pool.

        With `gated`, an outside authority such as an order database decides every order, so nothing expires before it
        has been asked. With `customer_limit` every order names its customer, who gets at most that many units.
        `profile` says when a change is acknowledged: "memory" (default), "replicated:N", "fsync", or "database"
        (default with `gated`). Raises InvalidInput if the server cannot keep to it.
        """
        operation = self._settings.open(
            stock, segments, gated=gated, epoch=epoch, customer_limit=customer_limit, profile=profile
        )
        return await run_async(open_pool_plan(operation), self.store)

    @property
    def refused_by_mark(self) -> int:
        """Number of orders that the sold-out mark has refused here without contacting the server."""
        return self._mark.refused_count

    async def state(self) -> PoolState:
        """Read all totals and each segment's units atomically. Raises PoolMissing."""
        return await self.store.execute(op.ReadPool(self.sku))

    async def is_gated(self, *, again: bool = False) -> bool:
        """Return whether an order database decides this pool's orders. Asks the server once, or `again`."""
        return (await self._first_found(again=again)).gated

    async def epoch(self, *, at_least: int = 1) -> int:
        """Return the pool's epoch; asks the server once, and again if `at_least` is later than the known epoch."""
        is_later = (await self._first_found()).epoch < at_least
        found = await self._first_found(again=is_later)
        return max(found.epoch, at_least)  # a server that forgot the last one is behind

    async def _first_found(self, *, again: bool = False) -> PoolState:
        if again or self._found is None:
            self._found = await self.state()
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
    ) -> Granting[AsyncGrant]:
        """Return an awaitable for the answer; or use `async with pool.grant(order) as grant`. See `Pool.grant`."""
        operation = self._settings.grant(
            order, quantity, holder_id=holder_id, keep_refusal=keep_refusal, partial=partial, fair=fair
        )
        seconds = checked_timeout(timeout)
        return Granting(lambda: self._granted(operation, seconds, fair=fair))

    async def reserve(self, order: Order | str, *, quantity: int = 1, partial: bool = False) -> Taken:
        """Reserve units for the pool's hold time, without a lock; with `partial`, fewer units if fewer are left.

        If the call is cancelled, the pool tries for a short time in the background to cancel its order; the order id
        can be used again then. The order is kept if another call for it is under way in this pool or was granted it.
        The pool does not see a repeat that another process makes in that short time.
        """
        found, mark = self._settings.reserve(order, quantity, partial=partial).order, self._mark
        if not mark.seconds:
            return await self._calls.reserve(found, partial=partial)
        refused = mark.refusal(found, partial=partial)
        if refused is not None:
            return refused
        asked_at = mark.now()
        answer = await self._calls.reserve(found, partial=partial)
        mark.note(found.order_id, answer, asked_at)
        return answer

    async def reserve_many(self, orders: Iterable[Order], *, partial: bool = False) -> list[Taken | SegmentedError]:
        """Reserve for many orders, up to 1,000 in a round trip, each as if alone and in this order.

        Returns one answer for each order, in their order; a failure that `reserve` would have raised takes its answer's
        place. An id that occurs twice is a repeat. If a later round trip fails, the earlier ones stand: call again with
        the same ids.
        """
        operation = self._settings.reserve_many(orders, partial=partial)
        return await run_async(reserve_many_marked(self._mark, operation), self.store)

    async def submit(self, order: Order | str, *, quantity: int = 1) -> AsyncOrderHandle:
        """Accept an order and queue it for a worker: one round trip, then a message in the background.

        The handle reports the order's outcome. The pool's `outbox` says whether units are taken now or by the worker;
        an immediate refusal is an outcome too. Safe to repeat. Raises OrderMismatch for an id with other content.
        """
        (answer,) = await self.submit_many((as_order(order, quantity),))
        if isinstance(answer, SegmentedError):
            raise answer
        return answer

    async def submit_many(self, orders: Iterable[Order]) -> list[AsyncOrderHandle | SegmentedError]:
        """Submit many orders, up to 1,000 in a round trip; returns a handle, or the failure of `submit`, for each."""
        operation = self._settings.submit_many(orders, self.outbox)
        answers = await run_async(submit_plan(self._mark, self.outbox, operation, noted=self._noted), self.store)
        waiting = to_publish(answers)
        if waiting and self.outbox.publisher is not None:
            self.outbox.publisher.put(self.sku, waiting)
        pairs = zip(operation.orders, answers, strict=True)
        return [
            answer
            if isinstance(answer, SegmentedError)
            else AsyncOrderHandle(self.store, self.sku, order.order_id, answer)
            for order, answer in pairs
        ]

    def handle(self, order_id: str) -> AsyncOrderHandle:
        """Return the handle of an order that this or another process submitted; sends no command."""
        check_id(order_id, "order id")
        return AsyncOrderHandle(self.store, self.sku, order_id)

    async def confirm(self, order_id: str, *, holder_id: str | None = None, stored: bool = False) -> Settled:
        """Make the order final; the answer says if it was already settled. `stored`: see `Pool.confirm`."""
        operation = self._settings.confirm(order_id, holder_id=holder_id, stored=stored)
        if holder_id is not None:
            return await run_async(perform(operation), self.store)
        return await self._calls.confirm(order_id, stored=stored)

    async def cancel(
        self, order_id: str, *, holder_id: str | None = None, voided: bool = False
    ) -> Settled | Superseded:
        """Give the units back; with a holder id only while that holder still has the order.

        In a gated pool, only orders that the order database has `voided` can be cancelled; otherwise raises PoolGated.
        """
        operation = self._settings.cancel(order_id, holder_id=holder_id, voided=voided)
        if holder_id is not None:
            return await run_async(returning(self._mark, perform(operation)), self.store)
        return await self._calls.cancel(order_id, voided=voided)  # this also ends the mark

    async def confirm_many(
        self, order_ids: Iterable[str], *, stored: bool = False
    ) -> list[Settled | SegmentedError | None]:
        """Confirm many orders, up to 1,000 in a round trip; returns one answer each, or the failure of `confirm`."""
        operation = self._settings.settle_many("confirmed", order_ids, decided=stored)
        return await run_async(settle_many_plan(operation), self.store)

    async def cancel_many(
        self, order_ids: Iterable[str], *, voided: bool = False
    ) -> list[Settled | SegmentedError | None]:
        """Cancel many orders, up to 1,000 in a round trip; returns one answer each, or the failure of `cancel`."""
        operation = self._settings.settle_many("cancelled", order_ids, decided=voided)
        plan = returning(self._mark, settle_many_plan(operation))
        return await run_async(plan, self.store)

    async def expire(
        self, *, limit: int = 1_000, resolver: Callable[[OrderRecord], Awaitable[Verdict]] | None = None
    ) -> tuple[Settled, ...]:
        """Give back the units of expired holds, up to `limit` orders, 100 in a step. Returns what this call decided.

        A gated pool expires nothing on its own (raises PoolGated): ask its order database (`expire_voided`), or pass a
        `resolver`. It gets each expired order, at most 5,000, and returns "confirm", "release" or "wait".
        """
        limit = self._settings.expire_limit(limit)
        if resolver is None:
            return await run_async(returning(self._mark, expire_plan(self.sku, limit)), self.store)
        if not (await self.state()).gated:
            raise PoolNotGated(self.sku)
        records = await run_async(due_plan(self.sku, limit), self.store)
        verdicts = {record.order_id: await resolver(record) for record in records}
        return await run_async(returning(self._mark, resolve_plan(self.sku, checked_verdicts(verdicts))), self.store)

    async def _require_stored(self, change: str, *, stored: bool) -> None:
        if not checked_flag(stored, "stored") and (await self.state()).gated:
            raise ChangeGated(self.sku, change)

    async def restock(self, units: int, *, restock_id: str, stored: bool = False) -> Restocked | Closed:
        """Add units during the sale, once for each id. Raises ChangeMismatch if the id belongs to another change.

        In a gated pool, the order database must have `stored` the change (`restock_gated`); otherwise raises
        ChangeGated.
        """
        operation = self._settings.restock(units, restock_id)
        await self._require_stored("restock", stored=stored)
        return await run_async(returning(self._mark, perform(operation)), self.store)

    async def withdraw(self, units: int, *, withdraw_id: str, stored: bool = False) -> Restocked | TooFew:
        """Remove free units during the sale, all or none, once for each id. Raises ChangeMismatch.

        In a gated pool, the order database must have `stored` the change (`withdraw_gated`); otherwise raises
        ChangeGated.
        """
        operation = self._settings.withdraw(units, withdraw_id)
        await self._require_stored("withdraw", stored=stored)
        return await self.store.execute(operation)

    async def resize(self, segments: int, *, stored: bool = False) -> Resized:
        """Change the number of segments during the sale, without a pause; free units are split evenly.

        A holder of a removed segment can finish undisturbed. In a gated pool, the order database must have `stored`
        rows for the new segments (`resize_gated`); otherwise raises ChangeGated.
        """
        operation = self._settings.resize(segments)
        await self._require_stored("resize", stored=stored)
        return await self.store.execute(operation)

    async def close(self) -> PoolClosed:
        """Refuse all new orders. Reserved orders can still be confirmed, cancelled, or expire."""
        return await self.store.execute(op.ClosePool(self.sku))

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

    async def renew(self, grant: GrantState) -> None:
        """Extend a grant's lease and hold. Raises LeaseLost when it is too late."""
        operation = op.RenewGrant(
            self.sku, grant.order_id, grant.answer.holder_id, self._settings.ttl_ms, self._settings.hold_ms
        )
        grant._note_renewal(*(await run_async(renew_plan(operation), self.store)))  # noqa: SLF001  # two halves of one object
        grant.require()

    async def _granted(self, operation: op.Grant, timeout: float | None, *, fair: bool) -> AsyncGrant | Refusal:
        self._calls.enter_loop()
        answer, asked_at = await run_async(grant_marked(self._mark, operation, timeout, fair=fair), self.store)
        return AsyncGrant(self, answer, asked_at) if isinstance(answer, Granted) else answer

    def __repr__(self) -> str:
        """Show the sku and the store."""
        return f"AsyncPool({self.sku!r}, {self.store!r})"


class AsyncGrant(GrantState):
    """A granted order, for asyncio."""

    def __init__(self, pool: AsyncPool, granted: Granted, asked_at: float) -> None:
        """Create a grant of `pool`, requested at local time `asked_at`."""
        super().__init__(granted, pool._settings.ttl_ms, asked_at, pool.store.clock)  # noqa: SLF001  # made by the pool
        self.pool = pool
        """The pool, or the shard, that owns the segment and the units."""

    async def confirm(self) -> Settled:
        """Make the order final and free the segment."""
        settled = await self.pool.confirm(self.order_id, holder_id=self.answer.holder_id)
        self._is_settled = True
        return settled

    async def cancel(self) -> Settled | Superseded:
        """Give the units back and free the segment, unless another holder has taken over the order."""
        answer = await self.pool.cancel(self.order_id, holder_id=self.answer.holder_id)
        self._is_settled = True
        return answer

    async def renew(self) -> None:
        """Extend the lease and the hold. Raises LeaseLost when it is too late."""
        await self.pool.renew(self)

    async def __aenter__(self) -> Self:
        """Return the grant."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Confirm the order, or cancel it if the body raised, without hiding the body's error."""
        if self._is_settled:
            return
        if error is None:
            settled = await self.confirm()
            if settled.state != "confirmed":
                raise NotGranted(settled)
            return
        try:
            await self.cancel()
        except SegmentedError as failure:
            error.add_note(f"and the order could not be cancelled: {failure}")
