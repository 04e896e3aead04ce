"""Opening a pool, and changes of its stock and segments, for asyncio; with a gate, its order database has them too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from segmented import protocol as op
from segmented.errors import ChangeGated
from segmented.models import Assignment
from segmented.plans import perform, run_async
from segmented.stock.async_pool_books import AsyncPoolBooks
from segmented.stock.opening import open_pool_plan, opened_as_asked
from segmented.stock.settings import checked_flag
from segmented.stock.sold_out_mark import returning

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from segmented.errors import OrderMismatch
    from segmented.models import (
        AlreadyOpen,
        Assigned,
        Closed,
        Decided,
        Opened,
        Order,
        PoolClosed,
        Resized,
        Restocked,
        TooFew,
    )
    from segmented.stock.pool_gate import AsyncPoolGate

AnswerT = TypeVar("AnswerT")


class AsyncPoolChanges(AsyncPoolBooks):
    """The opening of a pool, and the changes of its stock and segments; the asyncio twin of `PoolChanges`."""

    gate: AsyncPoolGate[Any, Any] | None = None
    """The gate, whose order database decides the pool's orders; None: the pool decides them itself."""

    async def _taken(
        self,
        orders: tuple[Order, ...],
        ask: Callable[[tuple[Order, ...]], Awaitable[list[AnswerT]]],
        *,
        partial: bool,
    ) -> list[AnswerT | Decided | OrderMismatch]:
        """Take orders; with a gate, those that only its database knows get its decision."""
        if self.gate is None:
            return [*await ask(orders)]
        return await self.gate.take_orders(self, orders, ask, partial=partial)

    async def _require_stored(self, change: str, *, stored: bool) -> None:
        if not checked_flag(stored, "stored") and (await self.state()).gated:
            raise ChangeGated(self.sku, change)

    async def open(
        self,
        *,
        stock: int,
        segments: int,
        gated: bool = False,
        epoch: int = 1,
        limit_per_customer: int | None = None,
        profile: str | None = None,
        queue: str | None = None,
        step: str | None = None,
    ) -> Opened | AlreadyOpen:
        """Open the pool; opening it again with the same numbers changes nothing and returns the existing pool.

        Arguments and errors are those of `Pool.open`.
        """
        is_gated = gated if self.gate is None else True
        operation = self._settings.open(
            stock,
            segments,
            gated=is_gated,
            epoch=epoch,
            limit_per_customer=limit_per_customer,
            profile=profile,
            queue=queue,
            step=step,
        )
        if self.gate is None:
            answer = await run_async(open_pool_plan(operation), self.store)
        else:
            answer = await self.gate.open_pool(
                self,
                stock=stock,
                segments=segments,
                epoch=epoch,
                limit_per_customer=limit_per_customer,
                profile=profile,
                queue=queue,
                step=step,
            )
        return opened_as_asked(answer, operation, profile=profile)

    async def restock(self, units: int, *, restock_id: str, stored: bool = False) -> Restocked | Closed:
        """Add units during the sale, once for each id. Raises ChangeMismatch if the id belongs to another change.

        In a gated pool, the order database must have `stored` the change (`restock_gated`); otherwise raises
        ChangeGated.
        """
        operation = self._settings.restock(units, restock_id)
        if self.gate is not None:
            return await self.gate.restock_pool(self, units, restock_id)
        await self._require_stored("restock", stored=stored)
        return await run_async(returning(self._mark, perform(operation)), self.store)

    async def withdraw(self, units: int, *, withdraw_id: str, stored: bool = False) -> Restocked | TooFew:
        """Remove free units during the sale, all or none, once for each id. Raises ChangeMismatch.

        In a gated pool, the order database must have `stored` the change (`withdraw_gated`); otherwise raises
        ChangeGated.
        """
        operation = self._settings.withdraw(units, withdraw_id)
        if self.gate is not None:
            return await self.gate.withdraw_pool(self, units, withdraw_id)
        await self._require_stored("withdraw", stored=stored)
        return await self.store.execute(operation)

    async def resize(self, segments: int, *, stored: bool = False) -> Resized:
        """Change the number of segments during the sale, without a pause; free units are split evenly.

        A holder of a removed segment can finish undisturbed. In a gated pool, the order database must have `stored`
        rows for the new segments (`resize_gated`); otherwise raises ChangeGated.
        """
        operation = self._settings.resize(segments)
        if self.gate is not None:
            return await self.gate.resize_pool(self, segments)
        await self._require_stored("resize", stored=stored)
        return await self.store.execute(operation)

    async def close(self) -> PoolClosed:
        """Refuse all new orders. Reserved orders can still be confirmed, cancelled, or expire.

        A gated pool can be closed without its gate, also while its order database is down.
        """
        operation = op.ClosePool(self.sku)
        if self.gate is not None:
            return await self.gate.verified(self, lambda: self.store.execute(operation))
        return await self.store.execute(operation)

    async def assign(self, *, queue: str | None, step: str | None) -> Assigned:
        """Name the queue and the step of the workers that take submitted orders from now on; None: any.

        Orders that a worker has begun before are finished by it. A gated pool can be assigned without its gate.
        """
        operation = op.AssignPool(self.sku, Assignment(queue, step))
        if self.gate is not None:
            return await self.gate.assign_pool(self, operation)
        return await self.store.execute(operation)
