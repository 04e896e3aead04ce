"""A cart of two skus beside an order of each sku: round trips, and the server's CPU time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench.figures import Figure, of_rounds
from bench.micro.counts.tally import Counter
from bench.micro.stock.context import open_pool, server_of
from segmented.models import Cart
from segmented.stock import Carts, Pool

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.micro.counts.tally import Tally
    from bench.micro.stock.context import BenchContext

SEGMENTS: Final = 20
PROBES: Final = 10
"""Times that both are measured, in turn."""
CART: Final = "a cart of two skus"
ORDERS: Final = "an order of each sku"


def measure_carts(context: BenchContext) -> list[Figure]:
    """Reserve and confirm both in turn; the units are the same."""
    each = max(1, context.sizes.refused // PROBES)
    with server_of(context) as (store, client):
        skus = [context.sku(name) for name in ("one", "two")]
        for sku in skus:
            open_pool(store, sku, SEGMENTS)
        pools, carts = [Pool(store, sku) for sku in skus], Carts(store)

        def sell_cart(name: str) -> None:
            cart = Cart(name, [(sku, 1) for sku in skus])
            carts.reserve(cart)
            carts.confirm(name, home=cart.home)

        def sell_orders(name: str) -> None:
            for pool in pools:
                pool.reserve(name)
                pool.confirm(name)

        ways: dict[str, Callable[[str], None]] = {CART: sell_cart, ORDERS: sell_orders}
        for name, sell in ways.items():
            sell(f"{name[:5]}-first")  # loads the scripts
        counter = Counter(client)
        found: dict[str, list[Tally]] = {name: [] for name in ways}
        for probe in range(PROBES):
            context.progress("carts", probe, PROBES)
            for name, sell in ways.items():
                counter.begin()
                for number in range(each):
                    sell(f"{name[:5]}-{probe}-{number}")
                found[name].append(counter.tally(each, 0))
    cart, orders = found[CART], found[ORDERS]
    ratios = [one.server_us / max(1, other.server_us) for one, other in zip(cart, orders, strict=True)]
    return [
        of_rounds(f"{CART} / {ORDERS}: server CPU", ratios, ""),
        *(of_rounds(f"{name}: server CPU", [one.server_us / each for one in found[name]], "us") for name in ways),
        *(
            Figure(f"{name}: round trips", sum(one.round_trips for one in found[name]) / each / PROBES, "")
            for name in ways
        ),
    ]
