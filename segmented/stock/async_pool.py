"""The pool for asyncio; it runs the same plans as `pool`."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from functools import partial as bind
from typing import TYPE_CHECKING, Self, TypeVar

from segmented import protocol as op
from segmented.errors import (
    AlreadySettled,
    GrantLost,
    GrantSuperseded,
    InvalidInput,
    PoolGated,
    PoolNotGated,
    SegmentedError,
)
from segmented.locks.durations import DEFAULT_TIMEOUT, checked_timeout
from segmented.locks.hints import POOL_HINTS, hinted_options
from segmented.locks.keeper import async_keeper, async_release_later
from segmented.locks.lease_state import tend_plan
from segmented.models import Granted, Order, Settled
from segmented.plans import perform, run_async
from segmented.plans.loop_store import LoopStore
from segmented.plans.store_kinds import checked_gate
from segmented.plans.tasks import to_the_end
from segmented.stock.as_asked import all_as_asked, as_cancelled, as_confirmed
from segmented.stock.async_pool_changes import AsyncPoolChanges
from segmented.stock.coalescing import Coalescing
from segmented.stock.grant import Granting, GrantState, KeepOn, unanswered_claim
from segmented.stock.order_handle import AsyncOrderHandle
from segmented.stock.outbox import UNASKED, Noted, Outbox, submit_plan, to_publish
from segmented.stock.plans import (
    due_plan,
    expire_plan,
    leave_plan,
    renew_plan,
    resolve_plan,
    settle_many_plan,
    unheard_plan,
)
from segmented.stock.pool import Pool
from segmented.stock.settings import DEFAULT_HOLD, DEFAULT_TTL, RESOLVED, as_order, checked_flag, checked_verdicts
from segmented.stock.sold_out_mark import grant_marked, reserve_many_marked, returning

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from types import TracebackType

    from segmented.clock import Duration
    from segmented.models import OrderRecord, Refusal, Taken
    from segmented.models.submitted import Accepted
    from segmented.plans import Plan
    from segmented.plans.drivers import AsyncStore
    from segmented.stock.plans import Verdict
    from segmented.stock.pool_gate import AsyncPoolGate

AnswerT = TypeVar("AnswerT")


@hinted_options(POOL_HINTS, waits="pool.grant")
class AsyncPool(AsyncPoolChanges):
    """The stock of one sku, split over segments with one lock each. The asyncio twin of `Pool`."""

    def __init__(
        self,
        store: AsyncStore,
        sku: str,
        *,
        ttl: Duration = DEFAULT_TTL,
        hold: Duration = DEFAULT_HOLD,
        sold_out_mark: Duration = 0.0,
        outbox: Outbox | None = None,
        gate: AsyncPoolGate[AsyncPool, AsyncGrant] | None = None,
    ) -> None:
        """Sell `sku` from `store`. A segment's lease lives `ttl` seconds, units stay reserved for `hold` seconds.

        `sold_out_mark`, `outbox` and `gate` are as for `Pool`; the gate is a `segmented.orders.AsyncGate`. Concurrent
        calls of `reserve`, and of `confirm` and `cancel` without a holder id, are sent to the server in batches; an
        idle pool sends a call at once.

        A pool serves one event loop. Another loop can use it after the first is closed, if the store allows that;
        before, it gets InvalidInput.
        """
        super().__init__(store, sku, ttl=ttl, hold=hold, sold_out_mark=sold_out_mark)
        self._calls = Coalescing(store, sku, self._settings.hold_ms, self._mark)
        self.outbox = outbox or UNASKED
        self._noted = Noted(store.clock)
        self.gate = gate if gate is None else checked_gate(gate, "AsyncPool", is_async=True)
        self._beside: tuple[asyncio.AbstractEventLoop, Pool] | None = None
        if self.gate is not None:
            self._decision = bind(self.gate.decision_on, self)

    def in_threads(self) -> Pool:
        """Return this pool, without its gate, for threads beside the running event loop. They must not wait for it."""
        loop = asyncio.get_running_loop()
        if self._beside is None or self._beside[0] is not loop:
            self._beside = loop, Pool(LoopStore(self.store, loop), self.sku)
            self._beside[1]._settings, self._beside[1]._mark = self._settings, self._mark  # noqa: SLF001  # the same pool
        return self._beside[1]

    def grant(  # noqa: PLR0913  # options of one call, each by name
        self,
        order: Order | str,
        *,
        quantity: int = 1,
        customer_id: str | None = None,
        timeout: Duration | None = DEFAULT_TIMEOUT,
        holder_id: str | None = None,
        keep_refusal: bool = False,
        partial: bool = False,
        fair: bool = False,
        keep_on: KeepOn = (),
    ) -> Granting[AsyncGrant]:
        """Return an awaitable for the answer; or use `async with pool.grant(order) as grant`. See `Pool.grant`."""
        operation = self._settings.grant(
            order,
            quantity,
            customer_id,
            holder_id=holder_id,
            keep_refusal=keep_refusal,
            partial=partial,
            fair=fair,
            keep_on=keep_on,
        )
        seconds = checked_timeout(timeout)
        plan = bind(grant_marked, self._mark, operation, seconds, fair=fair)
        return Granting(lambda: self._granted(operation, plan, keep_on, timeout=seconds))

    async def reserve(
        self, order: Order | str, *, quantity: int = 1, customer_id: str | None = None, partial: bool = False
    ) -> Taken:
        """Reserve units for the pool's hold time, without a lock; with `partial`, fewer units if fewer are left.

        If the call is cancelled, the pool tries for a short time in the background to cancel its order; the order id
        can be used again then. The order is kept if another call for it is under way in this pool or was granted it.
        The pool does not see a repeat that another process makes in that short time.
        """
        found = as_order(order, quantity, customer_id)
        checked_flag(partial, "partial")
        if self.gate is None:
            return await self._calls.reserve(found, partial=partial)

        async def ask(_: tuple[Order, ...]) -> list[Taken]:
            return [await self._calls.reserve(found, partial=partial)]

        (answer,) = await self._taken((found,), ask, partial=partial)
        if isinstance(answer, SegmentedError):
            raise answer
        return answer

    async def reserve_many(self, orders: Iterable[Order], *, partial: bool = False) -> list[Taken | SegmentedError]:
        """Reserve for many orders, up to 1,000 in a round trip, each as if alone and in this order.

        Returns one answer for each order, in their order; a failure that `reserve` would have raised takes its answer's
        place. An id that occurs twice is a repeat. If a later round trip fails, the earlier ones stand: call again with
        the same ids.
        """
        operation = self._settings.reserve_many(orders, partial=partial)

        async def ask(left: tuple[Order, ...]) -> list[Taken | SegmentedError]:
            return await run_async(reserve_many_marked(self._mark, replace(operation, orders=left)), self.store)

        return [*await self._taken(operation.orders, ask, partial=partial)]

    async def submit(
        self, order: Order | str, *, quantity: int = 1, customer_id: str | None = None
    ) -> AsyncOrderHandle:
        """Accept an order and queue it for a worker: one round trip, then a message in the background."""
        (answer,) = await self.submit_many((as_order(order, quantity, customer_id),))
        if isinstance(answer, SegmentedError):
            raise answer
        return answer

    async def submit_many(self, orders: Iterable[Order]) -> list[AsyncOrderHandle | SegmentedError]:
        """Submit many orders, up to 1,000 in a round trip; returns a handle, or the failure of `submit`, for each."""
        operation = self._settings.submit_many(orders, self.outbox)

        async def ask(left: tuple[Order, ...]) -> list[Accepted | SegmentedError]:
            plan = submit_plan(self._mark, self.outbox, replace(operation, orders=left), noted=self._noted)
            return await run_async(plan, self.store)

        answers = await self._taken(operation.orders, ask, partial=False)
        if self.outbox.publisher is not None:
            for segment, waiting in to_publish(answers).items():
                self.outbox.publisher.put(self.sku, waiting, segment)
        pairs = zip(operation.orders, answers, strict=True)
        return [
            answer
            if isinstance(answer, SegmentedError)
            else AsyncOrderHandle(self.store, self.sku, order.order_id, answer, decision=self._decision)
            for order, answer in pairs
        ]

    async def confirm(self, order_id: str, *, holder_id: str | None = None) -> Settled:
        """Make the order final; a repeat changes nothing, and its answer has `replay=True`. See `Pool.confirm`."""
        if self.gate is not None:
            return as_confirmed(await self.gate.confirm_order(self, order_id, holder_id))
        operation = self._settings.confirm(order_id, holder_id=holder_id)
        if holder_id is not None:
            return as_confirmed(await run_async(perform(operation), self.store))
        return as_confirmed(await self._calls.confirm(order_id))

    async def cancel(self, order_id: str, *, holder_id: str | None = None) -> Settled:
        """Give the units back. See `Pool.cancel`."""
        if self.gate is not None:
            return as_cancelled(await self.gate.cancel_order(self, order_id, holder_id))
        operation = self._settings.cancel(order_id, holder_id=holder_id)
        if holder_id is not None:
            return as_cancelled(await run_async(returning(self._mark, perform(operation)), self.store))
        return as_cancelled(await self._calls.cancel(order_id))  # this also ends the mark

    async def confirm_many(self, order_ids: Iterable[str]) -> list[Settled | SegmentedError]:
        """Confirm many orders, up to 1,000 in a round trip; returns one answer each, or the failure of `confirm`."""
        if self.gate is not None:
            return all_as_asked(as_confirmed, await self.gate.confirm_orders(self, order_ids))
        operation = self._settings.settle_many("confirmed", order_ids)
        return all_as_asked(as_confirmed, await run_async(settle_many_plan(operation), self.store))

    async def cancel_many(self, order_ids: Iterable[str]) -> list[Settled | SegmentedError]:
        """Cancel many orders, up to 1,000 in a round trip; returns one answer each, or the failure of `cancel`."""
        if self.gate is not None:
            return all_as_asked(as_cancelled, await self.gate.cancel_orders(self, order_ids))
        operation = self._settings.settle_many("cancelled", order_ids)
        plan = returning(self._mark, settle_many_plan(operation))
        return all_as_asked(as_cancelled, await run_async(plan, self.store))

    async def expire(
        self, *, limit: int = 1_000, resolver: Callable[[OrderRecord], Awaitable[Verdict]] | None = None
    ) -> tuple[Settled, ...]:
        """Give back the units of expired holds, up to `limit` orders, 100 in a step. Returns what this call decided.

        A gated pool expires nothing on its own (raises PoolGated): ask its order database (`expire_voided`). If another
        authority decides its orders, pass a `resolver`, which gets each expired order, at most 5,000, and returns
        "confirm", "release" or "wait".
        """
        limit = self._settings.expire_limit(limit)
        if self.gate is not None:
            if resolver is not None:
                raise InvalidInput(RESOLVED)
            return await self.gate.expire_orders(self, limit)
        if resolver is None:
            return await run_async(returning(self._mark, expire_plan(self.sku, limit)), self.store)
        state = await self.state()
        if not state.gated:
            raise PoolNotGated(self.sku)
        if state.sale_id:  # an order database decides, and no resolver
            raise PoolGated(self.sku, None)
        records = await run_async(due_plan(self.sku, limit), self.store)
        verdicts = {record.order_id: await resolver(record) for record in records}
        return await run_async(returning(self._mark, resolve_plan(self.sku, checked_verdicts(verdicts))), self.store)

    async def renew(self, grant: GrantState) -> None:
        """Extend a grant's lease and hold. Raises LeaseLost when it is too late."""
        operation = op.RenewGrant(
            self.sku, grant.order_id, grant.answer.holder_id, self._settings.ttl_ms, self._settings.hold_ms
        )
        renewed = await self._verified(lambda: run_async(renew_plan(operation), self.store))
        grant._note_renewal(*renewed)  # noqa: SLF001  # two halves of one object
        grant.require()

    async def _granted(
        self,
        operation: op.Grant,
        plan: Callable[[], Plan[tuple[Granted | Refusal, float]]],
        keep_on: KeepOn,
        *,
        timeout: float | None,
    ) -> AsyncGrant | Refusal:
        self._calls.enter_loop()

        made: list[AsyncGrant] = []

        async def ask() -> AsyncGrant | Refusal:
            answer, asked_at = await run_async(plan(), self.store)
            if not isinstance(answer, Granted):
                return answer
            made.append(AsyncGrant(self, answer, asked_at, self._settings.ttl_ms, self._settings.hold_ms, keep_on))
            return made[-1]

        order = operation.order
        try:
            if self.gate is None:
                return await ask()
            asked = order.quantity if operation.partial else None
            answer = await self.gate.grant_order(self, order, ask, asked=asked, timeout=timeout)
        except BaseException as error:
            operation = replace(operation, sku=self.sku)  # of a pool in shards, this is one of them
            if claim := unanswered_claim(operation, error):
                async_release_later(claim, self.store)
                raise
            if self.gate is not None:
                replays = [grant.handed_on().replay for grant in made]
                await run_async(unheard_plan(operation, error, replays, is_gated=True), self.store)
            raise
        return answer.decided_by(self.gate, order) if isinstance(answer, AsyncGrant) else answer

    async def _verified(self, ask: Callable[[], Awaitable[AnswerT]]) -> AnswerT:
        return await (ask() if self.gate is None else self.gate.verified(self, ask))

    def __repr__(self) -> str:
        """Show the sku and the store."""
        gate = "" if self.gate is None else f", gate={self.gate!r}"
        return f"AsyncPool({self.sku!r}, {self.store!r}{gate})"


class AsyncGrant(GrantState):
    """A granted order, for asyncio."""

    pool: AsyncPool
    _decided_by: tuple[AsyncPoolGate[AsyncPool, AsyncGrant], Order] | None

    def decided_by(self, gate: AsyncPoolGate[AsyncPool, AsyncGrant], order: Order) -> Self:
        """Note that the gate's order database decides the order."""
        self._decided_by = gate, order
        return self

    async def confirm(self) -> Settled:
        """Make the order final and free the segment. See `Grant.confirm`."""
        try:
            settled = await self._ended(is_sold=True)
        except BaseException as failure:
            await self._end_later(failure, is_sold=True)
            raise
        self._is_settled = True
        return settled

    async def cancel(self) -> Settled:
        """Give the units back and free the segment. See `Grant.cancel`."""
        try:
            settled = await self._ended(is_sold=False)
        except BaseException as failure:
            await self._end_later(failure, is_sold=False)
            raise
        self._is_settled = True
        return settled

    async def _ended(self, *, is_sold: bool) -> Settled:
        self._withdraw()
        if self._decided_by is None:
            end = self.pool.confirm if is_sold else self.pool.cancel
            return await end(self.order_id, holder_id=self.answer.holder_id)
        gate, order = self._decided_by
        if is_sold:
            return as_confirmed(await gate.confirm_grant(self, order))
        return as_cancelled(await gate.cancel_order(self.pool, self.order_id, self.holder_id))

    async def _end_later(self, failure: BaseException, *, is_sold: bool | None, is_over: bool = False) -> None:
        """End what `failure` has kept from ending: at once after a cancellation, else by the keeper.

        The event loop may be about to end, and then no task of it would repeat anything. A gate's steps run in a thread
        to their end; its segment is only freed if the grant `is_over`, since the holder may repeat them.
        """
        if isinstance(failure, AlreadySettled | GrantSuperseded):
            self._is_settled = True
        if self._decided_by is not None:
            if not is_over:
                return
            is_sold = None
        owed = self._owe(failure, self._ending(is_sold=is_sold))
        if owed is None:
            return
        try:
            if isinstance(failure, asyncio.CancelledError):
                await to_the_end(bind(run_async, tend_plan([owed]), self.pool.store))
        finally:
            if not owed.is_over:
                async_keeper(self.pool.store).watch(owed, self.pool.store)

    async def renew(self) -> None:
        """Extend the lease and the hold. Raises LeaseLost when it is too late."""
        await self.pool.renew(self)

    async def __aenter__(self) -> Self:
        """Return the grant. Raises PoolGated for a gated pool without its gate, InvalidInput if the grant has ended."""
        self._begin_body()
        if self._decided_by is None:
            is_gated = True
            try:
                is_gated = await self.pool.is_gated()
            finally:
                if is_gated:
                    await self._abandon()
            if is_gated:
                raise PoolGated(self.pool.sku, self.order_id, "store")
        return self

    async def _abandon(self) -> None:
        """Free the segment; units that no order database decides on go back."""
        with suppress(SegmentedError):
            await self.pool.cancel(self.order_id, holder_id=self.holder_id)
        await run_async(leave_plan(self.pool.sku, self.order_id, self.holder_id), self.pool.store)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Confirm the order, or cancel it if the body raised, without hiding the body's error.

        After an error in `keep_on` only the segment is freed. Raises GrantLost if the order ended while the body ran.
        """
        try:
            if self._is_settled:
                return
            is_sold = self._is_sold(error)
            if is_sold is None:
                await run_async(leave_plan(self.pool.sku, self.order_id, self.holder_id), self.pool.store)
                self._is_settled = True
            elif is_sold:
                await self.confirm()
            else:
                await self.cancel()
        except SegmentedError as failure:
            await self._free()
            if error is None and isinstance(failure, AlreadySettled):
                raise GrantLost(self.order_id, failure.state) from failure
            if error is None:
                raise
            error.add_note(f"and the order could not be cancelled: {failure}")
        except BaseException as failure:  # of a gate's database, or of a signal handler at any point
            await self._end_later(failure, is_sold=self._is_sold(error), is_over=True)
            raise

    async def _free(self) -> None:
        """Free the segment of an order that its database has still to decide: a repeat continues with the units."""
        if self._decided_by is not None:
            await run_async(leave_plan(self.pool.sku, self.order_id, self.holder_id), self.pool.store)
