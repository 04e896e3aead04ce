"""A message finishes submitted orders only: one that names a reservation, a grant or a cart's line changes nothing."""

from segmented import protocol as op
from segmented.models import Order
from tests.fixtures.stores import Side
from tests.support.contract.carts.carts import CartPools
from tests.support.contract.orders.submitting import named, queue, submit, take
from tests.support.contract.pools.shop import Shop


def confirm_idle(shop: Shop, *order_ids: str) -> list[str]:
    """Confirm as a worker does first, orders whose units were taken at acceptance."""
    return named(shop.side.execute(op.SettleMany(shop.sku, "confirmed", order_ids, idle=True)))


def test_an_order_that_was_reserved_otherwise_is_not_confirmed_by_a_message(shop: Shop) -> None:
    shop.open(9, 3)
    shop.reserve("reserved", 1)
    submit(shop, Order("submitted", 2))
    queue(shop, Order("queued", 3))
    assert confirm_idle(shop, "reserved", "submitted", "queued") == ["OrderQueued", "Settled", "OrderQueued"]
    assert shop.totals() == (6, 1, 2)
    assert named(take(shop, "reserved", "queued").orders) == ["OrderUnknown", "BegunOrder"]
    assert shop.totals() == (3, 4, 2)


def test_a_granted_order_whose_lease_is_over_is_not_begun_by_a_message(shop: Shop) -> None:
    shop.open(9, 3)
    shop.grant("a", 1, ttl_ms=1)
    shop.side.pass_time(0.003)
    assert confirm_idle(shop, "a") == ["OrderQueued"]
    assert named(take(shop, "a").orders) == ["OrderUnknown"]
    assert shop.totals() == (8, 1, 0)


def test_a_cart_whose_line_a_message_names_is_cancelled_whole(side: Side) -> None:
    pools = CartPools(side)
    for letter in "ab":
        pools.open(letter, 10)
    cart = pools.cart("c1", ("a", 1), ("b", 2))
    pools.reserved(cart)
    for letter in "ab":
        assert confirm_idle(pools.shops[letter], cart.order_id) == ["OrderQueued"]
        assert named(take(pools.shops[letter], cart.order_id).orders) == ["OrderUnknown"]
    pools.cancel(cart)
    assert pools.totals() == {"a": (10, 0, 0), "b": (10, 0, 0)}
    pools.check_books()
