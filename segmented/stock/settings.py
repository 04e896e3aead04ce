"""The settings of a pool, its sku and the lifetimes of leases and holds, and the checks of callers' arguments."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal, TypeVar
from uuid import uuid4

from segmented import protocol as op
from segmented.clock import Duration, in_seconds
from segmented.errors import ChangeGated, InvalidInput, PoolDiffers, PoolMissing, ShardVanished
from segmented.locks.durations import milliseconds
from segmented.models import (
    EPOCH_MAX,
    ORDER_ID_BYTES_MAX,
    QUANTITY_MAX,
    SEGMENT_COUNT_MAX,
    SHARD_COUNT_MAX,
    SKU_BYTES_MAX,
    STOCK_MAX,
    AlreadyOpen,
    Assignment,
    Opened,
    Order,
    PoolState,
    Shard,
    ShardedState,
    check_own_id,
    checked_id,
    shortened,
)
from segmented.models.pools import pool_profile
from segmented.plans import Plan, perform
from segmented.stock.outbox import UNASKED, Outbox

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ItemT = TypeVar("ItemT")

KeepOn = type[BaseException] | tuple[type[BaseException], ...]
"""Errors of a body after which it is unknown whether the order was paid, so that its units stay reserved."""
DEFAULT_TTL: Final = 10.0
DEFAULT_HOLD: Final = 600.0
HOLDER_ID_BYTES_MAX: Final = 2 * ORDER_ID_BYTES_MAX + 1
"""A grant's holder id is the caller's id, a slash, and the order id."""


class PoolSettings:
    """Builds the operations of one pool; shared by the sync and the async pool."""

    def __init__(self, sku: str, *, ttl: Duration, hold: Duration) -> None:
        """Create the settings and check them once."""
        if not isinstance(sku, Shard):  # its sku was checked when the pool was opened
            sku = checked_id(sku, "sku", bytes_max=SKU_BYTES_MAX)
        self.sku = sku
        self.ttl_ms = milliseconds(ttl, "ttl")
        self.hold_ms = milliseconds(hold, "hold")
        self.above = 0
        """Grants get tokens above this one, which a resource has accepted."""
        if self.hold_ms < self.ttl_ms:
            short = f"hold of {in_seconds(hold):g} s is shorter than ttl of {in_seconds(ttl):g} s"
            raise InvalidInput(f"{short}: the units would expire under a live lease")

    def open(self, opening: Opening) -> op.OpenPool:
        """Check stock, segment count, limit, profile, queue and step."""
        self._check_number(opening.epoch, "epoch", 1, EPOCH_MAX)
        self._check_number(opening.stock, "stock", 1, STOCK_MAX)
        self._check_number(opening.segments, "segment count", 1, SEGMENT_COUNT_MAX)
        if opening.limit_per_customer is not None:
            self._check_number(opening.limit_per_customer, "limit per customer", 1, QUANTITY_MAX)
        return op.OpenPool(
            self.sku,
            opening.stock,
            opening.segments,
            opening.gated,
            opening.epoch,
            opening.limit_per_customer,
            pool_profile(self.sku, opening.profile, gated=checked_flag(opening.gated, "gated")),
            assignment=Assignment(opening.queue, opening.step),
        )

    def shard_count(self, shards: int, stock: int, segments: int) -> int:
        """Check the number of shards over which the stock and the segments are split."""
        self._check_number(shards, "shard count", 1, SHARD_COUNT_MAX)
        self._check_number(stock, "stock", shards, STOCK_MAX)
        self.sharded_segments(segments, shards)
        return shards

    def sharded_segments(self, segments: int, shards: int) -> int:
        """Check the segment count of a pool in shards: each has at least one."""
        self._check_number(segments, "segment count", shards, SEGMENT_COUNT_MAX)
        return segments

    def restock(self, units: int, restock_id: str) -> op.Restock:
        """Check units and id."""
        restock_id = checked_id(restock_id, "restock id")
        self._check_number(units, "units to restock", 1, STOCK_MAX)
        return op.Restock(self.sku, restock_id, units)

    def withdraw(self, units: int, withdraw_id: str) -> op.Withdraw:
        """Check units and id."""
        withdraw_id = checked_id(withdraw_id, "withdrawal id")
        self._check_number(units, "units to withdraw", 1, STOCK_MAX)
        return op.Withdraw(self.sku, withdraw_id, units)

    def thaw(self, sold: int, stocked: int | None) -> op.ThawPool:
        """Check the numbers of units; the epoch is still to be set."""
        self._check_number(sold, "number of sold units", 0, STOCK_MAX)
        if stocked is not None:
            self._check_number(stocked, "number of units ever stocked", 0, STOCK_MAX)
        return op.ThawPool(self.sku, 0, sold, stocked)

    def resize(self, segments: int) -> op.Resize:
        """Check the segment count."""
        self._check_number(segments, "segment count", 1, SEGMENT_COUNT_MAX)
        return op.Resize(self.sku, segments)

    def trim(self, keep: int, *, relayed_only: bool) -> op.TrimLedger:
        """Check how many changes to keep."""
        self._check_number(keep, "number of changes to keep", 0, STOCK_MAX)
        return op.TrimLedger(self.sku, keep, checked_flag(relayed_only, "relayed_only"))

    def _check_number(self, value: int, what: str, least: int, most: int) -> None:
        _check_number_of(self.sku, value, what, least, most)

    def grant(
        self,
        order: Order,
        *,
        holder_id: str | None,
        keep_refusal: bool,
        partial: bool,
        fair: bool,
        keep_on: KeepOn,
    ) -> op.Grant:
        """Build a grant of units and a segment; a caller's holder id counts for this order only, and is reusable."""
        _check_keep_on(keep_on)
        checked_flag(fair, "fair")
        checked_flag(keep_refusal, "keep_refusal")
        checked_flag(partial, "partial")
        own = uuid4().hex if holder_id is None else f"{checked_id(holder_id, 'holder id')}/{order.order_id}"
        return op.Grant(
            self.sku,
            order,
            own,
            self.ttl_ms,
            self.hold_ms,
            keep_refusal,
            partial,
            self.above,
            repeatable=holder_id is not None,
        )

    def reserve(self, order: Order, *, partial: bool, hold: Duration | None) -> op.Reserve:
        """Build a reservation of units, for the pool's hold time or another one."""
        return op.Reserve(self.sku, order, self.hold_of(hold), checked_flag(partial, "partial"))

    def hold_of(self, hold: Duration | None) -> int:
        """Return a hold time in milliseconds: the pool's if none is given."""
        return self.hold_ms if hold is None else milliseconds(hold, "hold")

    def reserve_many(self, orders: Iterable[Order], *, partial: bool) -> op.ReserveMany:
        """Check that all items are orders, before any is reserved."""
        checked_flag(partial, "partial")
        found = tuple(checked_list(orders, f"orders for {self.sku!r}"))
        for order in found:
            if not isinstance(order, Order):
                raise InvalidInput(f"{shortened(order)} among the orders for {self.sku!r} is not an Order")
            check_own_id(order.order_id)
        return op.ReserveMany(self.sku, found, self.hold_ms, partial)

    def submit_many(self, orders: Iterable[Order], outbox: Outbox) -> op.ReserveMany:
        """Check that these are orders, and set when the outbox publishes unfinished ones.

        Raises InvalidInput for a pool that was created without an outbox.
        """
        operation = replace(self.reserve_many(orders, partial=False), publish_after_ms=outbox.publish_after_ms)
        if outbox is UNASKED:
            other = "or with outbox=Outbox() to leave them to the sweep of the workers"
            message = f"orders of {self.sku!r} need an outbox: create the pool with outbox=Outbox(publisher), {other}"
            raise InvalidInput(message)
        return operation

    def confirm(self, order_id: str, *, holder_id: str | None) -> op.Confirm:
        """Check the ids."""
        return op.Confirm(self.sku, *checked_decided(order_id, holder_id))

    def cancel(self, order_id: str, *, holder_id: str | None) -> op.Cancel:
        """Check the ids."""
        return op.Cancel(self.sku, *checked_decided(order_id, holder_id))

    def extend(self, order_id: str, seconds: Duration) -> op.ExtendHold:
        """Check the id and the time."""
        return op.ExtendHold(self.sku, checked_id(order_id, "order id"), milliseconds(seconds, "seconds"))

    def change(self, order_id: str, quantity: int) -> op.ChangeQuantity:
        """Check the id and the quantity."""
        return op.ChangeQuantity(self.sku, Order(order_id).order_id, Order(order_id, quantity).quantity)

    def return_units(self, order_id: str, units: int, return_id: str) -> op.ReturnUnits:
        """Check the ids and the units."""
        self._check_number(units, "units to return", 1, QUANTITY_MAX)
        ids = checked_id(order_id, "order id"), units, checked_id(return_id, "return id")
        return op.ReturnUnits(self.sku, *ids)

    def settle_many(self, state: Literal["confirmed", "cancelled"], order_ids: Iterable[str]) -> op.SettleMany:
        """Check all ids. A single string is refused, because its characters would be taken for order ids."""
        if isinstance(order_ids, str):
            raise InvalidInput(f"{shortened(order_ids)} is a single order id; give the orders to be {state} as a list")
        found = checked_list(order_ids, f"orders to be {state}")
        return op.SettleMany(self.sku, state, tuple(checked_id(order_id, "order id") for order_id in found))


def checked_expire_limit(sku: str, limit: int) -> int:
    """Return how many orders one call may expire. Raises InvalidInput."""
    _check_number_of(sku, limit, "limit of orders to give back", 1, QUANTITY_MAX)
    return limit


def checked_epoch(sku: str, epoch: int) -> int:
    """Return an epoch that a caller names. Raises InvalidInput."""
    _check_number_of(sku, epoch, "epoch", 1, EPOCH_MAX)
    return epoch


def checked_flag(value: object, name: str) -> bool:
    """Return an argument that must be True or False: a text such as "no" counts as true elsewhere."""
    if type(value) is not bool:
        raise InvalidInput(f"{name}={shortened(value)} is not True or False")
    return value


def checked_list(items: Iterable[ItemT], what: str) -> Iterator[ItemT]:
    """Return an iterator over the items. Raises InvalidInput for a value that has none."""
    try:
        return iter(items)
    except TypeError:
        raise InvalidInput(f"{what}: {shortened(items)} is not a list") from None


def _check_number_of(sku: str, value: int, what: str, least: int, most: int) -> None:
    if type(value) is not int:
        raise InvalidInput(f"{what} {shortened(value)} of {sku!r} is not a whole number")
    if not least <= value <= most:
        raise InvalidInput(f"{what} {shortened(value)} of {sku!r} must be between {least:,} and {most:,}")


def checked_decided(order_id: str, holder_id: str | None) -> tuple[str, str | None]:
    """Return the ids of an order to decide and of its holder. Raises InvalidInput."""
    found = checked_id(order_id, "order id")
    return found, None if holder_id is None else checked_id(holder_id, "holder id", bytes_max=HOLDER_ID_BYTES_MAX)


def as_order(order: Order | str, quantity: int, customer_id: str | None) -> Order:
    """Return an order, from an order or from an id with its parts; refuses an order with a contradicting part."""
    if not isinstance(order, Order):
        order = Order(order, quantity, customer_id)
    elif customer_id is not None and customer_id != order.customer_id:
        message = f"customer_id {shortened(customer_id)} beside order {shortened(order.order_id)}, which has its own"
        raise InvalidInput(message)
    elif type(quantity) is not int or 1 != quantity != order.quantity:
        what = f"quantity {shortened(quantity)} beside order {shortened(order.order_id)}"
        raise InvalidInput(f"{what}, which has {order.quantity}, is not allowed")
    if "~" in order.order_id:  # nearly no id has one
        check_own_id(order.order_id)
    return order


def _check_keep_on(keep_on: KeepOn) -> None:
    """Check the errors after which units stay reserved: one exception type, or a tuple of them."""
    found: tuple[object, ...] = keep_on if isinstance(keep_on, tuple) else (keep_on,)
    for kind in found:
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise InvalidInput(f"keep_on={shortened(keep_on)} is not an exception type or a tuple of them")


# --- opening a pool, once its server is known to keep to its profile ---


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """The terms of an opening, as the caller named them. `stock` and `segments` are those of all `shards` together.

    `profile`, `queue` and `step` may be None: then a new pool has the default, and an open one keeps its own.
    """

    stock: int
    segments: int
    shards: int = 1
    gated: bool = False
    epoch: int = 1
    limit_per_customer: int | None = None
    profile: str | None = None
    queue: str | None = None
    step: str | None = None


def open_pool_plan(operation: op.OpenPool) -> Plan[Opened | AlreadyOpen]:
    """Open a pool, on a server that can keep to its profile. Raises ChangeGated if it is open, and gated unasked."""
    yield from check_profile_plan(operation)
    answer = yield from perform(operation)
    if isinstance(answer, AlreadyOpen) and answer.state.gated and not operation.gated:
        raise ChangeGated(operation.sku, "open")
    yield from perform(op.NotePool(operation.sku))
    return answer


def check_profile_plan(operation: op.OpenPool) -> Plan[None]:
    """Check the server of a pool that is not open yet. Raises InvalidInput.

    An open pool is not checked again: while a replica is missing, its orders are acknowledged later, not never.
    """
    profile = operation.profile
    if profile is None or not profile.waits:
        return
    try:
        yield from perform(op.ReadPool(operation.sku))
    except (PoolMissing, ShardVanished):
        yield from perform(op.CheckProfile(operation.sku, profile))


def opened_as_asked(answer: Opened | AlreadyOpen, asked: op.OpenPool, opening: Opening) -> Opened | AlreadyOpen:
    """Return the answer to an opening. Raises PoolDiffers for a pool that stands otherwise than `asked`, or is closed.

    A gated pool, or a shard of it, may be in a later epoch, in which it was rebuilt: it then has the numbers of its
    order database, and still the queue and the step that it names.
    """
    state = answer.state
    epoch = max(one.epoch for one in _parts(state))
    if isinstance(answer, AlreadyOpen):
        is_rebuilt = state.gated and epoch > asked.epoch and not state.is_closed
        differing = _other_workers(state, asked) if is_rebuilt else differences(state, asked, opening)
        if differing:
            raise PoolDiffers(asked.sku, differing)
    return answer


def differences(state: PoolState, asked: op.OpenPool, opening: Opening) -> list[str]:
    """Return what is not as asked, in words; what was not asked for of profile, queue and step is not compared."""
    shard_count = len(state.shards) if isinstance(state, ShardedState) else 1
    numbers = (
        ("state", state.condition, "open") if state.is_closed else ("", None, None),
        ("stock", state.opened, asked.stock),
        ("segments", state.segment_count, asked.segment_count),
        ("limit per customer", state.limit_per_customer, asked.limit_per_customer),
        ("gated", state.gated, asked.gated),
        ("epoch", state.epoch, asked.epoch),
        ("shards", shard_count, opening.shards),
        ("profile", state.profile, state.profile if opening.profile is None else str(asked.profile)),
    )
    differing = [
        f"{name} {_said(found)} instead of {_said(wanted)}" for name, found, wanted in numbers if found != wanted
    ]
    return differing + _other_workers(state, asked)


def _other_workers(state: PoolState, asked: op.OpenPool) -> list[str]:
    """Return where a pool, or a shard of it, names another queue or step than those that were asked for."""
    wanted = asked.assignment
    found = [
        *(("queue", one.queue, wanted.queue) for one in _parts(state) if wanted.queue not in {None, one.queue}),
        *(("step", one.step, wanted.step) for one in _parts(state) if wanted.step not in {None, one.step}),
    ]
    return [f"{name} {_said(named)} instead of {_said(other)}" for name, named, other in dict.fromkeys(found)]


def _parts(state: PoolState) -> tuple[PoolState, ...]:
    return state.shards if isinstance(state, ShardedState) else (state,)


def _said(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value)
