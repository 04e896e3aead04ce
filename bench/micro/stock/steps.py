"""The server's CPU time for each script at the largest sizes that are allowed: no other client is served meanwhile.

A figure is the CPU time of the server's main thread for one operation, divided by the number of its scripts, and of
several rounds the least: a processor that is shared with others is slower.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from bench.figures import Figure
from bench.micro.stock import BATCH, HOLD_MS, STOCK, ScriptCounter, cpu_ms, server_of
from segmented import protocol as op
from segmented.keys import fair_keys, once_partition
from segmented.models import ORDER_ID_BYTES_MAX, Cart, Order, Shard
from segmented.models.dedup import RecordName
from segmented.protocol.dedup import ClaimKey, ListClaims
from segmented.protocol.fair import AcquireFair, FairTimes, ReleaseFair
from segmented.stock.plans import LISTED_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.micro.stock import BenchContext
    from segmented import RedisStore

    Cases = Iterator[tuple[str, op.Operation[Any]]]
    """The name of a case and its operation, which is performed before the next case is prepared."""

MILLISECONDS_MAX: Final = 10.0
PAGE_BYTES_MAX: Final = 262_144
PARTS_EACH: Final = 4
LIMIT: Final = 5
BATCHES: Final = 30
WHOLE_ORDERS: Final = 20
BEGUN_MAX: Final = 5
WAITERS: Final = 1_000
SHORT_SECONDS: Final = 0.4
SHORT: Final = FairTimes(400, 400, 400)
"""A waiter's presence that outlasts the arrival of the others."""
LONG: Final = FairTimes(HOLD_MS, HOLD_MS, HOLD_MS)
WORKER: Final = "worker"
ONE_UNIT: Final = "of 1 unit"
LONG_IDS: Final = f"of 1 unit, ids of {ORDER_ID_BYTES_MAX} bytes"
LIMITED: Final = "of 1 unit, with customers and a limit"
SCARCE: Final = "of 1 unit, 1 unit in a segment"
IN_PARTS: Final = f"of {PARTS_EACH} units, 1 unit in a segment"


def measure_steps(context: BenchContext) -> list[Figure]:
    """Measure each operation, and the size of a page of the ledger."""
    rounds = context.sizes.step_rounds
    least: dict[str, float] = {}
    calls: dict[str, int] = {}
    page = 0
    with server_of(context) as (store, client):
        for number in range(rounds):
            context.progress("largest steps", number, rounds)
            for name, operation in _cases(LargestPools(context, store)):
                counter = ScriptCounter(client)
                first, before = cpu_ms(client), cpu_ms(client)
                answer: Any = store.execute(operation)
                used = cpu_ms(client) - before - (before - first)  # without the question itself
                calls[name], _ = counter.of()
                each = max(0.0, used) / max(1, calls[name])
                least[name] = min(each, least.get(name, each))
                if isinstance(operation, op.ReadSteps):
                    page = sum(len(step.lines) for step in answer[:-1])
    sizes = {"segments": context.sizes.segments_most, "rounds": rounds}
    figures = []
    for name, milliseconds in least.items():
        detail = {"calls": calls[name], **sizes}
        what = f"server CPU a script: {name}"
        figures.append(Figure(what, milliseconds, "ms", at_most=MILLISECONDS_MAX, detail=detail))
    what = "bytes in read_ledger, a page after batches, without the last change"
    return [*figures, Figure(what, page, "bytes", at_most=PAGE_BYTES_MAX, is_promise=True)]


@dataclass(frozen=True, slots=True)
class Batch:
    """As many orders as a batch takes, and the pool that they are for."""

    orders: tuple[Order, ...]
    stock: int = STOCK
    limit: int | None = None

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of the orders."""
        return tuple(order.order_id for order in self.orders)


class LargestPools:
    """Creates pools with the maximum number of segments."""

    def __init__(self, context: BenchContext, store: RedisStore) -> None:
        """Create pools through `store`; `context` removes them."""
        self.context = context
        self.store = store
        self.segments = context.sizes.segments_most

    def batches(self) -> dict[str, Batch]:
        """Return the batches that are slow in different ways, by name."""
        return {
            ONE_UNIT: Batch(self._orders(1)),
            LONG_IDS: Batch(self._orders(1, ORDER_ID_BYTES_MAX)),
            LIMITED: Batch(self._orders(1, has_customers=True), limit=LIMIT),
            SCARCE: Batch(self._orders(1), self.segments),
            IN_PARTS: Batch(self._orders(PARTS_EACH), self.segments),
        }

    def _orders(self, quantity: int, id_bytes: int = 1, *, has_customers: bool = False) -> tuple[Order, ...]:
        return tuple(
            Order(f"{index}".rjust(id_bytes, "o"), quantity, f"customer-{index}" if has_customers else None)
            for index in range(min(BATCH, self.segments // quantity))
        )

    def opened(self, stock: int = STOCK, *, segments: int | None = None, limit: int | None = None) -> str:
        """Open a pool, of all segments unless told otherwise, and return its name."""
        sku = self.context.sku("step")
        self.store.execute(op.OpenPool(sku, stock, segments or self.segments, gated=False, limit_per_customer=limit))
        return sku

    def after(self, sku: str, *before: op.Operation[Any]) -> str:
        """Perform operations on a pool, and return its name."""
        for operation in before:
            self.store.execute(operation)
        return sku

    def reserved(self, batch: Batch, *, hold_ms: int = HOLD_MS) -> str:
        """Open a pool in which these orders are reserved, and return its name."""
        sku = self.opened(batch.stock, limit=batch.limit)
        return self.after(sku, op.ReserveMany(sku, batch.orders, hold_ms))

    def queued(self, batch: Batch, *, after_ms: int = HOLD_MS) -> str:
        """Open a pool to which these orders were submitted, and return its name."""
        sku = self.opened(batch.stock, limit=batch.limit)
        return self.after(sku, op.QueueOrders(sku, batch.orders, after_ms))

    def taken(self, batch: Batch, *, work_ms: int = HOLD_MS) -> str:
        """Open a pool whose submitted orders a worker has taken, and return its name."""
        sku = self.queued(batch)
        return self.after(sku, _take(sku, batch, work_ms))

    def filled(self, batches: int, hold_ms: int = HOLD_MS) -> str:
        """Open a pool of one segment with so many batches of orders, and return its name."""
        sku = self.opened(segments=1)
        for batch in range(batches):
            orders = tuple(Order(f"order-{batch}-{index}", 1) for index in range(BATCH))
            self.store.execute(op.ReserveMany(sku, orders, hold_ms))
        return sku


def _take(sku: str, batch: Batch, work_ms: int = HOLD_MS) -> op.TakeOrders:
    return op.TakeOrders(sku, batch.ids, WORKER, HOLD_MS, HOLD_MS, work_ms, BEGUN_MAX)


def _cases(pools: LargestPools) -> Cases:
    """Yield what is measured; each pool is prepared right before its operation."""
    yield from _of_whole_pools(pools)
    for name, batch in pools.batches().items():
        size = f"{BATCH:,} {name}"
        yield from _of_reservations(pools, size, batch)
        if name != SCARCE:
            yield from _of_submitted(pools, size, batch)
        if name not in {SCARCE, LIMITED}:
            yield from _of_holds(pools, size, batch)
    yield from _of_carts(pools)
    yield from _of_shards(pools)
    yield from _of_claims_and_waiters(pools)


def _of_whole_pools(pools: LargestPools) -> Cases:
    count, some = pools.segments, pools.segments // 2
    yield "open", op.OpenPool(pools.context.sku("step"), STOCK, count, gated=False)
    yield "read_pool", op.ReadPool(pools.opened())
    yield "restock, all segments", op.Restock(pools.opened(), "r", STOCK)
    yield "withdraw, all segments", op.Withdraw(pools.opened(), "w", STOCK)
    yield f"resize, 1 to {count:,}", op.Resize(pools.opened(segments=1), count)
    yield f"resize, {count:,} to {some:,}", op.Resize(pools.opened(), some)
    yield f"resize, {count:,} to 1", op.Resize(pools.opened(), 1)
    sku = pools.opened()
    yield f"resize, 1 to {count:,}, which it had before", op.Resize(pools.after(sku, op.Resize(sku, 1)), count)
    yield "trim_ledger, all segments", op.TrimLedger(pools.opened(), 0)
    whole = Batch((Order("o", count),), count)
    yield "reserve, 1 order of all segments", op.Reserve(pools.opened(count), whole.orders[0], HOLD_MS)
    yield "cancel, 1 order of all segments", op.Cancel(pools.reserved(whole), "o")
    sku, ids = pools.opened(count), tuple(f"o{index}" for index in range(WHOLE_ORDERS))
    for order_id in ids:
        pools.after(sku, op.Reserve(sku, Order(order_id, count), HOLD_MS), op.Restock(sku, order_id, count))
    yield f"cancel_many, {WHOLE_ORDERS} orders of all segments", op.SettleMany(sku, "cancelled", ids)
    yield "read_ledger, a page after batches", op.ReadSteps(pools.filled(BATCHES), 0, BATCH)
    yield f"list_due, {LISTED_MAX:,} of 1 unit", op.ListDue(pools.filled(LISTED_MAX // BATCH, hold_ms=0), LISTED_MAX)
    sku = pools.opened()
    yield "thaw_pool, the last step", op.ThawPool(pools.after(sku, op.FreezePool(sku, 1)), 2, 0)


def _of_reservations(pools: LargestPools, size: str, batch: Batch) -> Cases:
    opened = pools.opened(batch.stock, limit=batch.limit)
    yield f"reserve_many, {size}", op.ReserveMany(opened, batch.orders, HOLD_MS)
    yield f"confirmed, {size}", op.SettleMany(pools.reserved(batch), "confirmed", batch.ids)
    yield f"cancelled, {size}", op.SettleMany(pools.reserved(batch), "cancelled", batch.ids)
    yield f"expired, {size}", op.SettleMany(pools.reserved(batch, hold_ms=0), "expired", batch.ids)


def _of_submitted(pools: LargestPools, size: str, batch: Batch) -> Cases:
    def put_off(begun_max: int) -> op.PutOff:
        return op.PutOff(pools.taken(batch), batch.ids, WORKER, 1, counts=True, begun_max=begun_max, reason="r" * 100)

    def sweep(sku: str, begun_max: int) -> op.SweepOutbox:
        return op.SweepOutbox(sku, BATCH, 1, 1_000, HOLD_MS, HOLD_MS, begun_max)

    yield f"queue_orders, {size}", op.QueueOrders(pools.opened(limit=batch.limit), batch.orders, HOLD_MS)
    yield f"take_orders, {size}", _take(pools.queued(batch), batch)
    yield f"renew_work, {size}", op.RenewWork(pools.taken(batch), batch.ids, WORKER, HOLD_MS, HOLD_MS, HOLD_MS)
    yield f"put_off, {size}", put_off(BEGUN_MAX)
    dead = put_off(1)
    yield f"put_off as dead, {size}", dead
    yield f"replay_dead, {size}", op.ReplayDead(dead.sku, batch.ids)
    yield f"sweep_outbox, {size}", sweep(pools.queued(batch, after_ms=0), BEGUN_MAX)
    yield f"sweep_outbox as dead, {size}", sweep(pools.taken(batch, work_ms=0), 1)
    yield f"read_submitted, {size}", op.ReadSubmitted(pools.taken(batch), batch.ids)


def _of_holds(pools: LargestPools, size: str, batch: Batch) -> Cases:
    yield f"expire_due, {size}", op.ExpireDue(pools.reserved(batch, hold_ms=0), BATCH)
    yield f"read_orders, {size}", op.ReadOrders(pools.reserved(batch), batch.ids)
    yield f"inspect_orders, {size}", op.InspectOrders(pools.reserved(batch), batch.ids)
    sku = pools.reserved(batch)
    frozen = pools.after(sku, op.FreezePool(sku, 1))
    yield (
        f"thaw_pool, {size.replace(' of', ' decided of', 1)}",
        op.ThawPool(frozen, 2, 0, decided=tuple((one, "cancelled") for one in batch.ids), is_last=False),
    )


def _of_carts(pools: LargestPools) -> Cases:
    sku = pools.opened(segments=1)
    carts = [Cart(f"cart-{number}", [(sku, 1), (f"{sku}-other", 1)]) for number in range(BATCH)]
    pools.store.execute_many([op.OpenCart(cart, 0) for cart in carts])
    yield f"list_carts, {BATCH:,}", op.ListCarts(sku, BATCH)
    yield f"list_due_carts, {BATCH:,}", op.ListDueCarts(sku, BATCH)
    yield f"inspect_carts, {BATCH:,}", op.InspectCarts(sku, tuple(cart.cart_id for cart in carts))


def _of_shards(pools: LargestPools) -> Cases:
    def opened() -> Shard:
        shard = Shard(pools.context.sku("step"), 0, "a")
        pools.context.skus.append(shard)
        pools.store.execute(op.OpenPool(shard, STOCK, pools.segments, gated=False))
        return shard

    yield "send_units, all segments", op.SendUnits(opened(), 1, STOCK)
    yield "receive_units, all segments", op.ReceiveUnits(opened(), 1, 1, STOCK, 1)
    shard = opened()
    pools.store.execute(op.ReserveMany(shard, pools.batches()[ONE_UNIT].orders, 0))
    yield "look_at_shard, holds are due", op.LookAtShard(shard)


def _of_claims_and_waiters(pools: LargestPools) -> Cases:
    namespace = pools.context.sku("claims")
    keys = [f"key-{number}" for number in range(50 * BATCH) if once_partition(f"key-{number}") == 0][:BATCH]
    claims = [ClaimKey(RecordName(namespace, key), "m", "p", "task", 60_000, 60_000) for key in keys]
    pools.store.execute_many(claims)
    yield f"list_claims, {BATCH:,}", ListClaims(namespace, 0, BATCH)

    def waited_for(times: FairTimes) -> str:
        name = pools.context.sku("fair")
        pools.store.execute(AcquireFair(name, "holder", "p", HOLD_MS, LONG))
        waiters = [AcquireFair(name, f"waiter-{number}", f"p{number}", HOLD_MS, times) for number in range(WAITERS)]
        pools.store.execute_many(waiters)
        if times is SHORT:
            time.sleep(SHORT_SECONDS)
        return name

    yield f"acquire_fair, {WAITERS:,} dead waiters", AcquireFair(waited_for(SHORT), "next", "p", HOLD_MS, LONG)
    yield f"release_fair, {WAITERS:,} dead waiters", ReleaseFair(waited_for(SHORT), "holder", LONG)
    name = waited_for(LONG)
    client, key = pools.store.client, fair_keys(name).waiters
    found: Any = client.hgetall(key)
    # The server then believes that it has seen each waiter's subscription, which is not there.
    client.hset(key, mapping={waiter: text[:-1] + b"+" for waiter, text in found.items()})
    yield f"release_fair, {WAITERS:,} waiters whose connections are gone", ReleaseFair(name, "holder", LONG)
