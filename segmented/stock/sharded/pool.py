# Written by `make sync` from async_pool.py: change that module.
"""The pool in shards, for threads."""

from __future__ import annotations

from functools import partial as bind
from typing import TYPE_CHECKING, overload

from segmented.errors import SegmentedError
from segmented.locks.durations import DEFAULT_TIMEOUT, checked_timeout
from segmented.locks.hints import hinted
from segmented.models import Assignment, checked_id, checked_pool_name
from segmented.plans import run_owed, run_sync
from segmented.plans.store_kinds import checked_gate, checked_sync
from segmented.stock.plans import available_plan, checked_state
from segmented.stock.pool import Pool
from segmented.stock.settings import (
    DEFAULT_HOLD,
    DEFAULT_TTL,
    Opening,
    PoolSettings,
    as_order,
    checked_expire_limit,
    opened_as_asked,
)
from segmented.stock.sharded.audit import (
    ShardedAuditReport,
    ShardedRepairReport,
    sharded_audit_plan,
    sharded_repair_plan,
)
from segmented.stock.sharded.gated import GatedPlans
from segmented.stock.sharded.opening import is_in_shards_plan
from segmented.stock.sharded.plans import ShardedPlans, publish, sharded_outbox

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from segmented import protocol as op
    from segmented.clock import Duration
    from segmented.models import (
        AlreadyOpen,
        Assigned,
        Closed,
        Opened,
        Order,
        OrderRecord,
        OrderState,
        PoolClosed,
        Refusal,
        Reserved,
        Resized,
        Restocked,
        Returned,
        Settled,
        Shard,
        ShardedState,
        Taken,
        TooFew,
    )
    from segmented.models.orders import Sold
    from segmented.plans.drivers import Store
    from segmented.stock.grant import Grant
    from segmented.stock.no_gate import PoolGate
    from segmented.stock.order_handle import OrderHandle
    from segmented.stock.outbox import Outbox
    from segmented.stock.settings import KeepOn


@hinted
class ShardedPool:
    """The stock of one sku, split over several hash slots, so that the masters of a cluster share its load.

    Each shard is a pool of its own. An order's id, or in a pool with a limit its customer, determines its home shard,
    which gets all its calls. Units that the home lacks come from the other shards by numbered transfers. Never
    oversells, and never reports sold out while all shards together have enough free units; a refusal is exact as of its
    `age_ms`. A master that is down stops the orders of its own shards, and those that could only be served, or refused,
    with its units: StoreUnavailable. Calls that read or change all shards fail too.

    Not supported: carts, and one queue over all shards for grants with `fair`.
    """

    def __init__(
        self,
        store: Store,
        sku: str,
        *,
        ttl: Duration = DEFAULT_TTL,
        hold: Duration = DEFAULT_HOLD,
        sold_out_mark: Duration = 0.0,
        outbox: Outbox | None = None,
        gate: PoolGate | None = None,
    ) -> None:
        """Sell `sku` from `store`; the parameters are those of `Pool`.

        With a `gate`, its order database decides every order, and stores where the units are before another shard gets
        them. Units of submitted orders are taken at acceptance. Raises InvalidInput for an `outbox` that decides in the
        worker, which would refuse orders although another shard has units.
        """
        self.store = checked_sync(store, type(self).__name__)
        self.outbox = sharded_outbox(sku, outbox)
        self._ttl, self._hold = ttl, hold
        self._settings = PoolSettings(sku, ttl=ttl, hold=hold)
        self.sku = self._settings.sku
        self.gate = gate if gate is None else checked_gate(gate, "ShardedPool", is_async=False)
        """The gate, whose order database decides the pool's orders; None: the pool decides them itself."""
        self._plans = ShardedPlans(self._settings, sold_out_mark, store.clock)
        if self.gate is not None:
            run = bind(run_sync, store=self.store)
            self._plans = GatedPlans(
                self._settings, sold_out_mark, store.clock, gate=self.gate, pool_of=self._shard, run=run
            )
        self._shards: dict[Shard, Pool] = {}

    def open(
        self,
        *,
        stock: int,
        segments: int,
        shards: int,
        epoch: int = 1,
        limit_per_customer: int | None = None,
        profile: str | None = None,
        queue: str | None = None,
        step: str | None = None,
    ) -> Opened | AlreadyOpen:
        """Open the pool, with stock and segments split evenly over `shards`, which are assigned to the masters in turn.

        Opening it again with the same numbers changes nothing and returns the existing pool; with others, or if it is
        closed, raises PoolDiffers. The number of shards never changes. An interrupted opening is continued with the
        numbers with which it began, which the answer's state reports. Raises PoolInShards when the sku is sold by a
        `Pool`, and ShardVanished when what remains of it shows that data was lost. `profile`, `queue` and
        `step` are as for `Pool`; each shard keeps to them on its own master. With a gate each shard gets its rows in
        the order database first; raises ChangeGated without it for a pool that was opened with one.
        """
        opening = Opening(
            stock=stock,
            segments=segments,
            shards=shards,
            gated=self.gate is not None,
            epoch=epoch,
            limit_per_customer=limit_per_customer,
            profile=profile,
            queue=queue,
            step=step,
        )
        operation = self._settings.open(opening)
        answer = run_sync(self._plans.open(operation, shards), self.store)
        return opened_as_asked(answer, operation, opening)

    @property
    def shards(self) -> tuple[Pool, ...]:
        """Return the shards, each a pool of its own; the directory is read once. Raises PoolMissing.

        Use them to read and trim ledgers. An order reserved directly at a shard can only be found there.
        """
        return self._parts()

    def _parts(self) -> tuple[Pool, ...]:
        return tuple(map(self._shard, run_sync(self._plans.found(), self.store).shards))

    def _shard(self, name: Shard) -> Pool:
        found = self._shards.get(name)
        if found is None:
            found = Pool(self.store, name, ttl=self._ttl, hold=self._hold, gate=self.gate)
            found.on_return(self._plans.note_return)  # units that a shard gets back count for the pool
            found = self._shards.setdefault(name, found)  # another thread may have created it meanwhile
        return found

    def shard_of(self, order_id: str, *, customer_id: str | None = None) -> Pool:
        """Return an order's home shard; in a pool with a limit its customer determines it."""
        gathering = run_sync(self._plans.found(), self.store)
        return self._shard(self._plans.home(gathering, order_id, customer_id))

    @property
    def refused_by_mark(self) -> int:
        """Number of orders that the sold-out mark has refused here without contacting the server."""
        return self._plans.mark.refused_count

    def state(self) -> ShardedState:
        """Read all shards and add them up; the answer's `shards` has each. Only each shard is read atomically.

        Raises PoolMissing and ShardVanished.
        """
        return run_sync(self._plans.state(), self.store)

    def available(self) -> int:
        """Return how many units are free in all shards, as `Pool.available`. Raises PoolMissing and ShardVanished."""
        return run_sync(available_plan(*self.state().shards), self.store)

    def order(self, order_id: str, *, customer_id: str | None = None) -> OrderRecord | None:
        """Return an order's record, or None if the pool has none; a pool with a limit needs the customer to find it."""
        return self.shard_of(order_id, customer_id=customer_id).order(order_id)

    def orders(self, *, state: OrderState | None = None) -> Iterator[OrderRecord]:
        """Read the orders in `state`, such as "confirmed" (None: all), shard by shard; see `Pool.orders`."""
        wanted = checked_state(state)
        for shard in self._parts():
            yield from shard.orders(state=wanted)

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
    ) -> Grant | Refusal:
        """Take units and the lock of a free segment in the order's home shard; otherwise as `Pool.grant`.

        Segments and fencing tokens are numbered within their shard: `grant.pool` is that shard.
        """
        order = as_order(order, quantity, customer_id)
        operation = self._settings.grant(
            order, holder_id=holder_id, keep_refusal=keep_refusal, partial=partial, fair=fair, keep_on=keep_on
        )
        seconds = checked_timeout(timeout)
        return self._granted(operation, seconds, keep_on, fair=fair)

    def reserve(
        self,
        order: Order | str,
        *,
        quantity: int = 1,
        customer_id: str | None = None,
        partial: bool = False,
        hold: Duration | None = None,
    ) -> Taken:
        """Reserve units for `hold` seconds, without a lock; with `partial`, fewer units if fewer are left.

        Takes one command if the order's home has enough. See `Pool.reserve`, also for an asyncio call that is
        cancelled; if it is cancelled while units are brought from other shards, or in a pool with a gate, it may keep
        them until the hold expires, and a repeat gets them.
        """
        operation = self._settings.reserve(as_order(order, quantity, customer_id), partial=partial, hold=hold)
        return run_sync(self._plans.reserve(operation), self.store)

    def reserve_many(self, orders: Iterable[Order], *, partial: bool = False) -> list[Taken | SegmentedError]:
        """Reserve for many orders, up to 1,000 in a round trip at each shard; see `Pool.reserve_many`.

        A shard that cannot be reached fails only its own orders.
        """
        operation = self._settings.reserve_many(orders, partial=partial)
        return run_sync(self._plans.reserve_many(operation), self.store)

    def submit(self, order: Order | str, *, quantity: int = 1, customer_id: str | None = None) -> OrderHandle:
        """Accept an order at its home shard and queue it for a worker; see `Pool.submit`.

        Units are taken now, from any shards that have them. Takes one round trip if the order's home has enough.
        """
        (answer,) = self.submit_many((as_order(order, quantity, customer_id),))
        if isinstance(answer, SegmentedError):
            raise answer
        return answer

    def submit_many(self, orders: Iterable[Order]) -> list[OrderHandle | SegmentedError]:
        """Submit many orders; returns a handle, or the failure of `submit`, for each.

        The first call also registers these shards with the sweep. A shard that cannot be reached fails only its own
        orders.
        """
        operation = self._settings.submit_many(orders, self.outbox)
        found = run_sync(self._plans.submit(operation), self.store)
        publish(self.outbox, found)
        pairs = zip(operation.orders, found, strict=True)
        return [
            one if isinstance(one, SegmentedError) else self._shard(one[0]).handle(order.order_id, accepted=one[1])
            for order, one in pairs
        ]

    def handle(self, order_id: str, *, customer_id: str | None = None) -> OrderHandle:
        """Return the handle of an order that this or another process submitted; it reads from the home shard.

        In a pool with a limit the customer determines the home shard. Only the directory is read, once.
        """
        order_id = checked_id(order_id, "order id")
        home = self._plans.home(run_sync(self._plans.found(), self.store), order_id, customer_id)
        return self._shard(home).handle(order_id)

    @overload
    def confirm(
        self, order_id: str, *, holder_id: str | None = None, customer_id: str | None = None, within: None = None
    ) -> Settled: ...

    @overload
    def confirm(self, order_id: str, *, customer_id: str | None = None, within: object) -> Sold[Settled | None]: ...

    def confirm(
        self, order_id: str, *, holder_id: str | None = None, customer_id: str | None = None, within: object = None
    ) -> Settled | Sold[Settled | None]:
        """Make the order final; a pool with a limit needs the customer to find the order. See `Pool.confirm`."""
        operation = self._settings.confirm(order_id, holder_id=holder_id)
        if within is not None:
            shard = self.shard_of(operation.order_id, customer_id=customer_id)
            return shard.confirm(order_id, within=within)

        return run_sync(self._plans.confirm(operation, customer_id), self.store)

    def cancel(self, order_id: str, *, holder_id: str | None = None, customer_id: str | None = None) -> Settled:
        """Give the units back to the order's home shard; see `confirm` and `Pool.cancel`."""
        operation = self._settings.cancel(order_id, holder_id=holder_id)

        return run_sync(self._plans.cancel(operation, customer_id), self.store)

    def extend(self, order_id: str, *, seconds: Duration, customer_id: str | None = None) -> Reserved:
        """Lengthen an order's hold; a pool with a limit needs the customer to find the order. See `Pool.extend`."""
        operation = self._settings.extend(order_id, seconds)
        home = self.shard_of(operation.order_id, customer_id=customer_id)
        return home.extend(order_id, seconds=seconds)

    def change(self, order_id: str, *, quantity: int, customer_id: str | None = None) -> Reserved:
        """Lower an order's quantity; a pool with a limit needs the customer to find the order. See `Pool.change`."""
        operation = self._settings.change(order_id, quantity)
        home = self.shard_of(operation.order_id, customer_id=customer_id)
        return home.change(order_id, quantity=quantity)

    def return_units(self, order_id: str, units: int, *, return_id: str, customer_id: str | None = None) -> Returned:
        """Give back units of a sold order; a pool with a limit needs its customer. See `Pool.return_units`."""
        operation = self._settings.return_units(order_id, units, return_id)
        home = self.shard_of(operation.order_id, customer_id=customer_id)
        return home.return_units(order_id, units, return_id=return_id)

    def confirm_many(self, orders: Iterable[str | Order]) -> list[Settled | SegmentedError]:
        """Confirm many orders, given by id, or as orders if the pool has a limit; see `Pool.confirm_many`."""
        return run_owed(bind(self._plans.settle_many, "confirmed", orders), self.store)

    def cancel_many(self, orders: Iterable[str | Order]) -> list[Settled | SegmentedError]:
        """Cancel many orders, given by id, or as orders if the pool has a limit; see `Pool.cancel_many`."""
        return run_owed(bind(self._plans.settle_many, "cancelled", orders), self.store)

    def expire(self, *, limit: int = 1_000) -> tuple[Settled, ...]:
        """Give back the units of expired holds, up to `limit` orders, shard by shard."""
        return run_sync(self._plans.expire(checked_expire_limit(self.sku, limit)), self.store)

    def restock(self, units: int, *, restock_id: str) -> Restocked | Closed:
        """Add units during the sale, once for each id. They go to one shard, and from there to others as needed.

        The id determines the shard; `available` in the answer is that shard's free units.
        """
        return run_sync(self._plans.restock(self._settings.restock(units, restock_id)), self.store)

    def withdraw(self, units: int, *, withdraw_id: str) -> Restocked | TooFew:
        """Remove free units during the sale, all or none, once for each id, from any shards that have them.

        `available` in the answer is the free units of one shard; in TooFew, those of all.
        """
        return run_sync(self._plans.withdraw(self._settings.withdraw(units, withdraw_id)), self.store)

    def resize(self, segments: int) -> Resized:
        """Change the number of segments over all shards during the sale; the number of shards stays.

        Raises StoreUnavailable when a shard does not answer; the others have changed then. Call it again.
        """
        return run_sync(self._plans.resize(segments), self.store)

    def close(self) -> PoolClosed:
        """Refuse all new orders. Reserved orders can still be confirmed, cancelled, or expire.

        Raises StoreUnavailable when a shard does not answer; the others are closed then. Call it again.
        """
        return run_sync(self._plans.close(), self.store)

    def assign(self, *, queue: str | None, step: str | None) -> Assigned:
        """Name the queue and the step of the workers that take submitted orders from now on; None: any.

        Raises StoreUnavailable when a shard does not answer; the others have changed then. Call it again.
        """
        return run_sync(self._plans.assign(Assignment(queue, step)), self.store)

    def finish_transfers(self) -> int:
        """Complete all pending transfers between shards, whichever process sent them; returns how many there were.

        An order that lacks units does this automatically; at the end of a sale it makes the shards' numbers final.
        """
        return run_sync(self._plans.finish_transfers(), self.store)

    def audit(self) -> ShardedAuditReport:
        """Audit every shard and the transfers between them; safe while the pool sells."""
        gathering = run_sync(self._plans.found(), self.store)
        return run_sync(sharded_audit_plan(gathering.directory), self.store)

    def repair(self, report: ShardedAuditReport, *, yes: bool) -> ShardedRepairReport:
        """Correct what an audit's `report` names, if it still holds; without `yes`, only report what would be done.

        Repairs each shard as `Pool.repair` does. A transfer that a shard lost with its data is received again,
        according to the ledger of its sender, and so are pending transfers. Safe while the pool sells, and safe to
        repeat.
        """
        gathering = run_sync(self._plans.found(), self.store)
        try:
            return run_sync(sharded_repair_plan(gathering, report, self._settings.hold_ms, yes=yes), self.store)
        finally:
            self._plans.note_return()  # received units end local refusals

    def _granted(self, operation: op.Grant, timeout: float | None, keep_on: KeepOn, *, fair: bool) -> Grant | Refusal:
        home = self.shard_of(operation.order.order_id, customer_id=operation.order.customer_id)
        plan = bind(self._plans.granted, operation, timeout, fair=fair)
        return home.grant_by(operation, plan, keep_on, timeout=timeout, fair=fair)

    def __repr__(self) -> str:
        gate = "" if self.gate is None else f", gate={self.gate!r}"
        return f"ShardedPool({self.sku!r}, {self.store!r}{gate})"


def find_pool(
    store: Store,
    sku: str,
    *,
    ttl: Duration = DEFAULT_TTL,
    hold: Duration = DEFAULT_HOLD,
    sold_out_mark: Duration = 0.0,
) -> Pool | ShardedPool:
    """Return the pool of a sku in the form in which it was opened, for one command; a pool without shards if none was.

    The parameters are those of `Pool`. Raises StoreUnavailable when no server that would know answers.
    """
    pool = Pool(store, sku, ttl=ttl, hold=hold, sold_out_mark=sold_out_mark)
    if run_sync(is_in_shards_plan(pool.sku), store):
        return ShardedPool(store, sku, ttl=ttl, hold=hold, sold_out_mark=sold_out_mark)
    return pool


def pool_of(store: Store, sku: str, *, ttl: Duration = DEFAULT_TTL, hold: Duration = DEFAULT_HOLD) -> Pool:
    """Return the pool of a worker's message or of the list of outboxes: that of a sku, or one shard.

    Sends no command and opens nothing: later calls raise PoolMissing, or ShardVanished for a shard, if it
    does not exist. Raises InvalidInput for a text that is neither a sku nor a shard's name.
    """
    return Pool(store, checked_pool_name(sku), ttl=ttl, hold=hold)
