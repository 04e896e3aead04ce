"""A shop that sells carts of gated pools, and the judges of both of its sides."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from segmented import Pool, RedisStore
from segmented.errors import AlreadySettled
from segmented.models import Cart, CartReserved
from segmented.orders import Gate
from segmented.stock import Carts
from tests.support.dying import Died, DyingStore, StepCounter
from tests.support.pools.both_sides import judged
from tests.support.pools.cart_sides import judged_carts, lapse_cart, sold_in_sql

SKUS: Final = ("cap", "mug")
HOME: Final = "cap"
LINES: Final = [("mug", 2), ("cap", 1)]
SOLD: Final = {"cap": 1, "mug": 2}
STATES: Final = {"c": "confirmed", "x": "cancelled", "e": "expired", "f": "refused"}


@dataclass
class Shop:
    """Pools on both sides, and two processes; the second has seen nothing of the pools."""

    store: RedisStore
    other: RedisStore
    gate: Gate
    server_url: str
    database: str
    pools: list[Pool] = field(default_factory=list)

    def open(self, stock: int, *skus: str) -> Shop:
        for sku in skus:
            self.pools.append(Pool(self.store, sku, gate=self.gate))
            self.pools[-1].open(stock=stock, segments=4)
        return self

    def carts(self, store: object = None) -> Carts:
        return Carts(store or self.store, gate=self.gate)  # type: ignore[arg-type]  # a store that dies

    def reserved(self, cart_id: str) -> Cart:
        cart = Cart(cart_id, LINES)
        assert isinstance(self.carts().reserve(cart), CartReserved)
        return cart

    def lapse(self, cart: Cart) -> None:
        lapse_cart(self.server_url, cart)

    def sold(self) -> dict[str, dict[str, int]]:
        return sold_in_sql(self.database)

    def units(self) -> tuple[int, int, int]:
        return judged(self.server_url, self.database)

    def states(self, *, are_all_final: bool = True) -> dict[str, str]:
        return judged_carts(self.server_url, self.database, are_all_final=are_all_final)

    def check_audits(self) -> None:
        assert all(pool.audit().is_clean for pool in self.pools)

    def dies(self, counter: StepCounter, steps: int | None, act: Callable[[Carts], object]) -> bool:
        """Do it in a process that dies at a step; return whether it died."""
        counter.counted, counter.steps = 0, steps
        try:
            act(self.carts(DyingStore(self.store, counter)))
        except Died:
            return True
        finally:
            counter.steps = None
        return False


def end(carts: Carts, how: str, cart: Cart, lapse: Callable[[Cart], None]) -> str:
    """End a cart in one way, as another process does; return its state."""
    if how == "finish":
        lapse(cart)
        carts.finish(HOME)
    else:
        if how == "reserve":
            carts.reserve(cart)
        with suppress(AlreadySettled):
            (carts.cancel if how == "cancel" else carts.confirm)(cart.cart_id, home=HOME)
    return carts.read(cart.cart_id, home=HOME).state
