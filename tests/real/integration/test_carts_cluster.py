"""Carts over the three masters of a cluster: each sku's pool on another one, each script in one hash slot."""

from dataclasses import replace

import pytest

from segmented.keys import shard_keys
from segmented.models import Cart, CartRefused, CartReserved, CartSettled, SoldOut
from segmented.stock import AsyncCarts, Carts
from tests.fixtures.stores import Side
from tests.support.contract.pools.shop import Shop
from tests.support.servers.deployments import Cluster

STOCK = 20


def carts_of(side: Side, hold: float = 600.0) -> Carts:
    return side.made(lambda store: Carts(store, hold=hold), lambda store: AsyncCarts(store, hold=hold))


@pytest.fixture
def shops(shared_sides: tuple[Side, Side], cluster: Cluster) -> list[Shop]:
    """Three open pools in the order of their skus, one on each master."""
    return shops_on(shared_sides[0], cluster)


def shops_on(side: Side, cluster: Cluster) -> list[Shop]:
    word, found = side.name("cart"), dict[int, str]()
    for number in range(1_000):
        sku = f"{word}-{number:04}"
        found.setdefault(id(cluster.master_of(shard_keys(sku).meta)), sku)
        if len(found) == 3:
            break
    made = [Shop(side, sku) for sku in sorted(found.values())]
    for shop in made:
        shop.open(STOCK, 3)
    return made


def test_a_cart_over_three_masters_is_all_or_nothing(shared_sides: tuple[Side, Side], shops: list[Shop]) -> None:
    first, second = (carts_of(side) for side in shared_sides)
    skus = [shop.sku for shop in shops]
    sold, void = (Cart(cart_id, [(sku, 3) for sku in skus]) for cart_id in ("sold", "void"))
    assert isinstance(first.reserve(sold), CartReserved)
    assert isinstance(first.reserve(void), CartReserved)
    assert second.confirm("sold", home=sold.home) == CartSettled("sold", "confirmed", replay=False, is_finished=True)
    assert second.cancel("void", home=void.home) == CartSettled("void", "cancelled", replay=False, is_finished=True)
    too_many = Cart("too many", [(sku, 18 if sku == skus[2] else 1) for sku in skus])
    refused = second.reserve(too_many)
    assert isinstance(refused, CartRefused)
    assert refused.sku == skus[2]
    assert isinstance(refused.refusal, SoldOut)
    again = replace(refused, refusal=replace(refused.refusal, replay=True), replay=True)
    assert first.reserve(too_many) == again
    assert [shop.totals() for shop in shops] == [(17, 0, 3)] * 3
    for shop in shops:
        shop.check_books()
