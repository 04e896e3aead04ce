"""Carts over the pools of one store."""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING, Final

from segmented import protocol as op
from segmented.errors import InvalidInput
from segmented.locks.durations import milliseconds
from segmented.models import CART_ID_BYTES_MAX, SKU_BYTES_MAX, checked_id, shortened
from segmented.models.orders import as_cancelled, as_confirmed
from segmented.plans import async_run_owed, run_async, run_owed, run_sync
from segmented.plans.store_kinds import checked_async, checked_gate, checked_sync
from segmented.stock.async_pool import AsyncPool
from segmented.stock.cart_plans import (
    PLAIN,
    CartLines,
    GatedLines,
    KnownPools,
    cancel_cart_plan,
    change_cart_plan,
    confirm_cart_plan,
    finish_carts_plan,
    reserve_cart_plan,
)
from segmented.stock.outbox import Noted
from segmented.stock.pool import Pool
from segmented.stock.settings import DEFAULT_HOLD

if TYPE_CHECKING:
    from collections.abc import Iterable

    from segmented.clock import Duration
    from segmented.models import (
        Cart,
        CartAnswer,
        CartLine,
        CartRecord,
        CartReserved,
        CartSettled,
        CartSweep,
        UnfinishedCarts,
    )
    from segmented.plans.drivers import AsyncStore, Store
    from segmented.stock.no_gate import AsyncPoolGate, PoolGate

SWEEP_LIMIT: Final = 1_000
LIST_MAX: Final = 1_000
"""Maximum number of carts read in one step, during which the server does nothing else."""


class AsyncCarts:
    """Sells several skus of one store together: all lines of a cart, or none.

    The pools of the skus must be open; they may be on different masters of a cluster. With a `gate`, the pools of all
    skus are gated, and the order database stores all lines of a cart in one transaction, or none. If a process dies
    half-way, the cart's units stay on hold, sold to nobody, until the cart is finished: call `finish` periodically for
    every sku that may be the first of a cart.
    """

    def __init__(
        self,
        store: AsyncStore,
        *,
        hold: Duration = DEFAULT_HOLD,
        gate: AsyncPoolGate | None = None,
    ) -> None:
        """Sell from `store`; the units of a cart stay reserved for `hold` seconds.

        With a `gate`, its order database decides every cart. Gated pools sell carts only so: without it, each call that
        takes units or decides a cart raises CartGated.
        """
        self.store = checked_async(store, type(self).__name__)
        self._hold_ms = milliseconds(hold, "hold")
        self._known: KnownPools = {}
        self._noted_of = cache(lambda _: Noted(store.clock))
        self.gate = gate if gate is None else checked_gate(gate, "AsyncCarts", is_async=True)
        self._lines: CartLines = PLAIN
        if self.gate is not None:
            pool_of = cache(partial(AsyncPool, self.store))
            self._lines = GatedLines(self.gate, pool_of=pool_of, run=lambda plan: run_async(plan, self.store))

    async def reserve(self, cart: Cart) -> CartAnswer:
        """Reserve every line's units for the hold time, or none.

        A repeat gets the first answer, marked as a replay, even a refusal; after a crash it continues where the first
        call stopped. Raises CartMismatch when the id exists with other content; PoolMissing and InvalidInput with
        nothing changed, unless a pool vanishes in the middle: then the cart is cancelled, and its id with it;
        StoreUnavailable when the progress is unknown: repeat the call, or let the cart expire. The same holds for a
        call that is cancelled.
        """
        plan = reserve_cart_plan(cart, self._hold_ms, self._known, self._lines, self._noted_of)
        return await run_async(plan, self.store)

    async def confirm(self, cart_id: str, *, home: str) -> CartSettled:
        """Make a cart final; a repeat changes nothing, and its answer has `replay=True`.

        Raises AlreadySettled, with the state, for a cart that ended otherwise.
        `home` is the first of its skus in sorted order (`Cart.home`). If the cart's hold has expired, it is confirmed
        if no line's units have been returned yet, and expired otherwise: all lines, or none. Raises CartUnknown.
        """
        plan = partial(confirm_cart_plan, *_checked(home, cart_id), self._lines)
        return as_confirmed(await async_run_owed(plan, self.store))

    async def cancel(self, cart_id: str, *, home: str) -> CartSettled:
        """Give every line's units back. Raises AlreadySettled for a confirmed cart, and CartUnknown.

        If they are back already, the answer has `replay=True` and the cart's state.
        """
        plan = partial(cancel_cart_plan, *_checked(home, cart_id), self._lines)
        return as_cancelled(await async_run_owed(plan, self.store))

    async def change(self, cart_id: str, lines: Iterable[CartLine], *, home: str) -> CartReserved:
        """Let a reserved cart keep these lines: the other units are free at once. Safe to repeat.

        `lines` names every sku of the cart, each with at least one unit and no more than it has. Nothing is changed
        unless all of them are possible; then sku after sku is, so after an error repeat the call. The cart's record,
        and a repeat of `reserve`, go on with the first lines. Raises InvalidInput for other lines, AlreadySettled for a
        cart that has ended, OrderInWork for one that is being confirmed, and CartUnknown.
        """
        return await run_async(change_cart_plan(*_checked(home, cart_id), lines, self._lines), self.store)

    async def read(self, cart_id: str, *, home: str) -> CartRecord:
        """Read a cart's record; changes nothing. Raises CartUnknown."""
        return await self.store.execute(op.ReadCart(*_checked(home, cart_id)))

    async def unfinished(self, home: str, *, limit: int = LIST_MAX) -> UnfinishedCarts:
        """Read up to `limit` carts of one home, at most 1,000, that hold units or wait to be finished; changes nothing.

        Longest overdue first. Carts that are not due are being bought now.
        """
        return await self.store.execute(op.ListCarts(*_checked_list(home, limit)))

    async def finish(self, home: str, *, limit: int = SWEEP_LIMIT) -> CartSweep:
        """Finish up to `limit` carts of one home that have expired, or were decided by a process that died."""
        return await run_async(finish_carts_plan(*_checked_sweep(home, limit), self._lines), self.store)

    def __repr__(self) -> str:
        gate = "" if self.gate is None else f", gate={self.gate!r}"
        return f"AsyncCarts({self.store!r}{gate})"


def _checked(home: str, cart_id: str) -> tuple[str, str]:
    found = checked_id(home, "home of a cart", bytes_max=SKU_BYTES_MAX)
    return found, checked_id(cart_id, "cart id", bytes_max=CART_ID_BYTES_MAX)


def _checked_sweep(home: str, limit: int) -> tuple[str, int]:
    home = checked_id(home, "home of carts", bytes_max=SKU_BYTES_MAX)
    if type(limit) is not int or limit < 1:
        raise InvalidInput(f"limit {shortened(limit)} of a sweep is not a whole number from 1 on")
    return home, limit


def _checked_list(home: str, limit: int) -> tuple[str, int]:
    home = checked_id(home, "home of carts", bytes_max=SKU_BYTES_MAX)
    if type(limit) is not int or not 1 <= limit <= LIST_MAX:
        raise InvalidInput(f"limit {shortened(limit)} of a list of carts is not a whole number from 1 to {LIST_MAX:,}")
    return home, limit


# --- For threads: written by `make sync` from the classes above. ---


class Carts:
    """Sells several skus of one store together: all lines of a cart, or none.

    The pools of the skus must be open; they may be on different masters of a cluster. With a `gate`, the pools of all
    skus are gated, and the order database stores all lines of a cart in one transaction, or none. If a process dies
    half-way, the cart's units stay on hold, sold to nobody, until the cart is finished: call `finish` periodically for
    every sku that may be the first of a cart.
    """

    def __init__(
        self,
        store: Store,
        *,
        hold: Duration = DEFAULT_HOLD,
        gate: PoolGate | None = None,
    ) -> None:
        """Sell from `store`; the units of a cart stay reserved for `hold` seconds.

        With a `gate`, its order database decides every cart. Gated pools sell carts only so: without it, each call that
        takes units or decides a cart raises CartGated.
        """
        self.store = checked_sync(store, type(self).__name__)
        self._hold_ms = milliseconds(hold, "hold")
        self._known: KnownPools = {}
        self._noted_of = cache(lambda _: Noted(store.clock))
        self.gate = gate if gate is None else checked_gate(gate, "Carts", is_async=False)
        self._lines: CartLines = PLAIN
        if self.gate is not None:
            pool_of = cache(partial(Pool, self.store))
            self._lines = GatedLines(self.gate, pool_of=pool_of, run=lambda plan: run_sync(plan, self.store))

    def reserve(self, cart: Cart) -> CartAnswer:
        """Reserve every line's units for the hold time, or none.

        A repeat gets the first answer, marked as a replay, even a refusal; after a crash it continues where the first
        call stopped. Raises CartMismatch when the id exists with other content; PoolMissing and InvalidInput with
        nothing changed, unless a pool vanishes in the middle: then the cart is cancelled, and its id with it;
        StoreUnavailable when the progress is unknown: repeat the call, or let the cart expire. The same holds for a
        call that is cancelled.
        """
        plan = reserve_cart_plan(cart, self._hold_ms, self._known, self._lines, self._noted_of)
        return run_sync(plan, self.store)

    def confirm(self, cart_id: str, *, home: str) -> CartSettled:
        """Make a cart final; a repeat changes nothing, and its answer has `replay=True`.

        Raises AlreadySettled, with the state, for a cart that ended otherwise.
        `home` is the first of its skus in sorted order (`Cart.home`). If the cart's hold has expired, it is confirmed
        if no line's units have been returned yet, and expired otherwise: all lines, or none. Raises CartUnknown.
        """
        plan = partial(confirm_cart_plan, *_checked(home, cart_id), self._lines)
        return as_confirmed(run_owed(plan, self.store))

    def cancel(self, cart_id: str, *, home: str) -> CartSettled:
        """Give every line's units back. Raises AlreadySettled for a confirmed cart, and CartUnknown.

        If they are back already, the answer has `replay=True` and the cart's state.
        """
        plan = partial(cancel_cart_plan, *_checked(home, cart_id), self._lines)
        return as_cancelled(run_owed(plan, self.store))

    def change(self, cart_id: str, lines: Iterable[CartLine], *, home: str) -> CartReserved:
        """Let a reserved cart keep these lines: the other units are free at once. Safe to repeat.

        `lines` names every sku of the cart, each with at least one unit and no more than it has. Nothing is changed
        unless all of them are possible; then sku after sku is, so after an error repeat the call. The cart's record,
        and a repeat of `reserve`, go on with the first lines. Raises InvalidInput for other lines, AlreadySettled for a
        cart that has ended, OrderInWork for one that is being confirmed, and CartUnknown.
        """
        return run_sync(change_cart_plan(*_checked(home, cart_id), lines, self._lines), self.store)

    def read(self, cart_id: str, *, home: str) -> CartRecord:
        """Read a cart's record; changes nothing. Raises CartUnknown."""
        return self.store.execute(op.ReadCart(*_checked(home, cart_id)))

    def unfinished(self, home: str, *, limit: int = LIST_MAX) -> UnfinishedCarts:
        """Read up to `limit` carts of one home, at most 1,000, that hold units or wait to be finished; changes nothing.

        Longest overdue first. Carts that are not due are being bought now.
        """
        return self.store.execute(op.ListCarts(*_checked_list(home, limit)))

    def finish(self, home: str, *, limit: int = SWEEP_LIMIT) -> CartSweep:
        """Finish up to `limit` carts of one home that have expired, or were decided by a process that died."""
        return run_sync(finish_carts_plan(*_checked_sweep(home, limit), self._lines), self.store)

    def __repr__(self) -> str:
        gate = "" if self.gate is None else f", gate={self.gate!r}"
        return f"Carts({self.store!r}{gate})"
