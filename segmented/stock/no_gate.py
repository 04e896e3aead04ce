"""Decisions about a pool's orders: by the pool itself, or by the gate of an order database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeAlias, TypeVar

from segmented import protocol as op
from segmented.errors import PoolNotGated
from segmented.plans import async_run_owed, perform, run_async, run_owed, run_sync
from segmented.stock.coalescing import Coalescing
from segmented.stock.plans import expire_plan, extend_plan, settle_many_plan
from segmented.stock.settings import open_pool_plan
from segmented.stock.sold_out_mark import reserve_marked, returning

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from segmented.errors import OrderMismatch, SegmentedError
    from segmented.models import (
        AlreadyOpen,
        Assigned,
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
        Superseded,
        Taken,
        TooFew,
    )
    from segmented.plans.drivers import AsyncStore, Store
    from segmented.stock.outbox import Noted
    from segmented.stock.settings import Opening, PoolSettings
    from segmented.stock.sold_out_mark import SoldOutMark

AnswerT = TypeVar("AnswerT")
GrantT = TypeVar("GrantT")

Ends: TypeAlias = "list[Settled | SegmentedError | None]"
"""An answer or a failure for each order, in their order."""


class AsyncPoolGate(Protocol):
    """A gate, such as `segmented.orders.AsyncGate`: it answers the calls of `AsyncNoGate` from an order database."""

    async def decision_on(self, pool: Any, order_id: str) -> Settled | None:  # noqa: ANN401  # of its own kind of pools
        """Return the database's decision on an order, if it has one."""

    async def confirm_grant(self, grant: Any, order: Order) -> Settled:  # noqa: ANN401  # as above
        """Store a granted order in the database, and confirm it in the pool."""

    async def cancel_order(self, pool: Any, order_id: str, holder_id: str | None) -> Settled | Superseded:  # noqa: ANN401  # as above
        """Void an order in the database, and give its units back."""


class AsyncNoGate:
    """Answers the calls of a pool that has no gate, each by its operation alone.

    They get the pool, as a gate does, and do not need it.
    """

    def __init__(self, store: AsyncStore, settings: PoolSettings, mark: SoldOutMark, noted: Noted) -> None:
        """Decide the orders of one pool, with its settings, its sold-out mark and its registration with workers."""
        self._store = store
        self._settings = settings
        self._mark = mark
        self._calls = Coalescing(store, settings.sku, mark, noted)  # asyncio only
        # threads: self._noted = noted

    def enter_loop(self) -> None:  # asyncio only
        """Note the running event loop. Raises InvalidInput if the pool serves another one."""
        self._calls.enter_loop()

    def reserve(self, order: Order, hold_ms: int, *, partial: bool) -> Awaitable[Taken]:
        """Reserve units; with asyncio, in one batch with concurrent calls."""
        return self._calls.reserve(order, hold_ms, partial=partial)  # asyncio only
        # threads: if not self._noted.covers(hold_ms):
        # threads:     run_sync(self._noted.hold_plan(self._settings.sku, hold_ms), self._store)
        # threads: operation = op.Reserve(self._settings.sku, order, hold_ms, partial)
        # threads: return run_sync(reserve_marked(self._mark, operation), self._store)

    async def open_pool(self, _: object, opening: Opening) -> Opened | AlreadyOpen:
        """Open the pool."""
        return await run_async(open_pool_plan(self._settings.open(opening)), self._store)

    async def verified(self, _: object, ask: Callable[[], Awaitable[AnswerT]]) -> AnswerT:
        """Ask the pool: there is no database to compare with."""
        return await ask()

    async def grant_order(
        self,
        _: object,
        order: Order,
        ask: Callable[[], Awaitable[GrantT | Refusal]],
        *,
        asked: int | None,
        timeout: float | None,
    ) -> GrantT | Refusal:
        """Ask for a grant; it waits up to its own timeout."""
        del order, asked, timeout
        return await ask()

    async def take_orders(
        self,
        _: object,
        orders: tuple[Order, ...],
        ask: Callable[[tuple[Order, ...]], Awaitable[list[AnswerT]]],
        *,
        partial: bool,
    ) -> list[AnswerT | Decided | OrderMismatch]:
        """Ask the pool to take all of the orders."""
        del partial
        return [*await ask(orders)]

    async def confirm_order(self, _: object, order_id: str, holder_id: str | None) -> Settled:
        """Confirm an order; with a holder id only that holder's segment is freed."""
        operation = self._settings.confirm(order_id, holder_id=holder_id)
        if holder_id is None:  # asyncio only
            return await self._calls.confirm(order_id)
        return await run_async(perform(operation), self._store)

    async def confirm_within(self, _: object, order_id: str, transaction: object) -> NoReturn:
        """Raise PoolNotGated: without an order database there is nothing to commit together."""
        del order_id, transaction
        raise PoolNotGated(self._settings.sku)

    async def confirm_orders(self, _: object, order_ids: Iterable[str]) -> Ends:
        """Confirm many orders, up to 1,000 in a round trip."""
        operation = self._settings.settle_many("confirmed", order_ids)
        return await async_run_owed(lambda: settle_many_plan(operation), self._store)

    async def cancel_order(self, _: object, order_id: str, holder_id: str | None) -> Settled | Superseded:
        """Give an order's units back; with a holder id only while that holder still has it."""
        operation = self._settings.cancel(order_id, holder_id=holder_id)
        if holder_id is None:  # asyncio only
            return await self._calls.cancel(order_id)  # this also ends the mark
        return await run_async(returning(self._mark, perform(operation)), self._store)

    async def cancel_orders(self, _: object, order_ids: Iterable[str]) -> Ends:
        """Give back the units of many orders, up to 1,000 in a round trip."""
        operation = self._settings.settle_many("cancelled", order_ids)
        return await async_run_owed(lambda: returning(self._mark, settle_many_plan(operation)), self._store)

    async def extend_order(self, _: object, operation: op.ExtendHold) -> Reserved | Settled:
        """Lengthen an order's hold."""
        return await run_async(returning(self._mark, extend_plan(operation)), self._store)

    async def change_order(self, _: object, operation: op.ChangeQuantity) -> Reserved | Settled:
        """Give some of an order's units back."""
        return await run_async(returning(self._mark, perform(operation)), self._store)

    async def return_order(self, _: object, operation: op.ReturnUnits) -> Returned | Settled | None:
        """Give units of a sold order back."""
        return await run_async(returning(self._mark, perform(operation)), self._store)

    async def expire_orders(self, _: object, limit: int) -> tuple[Settled, ...]:
        """Give back the units of expired holds."""
        return await run_async(returning(self._mark, expire_plan(self._settings.sku, limit)), self._store)

    async def restock_pool(self, _: object, units: int, restock_id: str) -> Restocked | Closed:
        """Add units."""
        operation = self._settings.restock(units, restock_id)
        return await run_async(returning(self._mark, perform(operation)), self._store)

    async def withdraw_pool(self, _: object, units: int, withdraw_id: str) -> Restocked | TooFew:
        """Remove free units."""
        return await self._store.execute(self._settings.withdraw(units, withdraw_id))

    async def resize_pool(self, _: object, segments: int) -> Resized:
        """Change the number of segments."""
        return await self._store.execute(self._settings.resize(segments))

    async def assign_pool(self, _: object, operation: op.AssignPool) -> Assigned:
        """Name the pool's workers."""
        return await self._store.execute(operation)


# --- For threads: written by `make sync` from the classes above. ---


class PoolGate(Protocol):
    """A gate, such as `segmented.orders.Gate`: it answers the calls of `NoGate` from an order database."""

    def decision_on(self, pool: Any, order_id: str) -> Settled | None:  # noqa: ANN401  # of its own kind of pools
        """Return the database's decision on an order, if it has one."""

    def confirm_grant(self, grant: Any, order: Order) -> Settled:  # noqa: ANN401  # as above
        """Store a granted order in the database, and confirm it in the pool."""

    def cancel_order(self, pool: Any, order_id: str, holder_id: str | None) -> Settled | Superseded:  # noqa: ANN401  # as above
        """Void an order in the database, and give its units back."""


class NoGate:
    """Answers the calls of a pool that has no gate, each by its operation alone.

    They get the pool, as a gate does, and do not need it.
    """

    def __init__(self, store: Store, settings: PoolSettings, mark: SoldOutMark, noted: Noted) -> None:
        """Decide the orders of one pool, with its settings, its sold-out mark and its registration with workers."""
        self._store = store
        self._settings = settings
        self._mark = mark
        self._noted = noted

    def reserve(self, order: Order, hold_ms: int, *, partial: bool) -> Taken:
        """Reserve units; with asyncio, in one batch with concurrent calls."""
        if not self._noted.covers(hold_ms):
            run_sync(self._noted.hold_plan(self._settings.sku, hold_ms), self._store)
        operation = op.Reserve(self._settings.sku, order, hold_ms, partial)
        return run_sync(reserve_marked(self._mark, operation), self._store)

    def open_pool(self, _: object, opening: Opening) -> Opened | AlreadyOpen:
        """Open the pool."""
        return run_sync(open_pool_plan(self._settings.open(opening)), self._store)

    def verified(self, _: object, ask: Callable[[], AnswerT]) -> AnswerT:
        """Ask the pool: there is no database to compare with."""
        return ask()

    def grant_order(
        self,
        _: object,
        order: Order,
        ask: Callable[[], GrantT | Refusal],
        *,
        asked: int | None,
        timeout: float | None,
    ) -> GrantT | Refusal:
        """Ask for a grant; it waits up to its own timeout."""
        del order, asked, timeout
        return ask()

    def take_orders(
        self,
        _: object,
        orders: tuple[Order, ...],
        ask: Callable[[tuple[Order, ...]], list[AnswerT]],
        *,
        partial: bool,
    ) -> list[AnswerT | Decided | OrderMismatch]:
        """Ask the pool to take all of the orders."""
        del partial
        return [*ask(orders)]

    def confirm_order(self, _: object, order_id: str, holder_id: str | None) -> Settled:
        """Confirm an order; with a holder id only that holder's segment is freed."""
        operation = self._settings.confirm(order_id, holder_id=holder_id)
        return run_sync(perform(operation), self._store)

    def confirm_within(self, _: object, order_id: str, transaction: object) -> NoReturn:
        """Raise PoolNotGated: without an order database there is nothing to commit together."""
        del order_id, transaction
        raise PoolNotGated(self._settings.sku)

    def confirm_orders(self, _: object, order_ids: Iterable[str]) -> Ends:
        """Confirm many orders, up to 1,000 in a round trip."""
        operation = self._settings.settle_many("confirmed", order_ids)
        return run_owed(lambda: settle_many_plan(operation), self._store)

    def cancel_order(self, _: object, order_id: str, holder_id: str | None) -> Settled | Superseded:
        """Give an order's units back; with a holder id only while that holder still has it."""
        operation = self._settings.cancel(order_id, holder_id=holder_id)
        return run_sync(returning(self._mark, perform(operation)), self._store)

    def cancel_orders(self, _: object, order_ids: Iterable[str]) -> Ends:
        """Give back the units of many orders, up to 1,000 in a round trip."""
        operation = self._settings.settle_many("cancelled", order_ids)
        return run_owed(lambda: returning(self._mark, settle_many_plan(operation)), self._store)

    def extend_order(self, _: object, operation: op.ExtendHold) -> Reserved | Settled:
        """Lengthen an order's hold."""
        return run_sync(returning(self._mark, extend_plan(operation)), self._store)

    def change_order(self, _: object, operation: op.ChangeQuantity) -> Reserved | Settled:
        """Give some of an order's units back."""
        return run_sync(returning(self._mark, perform(operation)), self._store)

    def return_order(self, _: object, operation: op.ReturnUnits) -> Returned | Settled | None:
        """Give units of a sold order back."""
        return run_sync(returning(self._mark, perform(operation)), self._store)

    def expire_orders(self, _: object, limit: int) -> tuple[Settled, ...]:
        """Give back the units of expired holds."""
        return run_sync(returning(self._mark, expire_plan(self._settings.sku, limit)), self._store)

    def restock_pool(self, _: object, units: int, restock_id: str) -> Restocked | Closed:
        """Add units."""
        operation = self._settings.restock(units, restock_id)
        return run_sync(returning(self._mark, perform(operation)), self._store)

    def withdraw_pool(self, _: object, units: int, withdraw_id: str) -> Restocked | TooFew:
        """Remove free units."""
        return self._store.execute(self._settings.withdraw(units, withdraw_id))

    def resize_pool(self, _: object, segments: int) -> Resized:
        """Change the number of segments."""
        return self._store.execute(self._settings.resize(segments))

    def assign_pool(self, _: object, operation: op.AssignPool) -> Assigned:
        """Name the pool's workers."""
        return self._store.execute(operation)
