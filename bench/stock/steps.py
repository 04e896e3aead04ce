"""The server's CPU time for each script at the largest sizes that are allowed: no other client is served meanwhile.

A figure is the CPU time of the server's main thread for one operation, divided by the number of its scripts, and of
several rounds the least: a processor that is shared with others is slower.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from bench.locks.figures import Figure
from bench.stock.context import BATCH, HOLD_MS, STOCK, Counter, server_of
from segmented import protocol as op
from segmented.models import ORDER_ID_BYTES_MAX, Order

if TYPE_CHECKING:
    from collections.abc import Callable

    import redis

    from bench.stock.context import BenchContext
    from segmented import RedisStore

MILLISECONDS_MAX: Final = 10.0
PAGE_BYTES_MAX: Final = 262_144
PARTS_EACH: Final = 4
LIMIT: Final = 5
BATCHES: Final = 30
WHOLE_ORDERS: Final = 20
Prepared = op.Operation[Any]


class LargestPools:
    """Creates pools with the maximum number of segments, and the operations that are measured on them."""

    def __init__(self, context: BenchContext, store: RedisStore) -> None:
        """Create pools through `store`; `context` removes them."""
        self._context = context
        self._store = store
        self._segments = context.sizes.segments_most

    def cases(self) -> dict[str, Callable[[], Prepared]]:
        """Return what is measured: the name, and how to prepare the operation."""
        count, some = self._segments, self._segments // 2
        each_one: dict[str, Callable[[], Prepared]] = {
            "open": lambda: op.OpenPool(self._context.sku("step"), STOCK, count, gated=False),
            "read_pool": lambda: op.ReadPool(self._opened()),
            "restock, all segments": lambda: op.Restock(self._opened(), "r", STOCK),
            "withdraw, all segments": lambda: op.Withdraw(self._opened(), "w", STOCK),
            f"resize, 1 to {count:,}": lambda: op.Resize(self._opened(segments=1), count),
            f"resize, {count:,} to {some:,}": lambda: op.Resize(self._opened(), some),
            "trim_ledger, all segments": lambda: op.TrimLedger(self._opened(), 0),
            "reserve, 1 order of all segments": lambda: op.Reserve(self._opened(count), Order("o", count), HOLD_MS),
            "cancel, 1 order of all segments": lambda: op.Cancel(self._reserved((Order("o", count),), count), "o"),
            f"cancel_many, {WHOLE_ORDERS} orders of all segments": self._whole_orders,
            "read_ledger, a page after batches": lambda: op.ReadSteps(self._with_batches(), 0, BATCH),
        }
        batches = {
            "of 1 unit": (self._orders(1), STOCK, None),
            f"of 1 unit, ids of {ORDER_ID_BYTES_MAX} bytes": (self._orders(1, ORDER_ID_BYTES_MAX), STOCK, None),
            "of 1 unit, with customers and a limit": (self._orders(1, customers=True), STOCK, LIMIT),
            "of 1 unit, 1 unit in a segment": (self._orders(1), count, None),
            f"of {PARTS_EACH} units, 1 unit in a segment": (self._orders(PARTS_EACH), count, None),
        }
        for name, (orders, stock, limit) in batches.items():
            each_one[f"reserve_many, {BATCH:,} {name}"] = lambda orders=orders, stock=stock, limit=limit: (  # type: ignore[misc]  # bound here
                op.ReserveMany(self._opened(stock, limit=limit), orders, HOLD_MS)
            )
            for state in ("confirmed", "cancelled", "expired"):
                each_one[f"{state}, {BATCH:,} {name}"] = lambda state=state, orders=orders, stock=stock, limit=limit: (  # type: ignore[misc]  # bound here
                    op.SettleMany(
                        self._reserved(orders, stock, limit=limit, hold_ms=0 if state == "expired" else HOLD_MS),
                        state,
                        tuple(order.order_id for order in orders),
                    )
                )
        return each_one

    def _opened(self, stock: int = STOCK, *, segments: int | None = None, limit: int | None = None) -> str:
        sku = self._context.sku("step")
        self._store.execute(op.OpenPool(sku, stock, segments or self._segments, gated=False, customer_limit=limit))
        return sku

    def _orders(self, quantity: int, id_bytes: int = 1, *, customers: bool = False) -> tuple[Order, ...]:
        count = min(BATCH, self._segments // quantity)
        return tuple(
            Order(f"{index}".rjust(id_bytes, "o"), quantity, f"customer-{index}" if customers else None)
            for index in range(count)
        )

    def _reserved(
        self, orders: tuple[Order, ...], stock: int, *, limit: int | None = None, hold_ms: int = HOLD_MS
    ) -> str:
        sku = self._opened(stock, limit=limit)
        self._store.execute(op.ReserveMany(sku, orders, hold_ms))
        return sku

    def _whole_orders(self) -> Prepared:
        sku, ids = self._opened(self._segments), tuple(f"o{index}" for index in range(WHOLE_ORDERS))
        for order_id in ids:
            self._store.execute(op.Reserve(sku, Order(order_id, self._segments), HOLD_MS))
            self._store.execute(op.Restock(sku, order_id, self._segments))
        return op.SettleMany(sku, "cancelled", ids)

    def _with_batches(self) -> str:
        sku = self._opened(segments=1)
        for batch in range(BATCHES):
            orders = tuple(Order(f"order-{batch}-{index}", 1) for index in range(BATCH))
            self._store.execute(op.ReserveMany(sku, orders, HOLD_MS))
        return sku


def measure_steps(context: BenchContext) -> list[Figure]:
    """Measure each operation, and the size of a page of the ledger."""
    rounds = context.sizes.step_rounds
    figures: list[Figure] = []
    with server_of(context) as (store, client):
        cases = LargestPools(context, store).cases()
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
    first, before = _cpu_ms(client), _cpu_ms(client)
    answer = store.execute(operation)
    used = _cpu_ms(client) - before - (before - first)  # without the question itself
    calls, _ = counter.of()
    return max(0.0, used) / max(1, calls), calls, answer


def _cpu_ms(client: redis.Redis) -> float:
    found: Any = client.info("cpu")
    return 1_000 * (float(found["used_cpu_user_main_thread"]) + float(found["used_cpu_sys_main_thread"]))
