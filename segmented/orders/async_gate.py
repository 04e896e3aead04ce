"""The gate of a pool for asyncio: the steps of `Gate`, each in a thread, because database drivers block.

A step in a thread runs its operations on the pool's own event loop. A cancelled call ends once its step has ended, so
nothing is left half-done. Waiting for a segment happens on the loop: no thread waits for a lock.

A grant with a timeout gives up a step that the database delays: the step only asks, or repeats what the database has
decided, so it may end later in its thread, and the segment is free by then.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Final, ParamSpec, Self, TypeVar

from segmented.errors import DatabaseUnavailable, InvalidInput, PoolUnverified
from segmented.models.orders import decided_as
from segmented.orders import callers, sale, taking, within
from segmented.orders.decided import decided_before
from segmented.orders.gate import Gate
from segmented.orders.verifying import compare_once, is_compared, verify
from segmented.plans.tasks import to_the_end
from segmented.stock.sold import Sold

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from sqlalchemy import Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

    from segmented.errors import OrderMismatch, SegmentedError
    from segmented.models import (
        AlreadyOpen,
        Assigned,
        Cart,
        CartFate,
        Closed,
        Decided,
        Opened,
        Order,
        Refusal,
        Reserved,
        Resized,
        Restocked,
        Returned,
        Settled,
        Shard,
        Superseded,
        TooFew,
    )
    from segmented.orders.answers import ConfirmAnswer
    from segmented.orders.callers import Transaction
    from segmented.protocol import AssignPool, ChangeQuantity, ExtendHold, ReturnUnits
    from segmented.stock import AsyncGrant, AsyncPool, Pool
    from segmented.stock.opening import Opening

AnswerT = TypeVar("AnswerT")
P = ParamSpec("P")

THREADS: Final = 16
"""Maximum number of steps at once; the engine's pool of connections limits them further."""
STALL_SECONDS: Final = 3.0
"""Seconds, or the grant's timeout if that is longer, after which a grant gives up a step of the database. A grant has
two, so it ends within its timeout and twice this time.
"""


class AsyncGate:
    """The order database of gated pools, for asyncio: `AsyncPool(store, sku, gate=AsyncGate(url))`."""

    def __init__(self, database: Engine | AsyncEngine | str) -> None:
        """Use the database at a URL, or an engine made by `connect`, which takes options; `close` disposes of it.

        Of an engine of your own, sync or async, only the URL is used: the gate opens connections of its own there, with
        the deadlines and checks of `connect`. Raises InvalidInput for another release's tables.
        """
        self.gate = Gate(database)
        """The same gate for threads, for audits, the relay and the other functions of `segmented.orders`."""
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="segmented-gate")

    async def create(self) -> None:
        """Create missing tables. Safe to repeat, also concurrently."""
        await self._run(self.gate.create)

    async def open_pool(self, pool: AsyncPool, opening: Opening) -> Opened | AlreadyOpen:
        """Store the segments' rows, and open the pool."""
        return await self._run(self.gate.open_pool, pool.in_threads(), opening)

    async def verified(self, pool: AsyncPool, ask: Callable[[], Awaitable[AnswerT]]) -> AnswerT:
        """Ask the pool; compare it with the database first if its server is another one than before."""
        beside = pool.in_threads()
        if not is_compared(beside, self.gate):
            await self._run(compare_once, beside, self.gate)
        return await self._asked(beside, ask, None)

    async def _asked(self, beside: Pool, ask: Callable[[], Awaitable[AnswerT]], patience: float | None) -> AnswerT:
        try:
            return await ask()
        except PoolUnverified:
            await self._within(patience, verify, beside, self.gate)
        return await ask()

    async def grant_order(
        self,
        pool: AsyncPool,
        order: Order,
        ask: Callable[[], Awaitable[AsyncGrant | Refusal]],
        *,
        asked: int | None,
        timeout: float | None,
    ) -> AsyncGrant | Refusal:
        """Ask for a grant, unless the database has decided the order: then the answer is that decision.

        With the `timeout` of the grant, raises DatabaseUnavailable for a database that delays it (`STALL_SECONDS`).
        """
        beside, patience = pool.in_threads(), None if timeout is None else max(timeout, STALL_SECONDS)
        epoch, before = await self._within(patience, _asked_first, beside, self.gate, order, asked)
        if before is not None:
            return decided_as(before)
        answer = await self._asked(beside, ask, patience)
        if sale.is_due(answer) and await self._within(patience, sale.settle_due, beside, self.gate):
            answer = await self._asked(beside, ask, patience)
        return await self._within(patience, sale.undecided, beside, self.gate, order, answer, epoch)

    async def take_orders(
        self,
        pool: AsyncPool,
        orders: Sequence[Order],
        ask: Callable[[tuple[Order, ...]], Awaitable[list[AnswerT]]],
        *,
        partial: bool,
    ) -> list[AnswerT | Decided | OrderMismatch]:
        """Ask the pool to take orders, except for those that only the database knows: it has decided them."""
        beside = pool.in_threads()
        if taking.asks_first(beside, self.gate):
            epoch, decided = await self._run(taking.decided_first, beside, self.gate, orders, partial=partial)
        else:
            epoch, decided = 1, {}
        left = taking.left_over(orders, decided)
        said = await self._asked(beside, lambda: ask(left), None) if left else []
        due = taking.due_among(left, said)
        if len(due) > 0 and await self._run(sale.settle_due, beside, self.gate):
            said = taking.asked_again(said, await self._asked(beside, lambda: ask(due), None))
        answers = taking.merged(orders, decided, said)
        if not taking.is_of_another_epoch(answers, epoch):
            return answers
        return await self._run(taking.checked_again, beside, self.gate, orders, answers, epoch, partial=partial)

    async def decision_on(self, pool: AsyncPool, order_id: str) -> Settled | None:
        """Return the database's decision on an order, if it has one."""
        return await self._run(self.gate.decision_on, pool.in_threads(), order_id)

    async def confirm_grant(self, grant: AsyncGrant, order: Order) -> Settled:
        """Store a granted order under its fencing token, and confirm it in the pool. Raises GrantSuperseded."""
        return await self._end(sale.finish_granted, grant.pool.in_threads(), self.gate, order, grant.handed_on())

    async def confirm_order(self, pool: AsyncPool, order_id: str, holder_id: str | None) -> Settled:
        """Store a reserved order, and confirm it in the pool; with a holder id only that holder's segment is freed."""
        return await self._end(self.gate.confirm_order, pool.in_threads(), order_id, holder_id)

    async def confirm_within(
        self, pool: AsyncPool, order_id: str, transaction: object
    ) -> Sold[Awaitable[Settled | None]]:
        """Store a reserved order within the caller's transaction. Raises as `within.decide` does."""
        run_sync: Any = getattr(transaction, "run_sync", None)
        if run_sync is None:
            borrowed = callers.begun_beside(transaction, asyncio.get_running_loop())

            def run_sync(work: Callable[..., AnswerT], *args: Any, **named: Any) -> Awaitable[AnswerT]:  # noqa: ANN401  # of any work
                return self._run(work, borrowed, *args, **named)

        beside, gate, is_stored = pool.in_threads(), self.gate, False
        for _ in range(sale.REBUILDS_MAX):
            asked = await self._run(within.wanted, beside, gate, order_id)
            answer = await run_sync(_decided_within, gate, pool.sku, asked, is_stored=is_stored)
            outcome = await self._run(within.settle, beside, gate, asked, answer)
            if outcome is not None:
                tell = partial(self._run, within.told, beside, gate, asked)
                return Sold(order_id, outcome.state, outcome.quantity, tell, replay=outcome.replay)
            is_stored = isinstance(answer, within.Outcome)
        raise within.overtaken(pool.sku, order_id)

    async def confirm_orders(self, pool: AsyncPool, order_ids: Iterable[str]) -> list[Settled | SegmentedError | None]:
        """Do that with many orders, one after the other; returns an answer or a failure for each."""
        return await self._end(self.gate.confirm_orders, pool.in_threads(), order_ids)

    async def cancel_order(self, pool: AsyncPool, order_id: str, holder_id: str | None) -> Settled | Superseded:
        """Void an order, and give its units back; with a holder id only while that holder still has it."""
        return await self._end(self.gate.cancel_order, pool.in_threads(), order_id, holder_id)

    async def cancel_orders(self, pool: AsyncPool, order_ids: Iterable[str]) -> list[Settled | SegmentedError | None]:
        """Void many orders, one after the other; returns an answer or a failure for each."""
        return await self._end(self.gate.cancel_orders, pool.in_threads(), order_ids)

    async def sell_cart(self, pools: Sequence[AsyncPool], cart: Cart) -> CartFate:
        """Store every line of a reserved cart, or void every line if one of them cannot be sold any more."""
        return await self._run(self.gate.sell_cart, [pool.in_threads() for pool in pools], cart)

    async def void_cart(self, pools: Sequence[AsyncPool], cart: Cart) -> CartFate:
        """Void every line of a cart, unless it is sold."""
        return await self._run(self.gate.void_cart, [pool.in_threads() for pool in pools], cart)

    async def end_cart(
        self, pools: Sequence[AsyncPool], cart: Cart, *, is_sold: bool
    ) -> list[Settled | SegmentedError]:
        """Tell the pools of a cart that it is sold, or void; returns an answer or a failure for each line."""
        return await self._run(self.gate.end_cart, [pool.in_threads() for pool in pools], cart, is_sold=is_sold)

    async def extend_order(self, pool: AsyncPool, operation: ExtendHold) -> Reserved | Settled:
        """Lengthen an order's hold; if it has ended, void the order, and give its units back."""
        return await self._run(self.gate.extend_order, pool.in_threads(), operation)

    async def change_order(self, pool: AsyncPool, operation: ChangeQuantity) -> Reserved | Settled:
        """Give some of an order's units back, unless the database has decided it."""
        return await self._run(self.gate.change_order, pool.in_threads(), operation)

    async def return_order(self, pool: AsyncPool, operation: ReturnUnits) -> Returned | Settled | None:
        """Give units of a sold order back, in the database first; None if it is not sold yet."""
        return await self._run(self.gate.return_order, pool.in_threads(), operation)

    async def expire_orders(self, pool: AsyncPool, limit: int) -> tuple[Settled, ...]:
        """Give back the units of expired holds."""
        return await self._run(self.gate.expire_orders, pool.in_threads(), limit)

    async def settle_due(self, pool: AsyncPool) -> bool:
        """Settle expired holds for a caller that needs their units; return whether some have ended."""
        return await self._run(self.gate.settle_due, pool.in_threads())

    async def restock_pool(self, pool: AsyncPool, units: int, restock_id: str) -> Restocked | Closed:
        """Add units to the database and the pool."""
        return await self._run(self.gate.restock_pool, pool.in_threads(), units, restock_id)

    async def withdraw_pool(self, pool: AsyncPool, units: int, withdraw_id: str) -> Restocked | TooFew:
        """Remove free units from the pool and the database."""
        return await self._run(self.gate.withdraw_pool, pool.in_threads(), units, withdraw_id)

    async def move_units(self, source: Shard, target: Shard, *, sent: int, epoch: int) -> bool:
        """Move units from one shard's rows to another's, all that the source has `sent` there in its `epoch`, once."""
        return await self._run(self.gate.move_units, source, target, sent=sent, epoch=epoch)

    async def resize_pool(self, pool: AsyncPool, segments: int) -> Resized:
        """Change the number of segments."""
        return await self._run(self.gate.resize_pool, pool.in_threads(), segments)

    async def assign_pool(self, pool: AsyncPool, operation: AssignPool) -> Assigned:
        """Name the workers of the pool's submitted orders, and keep the names in the sale's row."""
        return await self._run(self.gate.assign_pool, pool.in_threads(), operation)

    async def close(self) -> None:
        """Close the connections, after the steps that are under way."""
        await to_the_end(partial(asyncio.to_thread, self._threads.shutdown))
        await to_the_end(partial(asyncio.to_thread, self.gate.close))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        """Show the database, without secrets."""
        return f"Async{self.gate!r}"

    async def _run(self, work: Callable[P, AnswerT], *args: P.args, **kwargs: P.kwargs) -> AnswerT:
        """Run a blocking step in a thread, to its end even if the caller is cancelled."""
        return await self._within(None, work, *args, **kwargs)

    async def _end(self, work: Callable[P, AnswerT], *args: P.args, **kwargs: P.kwargs) -> AnswerT:
        """Do the same with a step that ends orders: repeated while a server does not answer, if it is cancelled."""
        return await to_the_end(partial(self._step, None, partial(work, *args, **kwargs)), owed_to=self)

    async def _within(
        self, patience: float | None, work: Callable[P, AnswerT], *args: P.args, **kwargs: P.kwargs
    ) -> AnswerT:
        """Do the same, but stop waiting for the step after `patience` seconds; one that has not begun never runs."""
        return await to_the_end(partial(self._step, patience, partial(work, *args, **kwargs)))

    async def _step(self, patience: float | None, work: Callable[[], AnswerT]) -> AnswerT:
        try:
            future = asyncio.get_running_loop().run_in_executor(self._threads, work)
        except RuntimeError as error:
            message = f"{self!r} is closed"
            raise InvalidInput(message) from error
        try:
            await asyncio.wait([future], timeout=patience)
            if future.done():
                return future.result()
        finally:
            future.cancel()  # no effect on one that is done
        message = f"{self.gate.where} did not answer within {patience:g} s"
        raise DatabaseUnavailable(message)


def _decided_within(
    transaction: Transaction, gate: Gate, sku: str, asked: within.Wanted, *, is_stored: bool
) -> within.Outcome | ConfirmAnswer | OrderMismatch:
    return within.decide(callers.begun(transaction), gate, sku, asked, is_stored=is_stored)


def _asked_first(pool: Pool, gate: Gate, order: Order, asked: int | None) -> tuple[int, Settled | None]:
    """Return the pool's epoch, and the database's decision on an order that the pool does not know."""
    epoch = sale.gated(pool, gate).epoch()
    return epoch, decided_before(pool, gate, order, epoch, asked=asked)
