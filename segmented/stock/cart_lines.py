"""How the lines of a cart are taken, decided and ended: in Redis alone, or with the gate of their pools.

Without a gate the cart's record is its one decision, and pins keep the lines from expiring until it is made. With a
gate the order database decides first, all lines in one transaction, and the record follows it; the lines are orders of
gated pools, whose units go back only after the database has voided them, so nothing is pinned.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Protocol

from segmented import protocol as op
from segmented.errors import CartGated, InvalidInput, PoolGated, SegmentedError
from segmented.models import Order
from segmented.plans import Outside, Plan, perform
from segmented.plans.effects import Batch
from segmented.stock.plans import one_plan, reserve_plan

if TYPE_CHECKING:
    from collections.abc import Callable

    from segmented.models import (
        Cart,
        CartFate,
        CartRecord,
        LineRefusal,
        PoolState,
        Reserved,
        Settled,
        Superseded,
        Taken,
    )
    from segmented.protocol.carts import CartMove
    from segmented.stock.async_no_gate import AsyncPoolGate
    from segmented.stock.no_gate import PoolGate

    Ends = list[Settled | Superseded | SegmentedError]
    """How the lines ended, in their order."""


class CartLines(Protocol):
    """The steps of a cart that depend on its pools."""

    is_gated: bool

    def check(self, state: PoolState, cart: Cart) -> Plan[None]:
        """Raise if the pool of a line cannot have this cart."""

    def take(self, cart: Cart, sku: str, quantity: int, hold_ms: int) -> Plan[Taken]:
        """Reserve one line."""

    def change(self, cart: Cart, sku: str, quantity: int) -> Plan[Reserved | Settled]:
        """Let one line keep this quantity."""

    def void(self, home: str, cart_id: str, state: CartMove, refusal: LineRefusal | None = None) -> Plan[CartRecord]:
        """Decide that a cart is not sold, unless it is decided."""

    def sell(self, record: CartRecord) -> Plan[CartRecord]:
        """Decide that a reserved cart is sold, unless a line cannot be sold any more."""

    def end(self, record: CartRecord) -> Plan[Ends]:
        """End the lines of a decided cart."""


class PlainLines:
    """Lines in pools without an order database."""

    is_gated = False

    def check(self, state: PoolState, cart: Cart) -> Plan[None]:
        """Raise CartGated for a pool with an order database."""
        if state.gated:
            raise CartGated(state.sku, cart.cart_id)
        yield from ()

    def take(self, cart: Cart, sku: str, quantity: int, hold_ms: int) -> Plan[Taken]:
        """Reserve one line."""
        return reserve_plan(op.Reserve(sku, Order(cart.order_id, quantity, cart.customer_id), hold_ms))

    def change(self, cart: Cart, sku: str, quantity: int) -> Plan[Reserved | Settled]:
        """Give the other units back, unless the line is pinned."""
        return perform(op.ChangeQuantity(sku, cart.order_id, quantity))

    def void(self, home: str, cart_id: str, state: CartMove, refusal: LineRefusal | None = None) -> Plan[CartRecord]:
        """Change the record."""
        return perform(op.DecideCart(home, cart_id, state, refusal))

    def sell(self, record: CartRecord) -> Plan[CartRecord]:
        """Confirm the cart if no line has expired. No line can expire between the pins and the decision."""
        cart = record.cart
        pins = tuple(op.PinOrder(sku, cart.order_id, cart.home) for sku, _ in cart.lines)
        states = set()
        for (sku, _), found in zip(cart.lines, (yield from perform(Batch(pins, inf))), strict=True):
            if isinstance(found, PoolGated):
                raise CartGated(sku, cart.cart_id) from found
            if isinstance(found, SegmentedError):
                raise found
            states.add(found)
        decision = op.DecideCart(cart.home, cart.cart_id, "confirmed")
        if "expired" in states:
            decision = replace(decision, state="expired")
        elif states - {"reserved", "confirmed"}:  # another process is voiding the cart, or a line was ended by hand
            decision = replace(decision, state="cancelled")
        return (yield from perform(decision))

    def end(self, record: CartRecord) -> Plan[Ends]:
        """Confirm or cancel every line."""
        kind = op.Confirm if record.state == "confirmed" else op.Cancel
        ends = tuple(kind(sku, record.cart.order_id) for sku, _ in record.cart.lines)
        return perform(Batch(ends, inf))


PLAIN: CartLines = PlainLines()


class GatedLines:
    """Lines in gated pools, whose order database stores all of them, or voids all of them, before the record changes.

    The same for threads and for asyncio: there the pools, the gate and `run` return awaitables.
    """

    is_gated = True

    def __init__(
        self,
        gate: PoolGate | AsyncPoolGate,
        *,
        pool_of: Callable[[str], Any],
        run: Callable[[Plan[Any]], Any],
    ) -> None:
        """Create with the gate; `pool_of` returns a sku's pool without its gate, and `run` runs a plan."""
        self._gate: Any = gate
        self._pool_of, self._run = pool_of, run

    def check(self, state: PoolState, cart: Cart) -> Plan[None]:
        """Raise InvalidInput for a pool without an order database, or with another one than the gate's."""
        if not state.gated:
            raise InvalidInput(
                f"pool {state.sku!r} has no order database, so cart {cart.cart_id!r} cannot be sold through the gate: "
                "sell that line in a cart of its own, by Carts without a gate"
            )

        def ask() -> Any:  # noqa: ANN401  # the state, or with asyncio an awaitable of it
            return self._run(perform(op.ReadPool(state.sku)))

        yield from perform(Outside(partial(self._gate.verified, self._pool_of(state.sku), ask)))

    def take(self, cart: Cart, sku: str, quantity: int, hold_ms: int) -> Plan[Taken]:
        """Reserve one line, unless only the database knows it."""
        order = Order(cart.order_id, quantity, cart.customer_id)

        def ask(_: tuple[Order, ...]) -> Any:  # noqa: ANN401  # the answers, or with asyncio an awaitable of them
            return self._run(one_plan(reserve_plan(op.Reserve(sku, order, hold_ms))))

        step = partial(self._gate.take_orders, self._pool_of(sku), (order,), ask, partial=False)
        answers: list[Any] = yield from perform(Outside(step))
        answer: Taken | SegmentedError = answers[0]
        if isinstance(answer, SegmentedError):
            raise answer
        return answer

    def change(self, cart: Cart, sku: str, quantity: int) -> Plan[Reserved | Settled]:
        """Give the other units back, unless the database has decided the line."""
        operation = op.ChangeQuantity(sku, cart.order_id, quantity)
        answer: Reserved | Settled = yield from perform(
            Outside(partial(self._gate.change_order, self._pool_of(sku), operation))
        )
        return answer

    def void(self, home: str, cart_id: str, state: CartMove, refusal: LineRefusal | None = None) -> Plan[CartRecord]:
        """Void every line in the database, then change the record; if it is sold there, the record says so."""
        record = yield from perform(op.ReadCart(home, cart_id))
        if record.state not in {"open", "reserved"}:
            return record
        fate: CartFate = yield from self._asked("void_cart", record.cart)
        if fate == "confirmed":
            state, refusal = "confirmed", None
        return (yield from perform(op.DecideCart(home, cart_id, state, refusal, stored=True)))

    def sell(self, record: CartRecord) -> Plan[CartRecord]:
        """Store every line in the database, or void every line, then change the record."""
        cart = record.cart
        fate: CartFate = yield from self._asked("sell_cart", cart)
        return (yield from perform(op.DecideCart(cart.home, cart.cart_id, fate, stored=True)))

    def end(self, record: CartRecord) -> Plan[Ends]:
        """Tell every line's pool what the database has decided."""
        ends: Ends = yield from self._asked("end_cart", record.cart, is_sold=record.state == "confirmed")
        return ends

    def _asked(self, name: str, cart: Cart, **kwargs: Any) -> Plan[Any]:  # noqa: ANN401  # any step of the gate
        pools = [self._pool_of(sku) for sku, _ in cart.lines]
        return perform(Outside(partial(getattr(self._gate, name), pools, cart, **kwargs)))
