"""Calls on a pool whose replies are lost, on one server or on a cluster, and what their answers say of a replay."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from typing import Any, Final

from segmented import protocol as op
from segmented.models import Order
from tests.fixtures.stores import Side
from tests.support.contract.orders.submitting import queue
from tests.support.contract.pools.shop import Shop

ROUNDS: Final = 15
STOCK: Final = 1_000_000


class LossyPool:
    """A pool, and calls whose first reply is lost; `lose` makes the next reply of its server get lost."""

    def __init__(self, side: Side, lose: Callable[[str], None]) -> None:
        self.shop = Shop(side, side.name("lossy"))
        self.lost = 0
        self._lose = lose
        self._numbers = count()

    def lossy(self, call: Callable[[], Any]) -> Any:  # noqa: ANN401  # the call's own answer
        """Make a call whose first reply gets lost."""
        self._lose(self.shop.keys.meta)
        self.lost += 1
        return call()

    def name(self) -> str:
        return f"n{next(self._numbers)}"

    def reserved(self, *, hold_ms: int = 600_000) -> str:
        order_id = self.name()
        self.shop.reserved(order_id, hold_ms=hold_ms)
        return order_id

    def calls(self) -> dict[str, Callable[[], Callable[[], Any]]]:
        """Return, for each kind of call, what prepares one and returns it; it can be called again."""
        shop = self.shop

        def ending(end: Callable[[str], Any], *, hold_ms: int = 600_000) -> Callable[[], Callable[[], Any]]:
            return lambda: partial(end, self.reserved(hold_ms=hold_ms))

        def new(call: Callable[[str], Any]) -> Callable[[], Callable[[], Any]]:
            return lambda: partial(call, self.name())

        return {
            "confirm": ending(shop.confirm),
            "cancel": ending(shop.cancel),
            "expire": ending(shop.expire, hold_ms=0),
            "reserve": new(shop.reserve),
            "restock": new(partial(shop.restock, 3)),
            "withdraw": new(partial(shop.withdraw, 3)),
            "submit": new(lambda order_id: queue(shop, Order(order_id))[0]),
        }


def replays(pool: LossyPool) -> dict[str, tuple[int, int]]:
    """Make each kind of call ROUNDS times with a lost reply, and once more; count the answers that say replay."""
    found = {}
    for name, prepare in pool.calls().items():
        prepare()()  # the server knows the script
        own = again = 0
        for _ in range(ROUNDS):
            call = prepare()
            own += pool.lossy(call).replay
            again += call().replay
        found[name] = (own, again)
    return found


def replays_in_batches(pool: LossyPool, size: int) -> dict[str, list[bool | None]]:
    """Make calls for many orders, one of them twice, with a lost reply; return what the answers say of a replay."""
    shop = pool.shop
    orders = [Order(pool.name()) for _ in range(size)]
    ids = [order.order_id for order in orders]
    queued = [Order(pool.name()) for _ in range(size)]
    voided = [Order(pool.name()) for _ in range(size)]
    shop.reserve_many(voided)
    calls: dict[str, Callable[[], Sequence[Any]]] = {
        "reserve_many": lambda: shop.reserve_many([*orders, orders[0]]),
        "confirm_many": lambda: shop.confirm_many(*ids, ids[0]),
        "cancel_many": lambda: shop.cancel_many(*(order.order_id for order in voided), voided[0].order_id),
        "submit_many": lambda: queue(shop, *queued, queued[0]),
    }
    return {name: [one.replay for one in pool.lossy(call)] for name, call in calls.items()}


def operations_on_the_pool(pool: LossyPool) -> dict[str, Callable[[], Any]]:
    """Return the calls that change the pool as a whole, in an order in which each changes something."""
    shop = pool.shop
    return {
        "open": lambda: type(shop.open(STOCK, 4)).__name__,
        "resize": lambda: shop.side.execute(op.Resize(shop.sku, 8)).replay,
        "close": lambda: shop.close().replay,
    }
