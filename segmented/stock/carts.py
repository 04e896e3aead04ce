"""Carts: all-or-nothing orders over several pools, by pinned holds and a single decision.

Each sku's pool is in a hash slot of its own, so no script sees two of them. A cart is one decision in one place, its
record in the pool of its first sku, and an ordinary reservation in each sku's pool:

    open -> reserved -> confirmed              open, reserved -> cancelled, expired              open -> refused

1. Reserve: the record is opened with a deadline. The lines are reserved one by one, in the sorted order of their skus,
   each for at least as long as the cart; then the record becomes reserved. No call waits while it holds units, so there
   is no deadlock. The first refused line makes the record refused.
2. Confirm: every line's hold is pinned, so that it no longer expires; then the record becomes confirmed; then the lines
   are confirmed. If a line was gone before it could be pinned, the record becomes expired.
3. Cancel, expire, refuse: first the record changes, then the lines are cancelled.

A line is confirmed only after its record says confirmed, and cancelled only after its record says that the cart is
void. The record's changes are atomic, and its final states are final. So any later call that finds a cart between two
steps, or after a crash, finishes it: a repeat of the same call, any other call, or `finish_carts_plan`.

With a gate the order database decides before the record does: `GatedLines` has the steps that differ.

No step depends on a process's speed or on synchronized server clocks. Until the pins, a line's hold expires as usual,
and the cart with it. From the first pin on, nothing expires on its own: if the process dies there, the cart's units
stay on hold until the cart is finished; units of a sold cart are never returned.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from math import inf
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from segmented import protocol as op
from segmented.errors import (
    AcknowledgementUnknown,
    AlreadySettled,
    CartDiverged,
    CartGated,
    DatabaseUnavailable,
    InvalidInput,
    OrderUnknown,
    PoolFrozen,
    PoolGated,
    PoolMissing,
    PoolVanished,
    SegmentedError,
    StockError,
    StoreError,
)
from segmented.locks.durations import milliseconds
from segmented.models import (
    CART_ID_BYTES_MAX,
    SKU_BYTES_MAX,
    Cart,
    CartAnswer,
    CartDecided,
    CartRefused,
    CartReserved,
    CartSettled,
    CartSweep,
    Decided,
    LineRefusal,
    Order,
    Reserved,
    Settled,
    SoldOut,
    checked_id,
    shortened,
)
from segmented.models.orders import as_cancelled, as_confirmed, as_reserved
from segmented.plans import Outside, Plan, async_run_owed, perform, run_async, run_owed, run_sync
from segmented.plans.effects import Batch
from segmented.plans.store_kinds import checked_async, checked_gate, checked_sync
from segmented.stock.async_pool import AsyncPool
from segmented.stock.outbox import Noted
from segmented.stock.plans import one_plan, reserve_plan
from segmented.stock.pool import Pool
from segmented.stock.settings import DEFAULT_HOLD
from segmented.stock.sharded.opening import is_in_shards_plan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from segmented.clock import Duration
    from segmented.models import CartFate, CartLine, CartRecord, PoolState, Superseded, Taken, UnfinishedCarts
    from segmented.plans.drivers import AsyncStore, Store
    from segmented.protocol.carts import CartMove
    from segmented.stock.no_gate import AsyncPoolGate, PoolGate

    Ends = list[Settled | Superseded | SegmentedError]
    """How the lines ended, in their order."""

KnownPools: TypeAlias = dict[str, tuple[bool, int]]
"""The pools that are known to take carts: whether they limit customers, and their epoch, in which that holds."""
UNCHANGED: Final = "its quantities are not changed"
SWEEP_BATCH: Final = 100
"""Number of carts read in one step of a sweep."""


# --- how the lines of a cart are taken, decided and ended: in Redis alone, or with the gate of their pools ---
#
# Without a gate the cart's record is its one decision, and pins keep the lines from expiring until it is made. With a
# gate the order database decides first, all lines in one transaction, and the record follows it; the lines are orders
# of gated pools, whose units go back only after the database has voided them, so nothing is pinned.


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
        """Change the record to say that the cart is not sold, unless it is decided."""
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
        """Confirm or cancel every line of a decided cart."""
        kind = op.Confirm if record.state == "confirmed" else op.Cancel
        ends = tuple(kind(sku, record.cart.order_id) for sku, _ in record.cart.lines)
        return perform(Batch(ends, inf))


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


CartLines: TypeAlias = PlainLines | GatedLines
PLAIN: Final = PlainLines()


# --- the steps of a cart ---


def reserve_cart_plan(
    cart: Cart,
    hold_ms: int,
    known: KnownPools,
    lines: CartLines = PLAIN,
    noted_of: Callable[[str], Noted] | None = None,
) -> Plan[CartAnswer]:
    """Take every line's units, or none. Raises an error, with nothing taken, for a pool that cannot have this cart."""
    if not isinstance(cart, Cart):
        raise InvalidInput(f"{shortened(cart)} is not a Cart")
    for sku, _ in cart.lines:
        yield from _check_pool(cart, sku, known, lines, is_known=sku in known)
        if noted_of is not None and not (noted := noted_of(sku)).covers(hold_ms):
            yield from noted.hold_plan(sku, hold_ms)
    record = yield from perform(op.OpenCart(cart, hold_ms))
    if record.state == "open":
        return (yield from _reserve_lines(record, known, lines))
    if record.state == "reserved" and not record.left_ms:
        record = yield from lines.void(cart.home, cart.cart_id, "expired")
    return (yield from _answer(record, lines))


def confirm_cart_plan(home: str, cart_id: str, lines: CartLines = PLAIN) -> Plan[CartSettled]:
    """Make a cart final: all its lines, or none if one of them has expired."""
    record = yield from _reserved_or_ended(home, cart_id, lines)
    if record.state == "reserved":
        record = yield from lines.sell(record)
    return (yield from _finish(record, lines))


def change_cart_plan(
    home: str, cart_id: str, wanted: Iterable[CartLine], lines: CartLines = PLAIN
) -> Plan[CartReserved]:
    """Lower the quantities of a reserved cart's lines. Its record keeps the first ones, which its orders' id is of."""
    wanted = Cart(cart_id, wanted).lines
    record = yield from _reserved_or_ended(home, cart_id, lines)
    if record.state != "reserved":
        raise AlreadySettled((yield from _finish(record, lines)), UNCHANGED)
    cart = record.cart
    if (skus := [sku for sku, _ in cart.lines]) != [sku for sku, _ in wanted]:
        raise InvalidInput(
            f"cart {cart_id!r} has the skus {', '.join(map(repr, skus))}, and a change names each of them and no "
            "other: cancel the cart and reserve another one"
        )
    for sku, quantity in wanted:
        (order,) = yield from perform(op.ReadOrders(sku, (cart.order_id,)))
        if order is not None and order.state == "reserved" and order.quantity < quantity:
            raise InvalidInput(
                f"cart {cart_id!r} has {order.quantity} of {sku!r}, and a change can only lower that, not raise it to "
                f"{quantity}: reserve the others in a second cart"
            )
    is_replay = True
    for sku, quantity in wanted:
        answer = yield from lines.change(cart, sku, quantity)
        is_replay &= as_reserved(answer, UNCHANGED).replay
    return CartReserved(cart_id, home, cart.order_id, wanted, is_replay)


def _reserved_or_ended(home: str, cart_id: str, lines: CartLines) -> Plan[CartRecord]:
    """Read a cart, after its reservation was finished, should that have been interrupted."""
    record = yield from perform(op.ReadCart(home, cart_id))
    if record.state != "open":
        return record
    known: KnownPools = {}
    for sku, _ in record.cart.lines:
        yield from _check_pool(record.cart, sku, known, lines, is_known=False)
    yield from _reserve_lines(record, known, lines)
    return (yield from perform(op.ReadCart(home, cart_id)))


def cancel_cart_plan(home: str, cart_id: str, lines: CartLines = PLAIN) -> Plan[CartSettled]:
    """Give every line's units back on request."""
    record = yield from lines.void(home, cart_id, "cancelled")
    return (yield from _finish(record, lines))


def finish_carts_plan(home: str, limit: int, lines: CartLines = PLAIN) -> Plan[CartSweep]:
    """Finish up to `limit` carts of one home that have expired, or were decided but not finished.

    Any number of processes may do this concurrently. Carts that cannot be finished now are reported and left to the
    next sweep.
    """
    finished: list[CartSettled] = []
    failed: list[tuple[str, SegmentedError]] = []
    silent: dict[str, SegmentedError] = {}
    while (left := limit - len(finished) - len(failed)) > 0:
        due = yield from perform(op.ListDueCarts(home, min(SWEEP_BATCH, left), skip=len(failed)))
        for record in due:
            known = next((silent[sku] for sku, _ in record.cart.lines if sku in silent), None)
            if known is not None:  # do not wait again for a server that is down
                failed.append((record.cart.cart_id, known))
                continue
            try:
                settled = yield from _sweep(record, silent, lines)
            except DatabaseUnavailable:
                raise
            except SegmentedError as error:
                failed.append((record.cart.cart_id, error))
            else:
                finished.append(settled)
        if not due:
            break
    return CartSweep(tuple(finished), tuple(failed))


# --- taking ---


def _check_pool(cart: Cart, sku: str, known: KnownPools, lines: CartLines, *, is_known: bool) -> Plan[None]:
    """Check that the pool of a line takes this cart; asks it unless it `is_known`."""
    if not is_known:
        try:
            state = yield from perform(op.ReadPool(sku))
        except PoolMissing:
            if (yield from is_in_shards_plan(sku)):
                message = f"cart {cart.cart_id!r} names {sku!r}, which is sold in shards: order it beside the cart"
                raise InvalidInput(message) from None
            raise
        known.pop(sku, None)
        yield from lines.check(state, cart)
        known[sku] = state.limit_per_customer is not None, state.epoch
    has_limit, _ = known[sku]
    if has_limit and cart.customer_id is None:
        raise InvalidInput(f"cart {cart.cart_id!r} names no customer, but pool {sku!r} limits what one may have")


def _reserve_lines(record: CartRecord, known: KnownPools, lines: CartLines) -> Plan[CartAnswer]:
    """Reserve the lines of an open cart, or continue where an earlier call stopped, and decide."""
    cart = record.cart
    place = cart.home, cart.cart_id
    decision = op.DecideCart(*place, "reserved" if record.left_ms else "expired", stored=lines.is_gated)
    is_decided = False
    for sku, quantity in cart.lines if record.left_ms else ():
        try:
            answer = yield from lines.take(cart, sku, quantity, record.left_ms)
            if isinstance(answer, Reserved) and answer.epoch != known.get(sku, (False, 0))[1]:
                yield from _check_pool(cart, sku, known, lines, is_known=False)
        except (StockError, InvalidInput, CartGated):  # its pool's keys have vanished, or it is another pool now
            yield from _finish(_with_late_lines((yield from lines.void(*place, "cancelled"))), lines)
            raise
        is_decided = isinstance(answer, Decided)
        if isinstance(answer, Decided) and answer.state == "expired":  # a caller paused for longer than its hold
            decision = replace(decision, state="expired")
        elif not isinstance(answer, Reserved):
            decision = replace(decision, state="refused", refusal=LineRefusal(sku, answer))
        if decision.state != "reserved":
            break
    refusal = decision.refusal
    if decision.state == "reserved" or (refusal is not None and refusal.sku == cart.home and not is_decided):
        record = yield from perform(decision)  # of a cart that has taken nothing, no database needs to know
    else:
        record = yield from lines.void(*place, decision.state, refusal)
    return (yield from _answer(_with_late_lines(record), lines))


def _with_late_lines(record: CartRecord) -> CartRecord:
    """Mark the cart unfinished, so that lines reserved after another process finished it are ended too."""
    return replace(record, is_finished=False)


# --- deciding ---


def _sweep(record: CartRecord, silent: dict[str, SegmentedError], lines: CartLines) -> Plan[CartSettled]:
    """Finish one cart that is due. Raises the error that prevents it; `silent` gets skus whose pool did not answer."""
    cart = record.cart
    if record.state in {"open", "reserved"}:
        record = yield from lines.void(cart.home, cart.cart_id, "expired")
    unanswered = yield from _end_lines(record, lines)
    if unanswered:
        silent.update(unanswered)
        raise next(iter(unanswered.values()))
    yield from perform(op.FinishCart(cart.home, cart.cart_id))
    return CartSettled(cart.cart_id, record.state, record.replay, is_finished=True)


def _finish(record: CartRecord, lines: CartLines) -> Plan[CartSettled]:
    """Carry out a final decision, as far as the lines' pools answer."""
    cart = record.cart
    is_finished = record.is_finished
    if not is_finished:
        unanswered = yield from _end_lines(record, lines)
        for error in unanswered.values():
            if isinstance(error, AcknowledgementUnknown):  # nor is it known whether the decision survives
                raise error
        is_finished = not unanswered
    if is_finished and not record.is_finished:
        try:
            yield from perform(op.FinishCart(cart.home, cart.cart_id))
        except StoreError:  # the decision is carried out; finishing it again changes nothing
            is_finished = False
    return CartSettled(cart.cart_id, record.state, record.replay, is_finished)


def _end_lines(record: CartRecord, lines: CartLines) -> Plan[dict[str, SegmentedError]]:
    """End the lines according to the record. Returns which pools did not answer. Raises CartDiverged."""
    cart = record.cart
    is_sold = record.state == "confirmed"
    unanswered: dict[str, SegmentedError] = {}
    diverged: CartDiverged | None = None
    for (sku, _), answer in zip(cart.lines, (yield from lines.end(record)), strict=True):
        match answer:
            case StoreError() | PoolFrozen():  # it answers later, or once it is thawed or rebuilt
                unanswered[sku] = answer
            case OrderUnknown() | PoolMissing() | PoolVanished() if not is_sold:
                pass  # nothing was taken, or nothing remains
            case PoolMissing() | PoolVanished() if lines.is_gated:
                unanswered[sku] = answer  # the database has it, until the pool is opened again
            case Settled(state=state) if (state == "confirmed") is is_sold:
                pass
            case Settled(state=state):
                diverged = CartDiverged(cart.cart_id, record.state, sku, f"was {state}")
            case _:
                diverged = CartDiverged(cart.cart_id, record.state, sku, f"cannot be ended: {answer}")
    if diverged is not None:
        raise diverged
    return unanswered


def _answer(record: CartRecord, lines: CartLines) -> Plan[CartAnswer]:
    """Return the answer for the caller of `reserve`, and finish the cart if it is decided."""
    cart = record.cart
    if record.state == "reserved":
        return CartReserved(cart.cart_id, cart.home, cart.order_id, cart.lines, record.replay)
    settled = yield from _finish(record, lines)
    if record.refusal is None:
        return CartDecided(settled.cart_id, settled.state, settled.replay, settled.is_finished)
    answer = record.refusal.answer
    if record.replay and isinstance(answer, SoldOut):
        answer = replace(answer, replay=True)
    return CartRefused(cart.cart_id, record.refusal.sku, answer, record.replay)


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
