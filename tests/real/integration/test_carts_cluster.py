"""Carts over the three masters of a cluster: each sku's pool on another one, each script in one hash slot."""

from dataclasses import replace

import pytest

from segmented import protocol as op
from segmented.keys import shard_keys
from segmented.models import Cart, CartRefused, CartReserved, CartSettled, SoldOut
from segmented.stock import AsyncCarts, Carts
from segmented.stock.audit import audit_plan
from tests.fixtures.stores import Side
from tests.fixtures.stores_deployed import COLOURS, deployed_side
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


def test_what_was_decided_and_not_carried_out_is_finished_from_another_process(
    shared_sides: tuple[Side, Side], shops: list[Shop]
) -> None:
    carts = carts_of(shared_sides[0])
    sold, void = (Cart(cart_id, [(shop.sku, 2) for shop in shops]) for cart_id in ("sold", "void"))
    for cart in (sold, void):
        assert isinstance(carts.reserve(cart), CartReserved)
    for shop in shops:
        shared_sides[0].execute(op.PinOrder(shop.sku, sold.order_id, sold.home))
    shared_sides[0].execute(op.DecideCart(sold.home, "sold", "confirmed"))
    shared_sides[0].execute(op.DecideCart(void.home, "void", "expired"))
    sweep = carts_of(shared_sides[1]).finish(sold.home)
    assert {(one.cart_id, one.state) for one in sweep.finished} == {("sold", "confirmed"), ("void", "expired")}
    assert [shop.totals() for shop in shops] == [(18, 0, 2)] * 3


@pytest.mark.parametrize("colour", COLOURS)
def test_an_audit_says_which_pool_it_could_not_read_and_guesses_nothing(private_cluster: Cluster, colour: str) -> None:
    side, other = (deployed_side(private_cluster.url, colour, patience=patience) for patience in (60.0, 6.0))
    home, line, _ = shops_on(side, private_cluster)
    cart = Cart("c1", [(home.sku, 1), (line.sku, 1)])
    carts_of(side).reserve(cart)
    side.execute(op.PinOrder(line.sku, cart.order_id, home.sku))
    gone = private_cluster.master_of(home.keys.meta)
    private_cluster.replica_of(gone).kill()
    gone.kill()
    report = other.run(audit_plan(line.sku))[0]
    assert report.is_clean
    (told,) = report.unread
    assert told.startswith(f"carts with pool {home.sku!r}: ")
    side.close()
    other.close()
