"""Carts under test: pools and short calls, and an audit of every pool at the end."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final, cast

from segmented import protocol as op
from segmented.errors import AlreadySettled
from segmented.keys import cart_keys, shard_keys
from segmented.models import Cart, CartAnswer, CartLine, CartRecord, CartReserved, CartSettled, OrderRecord
from segmented.stock import AsyncCarts, Carts
from tests.fixtures.stores import Side
from tests.support.contract.pools.shop import Shop

LONG: Final = 600.0
SHORT: Final = 60.0
"""How long what `let_lapse` ends was to be held."""
SHORT_MS: Final = 60_000


class CartPools:
    """Pools of one store, and carts over them."""

    def __init__(self, side: Side) -> None:
        self.side = side
        self.shops: dict[str, Shop] = {}
        self.torn: set[str] = set()
        """Carts that the test itself has set against their lines."""
        self._word = side.name("pools")

    def carts(self, hold: float = LONG) -> Carts:
        return self.side.made(lambda store: Carts(store, hold=hold), lambda store: AsyncCarts(store, hold=hold))

    def sku(self, letter: str) -> str:
        """Name a pool; the names sort as the letters do."""
        return f"{self._word}-{letter}"

    def open(self, letter: str, stock: int, *, limit_per_customer: int | None = None, gated: bool = False) -> Shop:
        shop = Shop(self.side, self.sku(letter))
        shop.open(stock, 3, gated=gated, limit_per_customer=limit_per_customer)
        self.shops[letter] = shop
        return shop

    def cart(self, cart_id: str, *lines: CartLine, customer_id: str | None = None) -> Cart:
        """Make a cart of lines that name letters."""
        return Cart(cart_id, [(self.sku(letter), quantity) for letter, quantity in lines], customer_id)

    def reserve(self, cart: Cart, *, hold: float = LONG) -> CartAnswer:
        return self.carts(hold).reserve(cart)

    def reserved(self, cart: Cart, *, hold: float = LONG) -> CartReserved:
        """Reserve, where anything else would be a mistake of the test."""
        answer = self.reserve(cart, hold=hold)
        assert isinstance(answer, CartReserved), answer
        return answer

    def confirm(self, cart: Cart) -> CartSettled:
        """Confirm, and return how the cart has ended, also if otherwise than asked."""
        return ended(partial(self.carts().confirm, cart.cart_id, home=cart.home))

    def cancel(self, cart: Cart) -> CartSettled:
        """Cancel, and return how the cart has ended, also if otherwise than asked."""
        return ended(partial(self.carts().cancel, cart.cart_id, home=cart.home))

    def read(self, cart: Cart) -> CartRecord:
        """Read the record, without its time."""
        return replace(self.carts().read(cart.cart_id, home=cart.home), left_ms=0)

    def line(self, letter: str, cart: Cart) -> OrderRecord | None:
        return self.shops[letter].record(cart.order_id)

    def let_lapse(self, *carts: Cart) -> None:
        """Let what was reserved for SHORT, the lines too, be over; what was for LONG lives on."""
        if self.side.server is None:
            self.side.pass_time(SHORT + 1)
            return
        server = self.side.raw()
        for cart in carts:
            keys = cart_keys(cart.home)
            state, _, rest = str(server.hget(keys.carts, cart.cart_id)).split("	", 2)
            server.hset(keys.carts, cart.cart_id, f"{state}\t1\t{rest}")
            server.zadd(keys.unfinished, {cart.cart_id: 1}, xx=True)
            for sku, _ in cart.lines:
                server.zadd(shard_keys(sku).holds, {cart.order_id: 1}, xx=True)

    def totals(self) -> dict[str, tuple[int, int, int]]:
        """Units available, reserved and confirmed in each pool."""
        return {letter: shop.totals() for letter, shop in self.shops.items()}

    def due(self, letter: str = "a") -> list[str]:
        """Name the carts that anybody may finish now."""
        return [record.cart.cart_id for record in self.side.execute(op.ListDueCarts(self.sku(letter), 1_000))]

    def check_books(self) -> None:
        """Audit every pool: it names exactly the carts that the test has torn."""
        assert set().union(*(shop.check_books(torn=self.torn) for shop in self.shops.values())) == self.torn


def ended(end: Callable[[], CartSettled]) -> CartSettled:
    """Return the answer to a confirm or a cancel, or how the cart has ended otherwise."""
    try:
        return end()
    except AlreadySettled as error:
        return cast("CartSettled", error.settled)
