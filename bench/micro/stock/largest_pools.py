"""Pools with the maximum number of segments, and the largest operations on them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from bench.micro.stock.context import BATCH, HOLD_MS, STOCK
from segmented import protocol as op
from segmented.models import ORDER_ID_BYTES_MAX, Order

if TYPE_CHECKING:
    from collections.abc import Callable

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
