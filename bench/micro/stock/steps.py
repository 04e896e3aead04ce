"""The server's CPU time for each script at the largest sizes that are allowed: no other client is served meanwhile.

A figure is the CPU time of the server's main thread for one operation, divided by the number of its scripts, and of
several rounds the least: a processor that is shared with others is slower.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from bench.figures import Figure
from bench.micro.stock.context import BATCH, HOLD_MS, STOCK, Counter, cpu_ms, server_of
from segmented import protocol as op
from segmented.keys import fair_keys
from segmented.models import ORDER_ID_BYTES_MAX, Cart, Order, Shard
from segmented.models.dedup import RecordName
from segmented.once_keys import once_partition
from segmented.protocol.dedup import ClaimKey, ListClaims
from segmented.protocol.fair import AcquireFair, FairTimes, ReleaseFair
from segmented.stock.plans import LISTED_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

    import redis

    from bench.micro.stock.context import BenchContext
    from segmented import RedisStore

PARTS_EACH: Final = 4
LIMIT: Final = 5
BATCHES: Final = 30
WHOLE_ORDERS: Final = 20
Prepared = op.Operation[Any]


class LargestPools:
    """Creates pools with the maximum number of segments, and the operations that are measured on them."""

    def __init__(self, context: BenchContext, store: RedisStore) -> None:
        """Create pools through `store`; `context` removes them."""
        self.context = context
        self.store = store
        self.segments = context.sizes.segments_most

    def cases(self) -> dict[str, Callable[[], Prepared]]:
        """Return what is measured: the name, and how to prepare the operation."""
        count, some = self.segments, self.segments // 2
        each_one: dict[str, Callable[[], Prepared]] = {
            "open": lambda: op.OpenPool(self.context.sku("step"), STOCK, count, gated=False),
            "read_pool": lambda: op.ReadPool(self.opened()),
            "restock, all segments": lambda: op.Restock(self.opened(), "r", STOCK),
            "withdraw, all segments": lambda: op.Withdraw(self.opened(), "w", STOCK),
            f"resize, 1 to {count:,}": lambda: op.Resize(self.opened(segments=1), count),
            f"resize, {count:,} to {some:,}": lambda: op.Resize(self.opened(), some),
            f"resize, {count:,} to 1": lambda: op.Resize(self.opened(), 1),
            f"resize, 1 to {count:,}, which it had before": self._grown_again,
            "trim_ledger, all segments": lambda: op.TrimLedger(self.opened(), 0),
            "reserve, 1 order of all segments": lambda: op.Reserve(self.opened(count), Order("o", count), HOLD_MS),
            "cancel, 1 order of all segments": lambda: op.Cancel(self.reserved((Order("o", count),), count), "o"),
            f"cancel_many, {WHOLE_ORDERS} orders of all segments": self._whole_orders,
            "read_ledger, a page after batches": lambda: op.ReadSteps(self._with_batches(), 0, BATCH),
        }
        batches = {
            "of 1 unit": (self.orders(1), STOCK, None),
            f"of 1 unit, ids of {ORDER_ID_BYTES_MAX} bytes": (self.orders(1, ORDER_ID_BYTES_MAX), STOCK, None),
            "of 1 unit, with customers and a limit": (self.orders(1, customers=True), STOCK, LIMIT),
            "of 1 unit, 1 unit in a segment": (self.orders(1), count, None),
            f"of {PARTS_EACH} units, 1 unit in a segment": (self.orders(PARTS_EACH), count, None),
        }
        for name, (orders, stock, limit) in batches.items():
            each_one[f"reserve_many, {BATCH:,} {name}"] = lambda orders=orders, stock=stock, limit=limit: (  # type: ignore[misc]  # bound here
                op.ReserveMany(self.opened(stock, limit=limit), orders, HOLD_MS)
            )
            for state in ("confirmed", "cancelled", "expired"):
                each_one[f"{state}, {BATCH:,} {name}"] = lambda state=state, orders=orders, stock=stock, limit=limit: (  # type: ignore[misc]  # bound here
                    op.SettleMany(
                        self.reserved(orders, stock, limit=limit, hold_ms=0 if state == "expired" else HOLD_MS),
                        state,
                        tuple(order.order_id for order in orders),
                    )
                )
        return each_one

    def opened(self, stock: int = STOCK, *, segments: int | None = None, limit: int | None = None) -> str:
        """Open a pool, of all segments unless told otherwise, and return its name."""
        sku = self.context.sku("step")
        self.store.execute(op.OpenPool(sku, stock, segments or self.segments, gated=False, limit_per_customer=limit))
        return sku

    def orders(self, quantity: int, id_bytes: int = 1, *, customers: bool = False) -> tuple[Order, ...]:
        """Create as many orders as a batch takes, and as the segments have parts for."""
        count = min(BATCH, self.segments // quantity)
        return tuple(
            Order(f"{index}".rjust(id_bytes, "o"), quantity, f"customer-{index}" if customers else None)
            for index in range(count)
        )

    def reserved(
        self, orders: tuple[Order, ...], stock: int, *, limit: int | None = None, hold_ms: int = HOLD_MS
    ) -> str:
        """Open a pool in which these orders are reserved, and return its name."""
        sku = self.opened(stock, limit=limit)
        self.store.execute(op.ReserveMany(sku, orders, hold_ms))
        return sku

    def _grown_again(self) -> Prepared:
        sku = self.opened()
        self.store.execute(op.Resize(sku, 1))
        return op.Resize(sku, self.segments)

    def _whole_orders(self) -> Prepared:
        sku, ids = self.opened(self.segments), tuple(f"o{index}" for index in range(WHOLE_ORDERS))
        for order_id in ids:
            self.store.execute(op.Reserve(sku, Order(order_id, self.segments), HOLD_MS))
            self.store.execute(op.Restock(sku, order_id, self.segments))
        return op.SettleMany(sku, "cancelled", ids)

    def _with_batches(self) -> str:
        sku = self.opened(segments=1)
        for batch in range(BATCHES):
            orders = tuple(Order(f"order-{batch}-{index}", 1) for index in range(BATCH))
            self.store.execute(op.ReserveMany(sku, orders, HOLD_MS))
        return sku


BEGUN_MAX: Final = 5
WAITERS: Final = 1_000
SHORT_SECONDS: Final = 0.4
SHORT: Final = FairTimes(400, 400, 400)
"""A waiter's presence that outlasts the arrival of the others."""
LONG: Final = FairTimes(HOLD_MS, HOLD_MS, HOLD_MS)
WORKER: Final = "worker"


class OtherScripts(LargestPools):
    """Prepares the largest operations other than the reservations of `LargestPools`."""

    def cases(self) -> dict[str, Callable[[], Prepared]]:
        """Return what is measured: the name, and how to prepare the operation."""
        return self._of_submitted() | self._of_holds() | self._of_carts() | self._of_others()

    # --- submitted orders ---

    def _of_submitted(self) -> dict[str, Callable[[], Prepared]]:
        kinds = {
            "of 1 unit": (1, 1, None),
            f"of 1 unit, ids of {ORDER_ID_BYTES_MAX} bytes": (1, ORDER_ID_BYTES_MAX, None),
            "of 1 unit, with customers and a limit": (1, 1, LIMIT),
            f"of {PARTS_EACH} units, 1 unit in a segment": (PARTS_EACH, 1, None),
        }
        found: dict[str, Callable[[], Prepared]] = {}
        for name, (quantity, id_bytes, limit) in kinds.items():
            orders = self.orders(quantity, id_bytes, customers=limit is not None)
            stock = self.segments if quantity > 1 else STOCK
            ids = tuple(order.order_id for order in orders)
            queued = lambda orders=orders, stock=stock, limit=limit: self._queued(orders, stock, limit)  # noqa: E731  # bound here
            taken = lambda work_ms=HOLD_MS, queued=queued, ids=ids: self._taken(queued(), ids, work_ms)  # noqa: E731  # bound here
            found |= {
                f"queue_orders, {BATCH:,} {name}": lambda orders=orders, limit=limit: op.QueueOrders(  # type: ignore[misc]  # bound here
                    self.opened(limit=limit), orders, HOLD_MS
                ),
                f"take_orders, {BATCH:,} {name}": lambda queued=queued, ids=ids: self._take(queued(), ids),  # type: ignore[misc]  # bound here
                f"renew_work, {BATCH:,} {name}": lambda taken=taken, ids=ids: op.RenewWork(  # type: ignore[misc]  # bound here
                    taken(), ids, WORKER, HOLD_MS, HOLD_MS, HOLD_MS
                ),
                f"put_off, {BATCH:,} {name}": lambda taken=taken, ids=ids: op.PutOff(  # type: ignore[misc]  # bound here
                    taken(), ids, WORKER, 1, counts=True, begun_max=BEGUN_MAX, reason="r" * 100
                ),
                f"put_off as dead, {BATCH:,} {name}": lambda taken=taken, ids=ids: op.PutOff(  # type: ignore[misc]  # bound here
                    taken(), ids, WORKER, 1, counts=True, begun_max=1, reason="r" * 100
                ),
                f"sweep_outbox, {BATCH:,} {name}": lambda orders=orders, limit=limit: self._sweep(  # type: ignore[misc]  # bound here
                    self._queued(orders, STOCK, limit, after_ms=0), BEGUN_MAX
                ),
                f"sweep_outbox as dead, {BATCH:,} {name}": lambda taken=taken: self._sweep(taken(work_ms=0), 1),  # type: ignore[misc]  # bound here
                f"replay_dead, {BATCH:,} {name}": lambda taken=taken, ids=ids: self._dead(taken(), ids),  # type: ignore[misc]  # bound here
                f"read_submitted, {BATCH:,} {name}": lambda taken=taken, ids=ids: op.ReadSubmitted(taken(), ids),  # type: ignore[misc]  # bound here
            }
        return found

    def _queued(self, orders: tuple[Order, ...], stock: int, limit: int | None, *, after_ms: int = HOLD_MS) -> str:
        sku = self.opened(stock, limit=limit)
        self.store.execute(op.QueueOrders(sku, orders, after_ms))
        return sku

    def _take(self, sku: str, ids: tuple[str, ...], work_ms: int = HOLD_MS) -> op.TakeOrders:
        return op.TakeOrders(sku, ids, WORKER, HOLD_MS, HOLD_MS, work_ms, BEGUN_MAX)

    def _taken(self, sku: str, ids: tuple[str, ...], work_ms: int) -> str:
        self.store.execute(self._take(sku, ids, work_ms))
        return sku

    def _sweep(self, sku: str, begun_max: int) -> Prepared:
        return op.SweepOutbox(sku, BATCH, 1, 1_000, HOLD_MS, HOLD_MS, begun_max)

    def _dead(self, sku: str, ids: tuple[str, ...]) -> Prepared:
        put_off = op.PutOff(sku, ids, WORKER, 1, counts=True, begun_max=1, reason="r" * 100)
        self.store.execute(put_off)
        return op.ReplayDead(sku, ids)

    # --- holds and records ---

    def _of_holds(self) -> dict[str, Callable[[], Prepared]]:
        found: dict[str, Callable[[], Prepared]] = {}
        for name, orders, stock in (
            ("of 1 unit", self.orders(1), STOCK),
            (f"of 1 unit, ids of {ORDER_ID_BYTES_MAX} bytes", self.orders(1, ORDER_ID_BYTES_MAX), STOCK),
            (f"of {PARTS_EACH} units, 1 unit in a segment", self.orders(PARTS_EACH), self.segments),
        ):
            ids = tuple(order.order_id for order in orders)
            decided = tuple((order_id, "cancelled") for order_id in ids)
            found |= {
                f"expire_due, {BATCH:,} {name}": lambda orders=orders, stock=stock: op.ExpireDue(  # type: ignore[misc]  # bound here
                    self.reserved(orders, stock, hold_ms=0), BATCH
                ),
                f"read_orders, {BATCH:,} {name}": lambda orders=orders, stock=stock, ids=ids: op.ReadOrders(  # type: ignore[misc]  # bound here
                    self.reserved(orders, stock), ids
                ),
                f"inspect_orders, {BATCH:,} {name}": lambda orders=orders, stock=stock, ids=ids: op.InspectOrders(  # type: ignore[misc]  # bound here
                    self.reserved(orders, stock), ids
                ),
                f"thaw_pool, {BATCH:,} decided {name}": lambda orders=orders, stock=stock, decided=decided: op.ThawPool(  # type: ignore[misc]  # bound here
                    self._frozen(self.reserved(orders, stock)), 2, 0, decided=decided, is_last=False
                ),
            }
        return found | {
            f"list_due, {LISTED_MAX:,} of 1 unit": lambda: op.ListDue(self._due(), LISTED_MAX),
            "thaw_pool, the last step": lambda: op.ThawPool(self._frozen(self.opened()), 2, 0),
        }

    def _frozen(self, sku: str) -> str:
        self.store.execute(op.FreezePool(sku, 1))
        return sku

    def _due(self) -> str:
        sku = self.opened(segments=1)
        for batch in range(LISTED_MAX // BATCH):
            orders = tuple(Order(f"order-{batch}-{index}") for index in range(BATCH))
            self.store.execute(op.ReserveMany(sku, orders, 0))
        return sku

    # --- carts ---

    def _of_carts(self) -> dict[str, Callable[[], Prepared]]:
        return {
            f"list_carts, {BATCH:,}": lambda: op.ListCarts(self._with_carts(), BATCH),
            f"list_due_carts, {BATCH:,}": lambda: op.ListDueCarts(self._with_carts(), BATCH),
            f"inspect_carts, {BATCH:,}": lambda: op.InspectCarts(
                self._with_carts(), tuple(f"cart-{number}" for number in range(BATCH))
            ),
        }

    def _with_carts(self) -> str:
        sku = self.opened(segments=1)
        carts = [Cart(f"cart-{number}", [(sku, 1), (f"{sku}-other", 1)]) for number in range(BATCH)]
        self.store.execute_many([op.OpenCart(cart, 0) for cart in carts])
        return sku

    # --- shards, claims and waiters ---

    def _of_others(self) -> dict[str, Callable[[], Prepared]]:
        return {
            "send_units, all segments": lambda: op.SendUnits(self._shard(), 1, STOCK),
            "receive_units, all segments": lambda: op.ReceiveUnits(self._shard(), 1, 1, STOCK, 1),
            "look_at_shard, holds are due": lambda: op.LookAtShard(self._shard(due=BATCH)),
            f"list_claims, {BATCH:,}": self._claims,
            f"acquire_fair, {WAITERS:,} dead waiters": lambda: AcquireFair(
                self._fair(SHORT), "next", "p", HOLD_MS, LONG
            ),
            f"release_fair, {WAITERS:,} dead waiters": lambda: ReleaseFair(self._fair(SHORT), "holder", LONG),
            f"release_fair, {WAITERS:,} waiters whose connections are gone": lambda: ReleaseFair(
                self._deaf(self._fair(LONG)), "holder", LONG
            ),
        }

    def _shard(self, *, due: int = 0) -> Shard:
        shard = Shard(self.context.sku("step"), 0, "a")
        self.context.skus.append(shard)
        self.store.execute(op.OpenPool(shard, STOCK, self.segments, gated=False))
        if due:
            self.store.execute(op.ReserveMany(shard, self.orders(1)[:due], 0))
        return shard

    def _claims(self) -> Prepared:
        namespace = self.context.sku("claims")
        keys = [f"key-{number}" for number in range(50 * BATCH) if once_partition(f"key-{number}") == 0][:BATCH]
        claims = [ClaimKey(RecordName(namespace, key), "m", "p", "task", 60_000, 60_000) for key in keys]
        self.store.execute_many(claims)
        return ListClaims(namespace, 0, BATCH)

    def _fair(self, times: FairTimes) -> str:
        name = self.context.sku("fair")
        self.store.execute(AcquireFair(name, "holder", "p", HOLD_MS, LONG))
        waiters = [AcquireFair(name, f"waiter-{number}", f"p{number}", HOLD_MS, times) for number in range(WAITERS)]
        self.store.execute_many(waiters)
        if times is SHORT:
            time.sleep(SHORT_SECONDS)
        return name

    def _deaf(self, name: str) -> str:
        """Let the server believe that it has seen each waiter's subscription, which is not there."""
        client, key = self.store.client, fair_keys(name).waiters
        found: Any = client.hgetall(key)
        client.hset(key, mapping={waiter: text[:-1] + b"+" for waiter, text in found.items()})
        return name


MILLISECONDS_MAX: Final = 10.0
PAGE_BYTES_MAX: Final = 262_144


def measure_steps(context: BenchContext) -> list[Figure]:
    """Measure each operation, and the size of a page of the ledger."""
    rounds = context.sizes.step_rounds
    figures: list[Figure] = []
    with server_of(context) as (store, client):
        cases = LargestPools(context, store).cases() | OtherScripts(context, store).cases()
        for number, (name, prepare) in enumerate(cases.items()):
            context.progress("largest steps", number, len(cases))
            found = [_measured(store, client, prepare()) for _ in range(rounds)]
            least = min(milliseconds for milliseconds, _, _ in found)
            detail = {"calls": found[0][1], "segments": context.sizes.segments_most, "rounds": rounds}
            label = f"server CPU a script: {name}"
            figures.append(Figure(label, least, "ms", at_most=MILLISECONDS_MAX, detail=detail))
            if name.startswith("read_ledger"):
                steps = [len(step.lines) for step in found[0][2]]
                label = f"bytes in {name}, without the last change"
                figures.append(Figure(label, sum(steps[:-1]), "bytes", at_most=PAGE_BYTES_MAX, is_promise=True))
    return figures


def _measured(store: RedisStore, client: redis.Redis, operation: Prepared) -> tuple[float, int, Any]:
    """Return the milliseconds of an operation's scripts, on average, their number, and the answer."""
    counter = Counter(client)
    first, before = cpu_ms(client), cpu_ms(client)
    answer = store.execute(operation)
    used = cpu_ms(client) - before - (before - first)  # without the question itself
    calls, _ = counter.of()
    return max(0.0, used) / max(1, calls), calls, answer
