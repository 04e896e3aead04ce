"""The gate of a pool for asyncio: the steps of `Gate`, each in a thread, because database drivers block.

A step in a thread runs its operations on the pool's own event loop. A cancelled call ends once its step has ended, so
nothing is left half-done. Waiting for a segment happens on the loop: no thread waits for a lock.

A grant with a timeout gives up a step that the database delays: the step only asks, or repeats what the database has
decided, so it may end later in its thread, and the segment is free by then.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Final, ParamSpec, Self, TypeVar

from segmented.errors import DatabaseUnavailable, InvalidInput, PoolUnverified
from segmented.models.orders import Sold, decided_as
from segmented.orders import sale, within
from segmented.orders.forgetting import decided_before
from segmented.orders.gate import Gate
from segmented.orders.verifying import compare_once, is_compared, verify
from segmented.plans.tasks import to_the_end

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence

    from sqlalchemy import Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

    from segmented.errors import OrderMismatch
    from segmented.models import Decided, Order, Refusal, Settled, Shard
    from segmented.orders.answers import ConfirmAnswer
    from segmented.orders.within import Transaction
    from segmented.stock import AsyncGrant, AsyncPool, Pool

AnswerT = TypeVar("AnswerT")
P = ParamSpec("P")

THREADS: Final = 16
"""Maximum number of steps at once; the engine's pool of connections limits them further."""
STALL_SECONDS: Final = 3.0
"""Seconds, or the grant's timeout if that is longer, after which a grant gives up a step of the database. A grant has
two, so it ends within its timeout and twice this time.
"""


def _in_thread(step: Callable[..., AnswerT], *, ends: bool = False) -> Callable[..., Coroutine[Any, Any, AnswerT]]:
    """Return a step of `Gate` for asyncio: in a thread, on the pool or the pools of a cart beside the event loop."""

    @wraps(step)
    async def run(self: AsyncGate, pool: AsyncPool | list[AsyncPool], *args: object, **kwargs: object) -> AnswerT:
        beside = [one.in_threads() for one in pool] if isinstance(pool, list) else pool.in_threads()
        work = partial(getattr(self.gate, step.__name__), beside, *args, **kwargs)
        return await (self._end(work) if ends else self._run(work))

    return run


class AsyncGate:
    """The order database of gated pools, for asyncio: `AsyncPool(store, sku, gate=AsyncGate(url))`."""

    open_pool = _in_thread(Gate.open_pool)
    decision_on = _in_thread(Gate.decision_on)
    confirm_order = _in_thread(Gate.confirm_order, ends=True)
    confirm_orders = _in_thread(Gate.confirm_orders, ends=True)
    cancel_order = _in_thread(Gate.cancel_order, ends=True)
    cancel_orders = _in_thread(Gate.cancel_orders, ends=True)
    sell_cart = _in_thread(Gate.sell_cart)
    void_cart = _in_thread(Gate.void_cart)
    end_cart = _in_thread(Gate.end_cart)
    extend_order = _in_thread(Gate.extend_order)
    change_order = _in_thread(Gate.change_order)
    return_order = _in_thread(Gate.return_order)
    expire_orders = _in_thread(Gate.expire_orders)
    settle_due = _in_thread(Gate.settle_due)
    restock_pool = _in_thread(Gate.restock_pool)
    withdraw_pool = _in_thread(Gate.withdraw_pool)
    resize_pool = _in_thread(Gate.resize_pool)
    assign_pool = _in_thread(Gate.assign_pool)

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
        if sale.asks_first(beside, self.gate):
            epoch, decided = await self._run(sale.decided_first, beside, self.gate, orders, partial=partial)
        else:
            epoch, decided = 1, {}
        left = sale.left_over(orders, decided)
        said = await self._asked(beside, lambda: ask(left), None) if left else []
        due = sale.due_among(left, said)
        if len(due) > 0 and await self._run(sale.settle_due, beside, self.gate):
            said = sale.asked_again(said, await self._asked(beside, lambda: ask(due), None))
        answers = sale.merged(orders, decided, said)
        if not sale.is_of_another_epoch(answers, epoch):
            return answers
        return await self._run(sale.checked_again, beside, self.gate, orders, answers, epoch, partial=partial)

    async def confirm_grant(self, grant: AsyncGrant, order: Order) -> Settled:
        """Store a granted order under its fencing token, and confirm it in the pool. Raises GrantSuperseded."""
        return await self._end(sale.finish_granted, grant.pool.in_threads(), self.gate, order, grant.handed_on())

    async def confirm_within(
        self, pool: AsyncPool, order_id: str, transaction: object
    ) -> Sold[Awaitable[Settled | None]]:
        """Store a reserved order within the caller's transaction. Raises as `within.decide` does."""
        run_sync: Any = getattr(transaction, "run_sync", None)
        if run_sync is None:
            borrowed = within.begun_beside(transaction, asyncio.get_running_loop())

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

    async def move_units(self, source: Shard, target: Shard, *, sent: int, epoch: int) -> bool:
        """Move units from one shard's rows to another's, all that the source has `sent` there in its `epoch`, once."""
        return await self._run(self.gate.move_units, source, target, sent=sent, epoch=epoch)

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
            raise InvalidInput(f"{self!r} is closed") from error
        try:
            await asyncio.wait([future], timeout=patience)
            if future.done():
                return future.result()
        finally:
            future.cancel()  # no effect on one that is done
        raise DatabaseUnavailable(f"{self.gate.where} did not answer within {patience:g} s")


def _decided_within(
    transaction: Transaction, gate: Gate, sku: str, asked: within.Wanted, *, is_stored: bool
) -> within.Outcome | ConfirmAnswer | OrderMismatch:
    return within.decide(within.begun(transaction), gate, sku, asked, is_stored=is_stored)


def _asked_first(pool: Pool, gate: Gate, order: Order, asked: int | None) -> tuple[int, Settled | None]:
    """Return the pool's epoch, and the database's decision on an order that the pool does not know."""
    epoch = sale.gated(pool, gate).epoch()
    return epoch, decided_before(pool, gate, order, epoch, asked=asked)
