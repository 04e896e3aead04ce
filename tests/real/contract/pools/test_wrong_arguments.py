"""Arguments of a wrong type: one sentence before anything is sent, whoever serves the call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from segmented.errors import InvalidInput
from segmented.models import Order
from segmented.stock import AsyncCarts, Carts
from tests.support.contract.shards.sharding import check_all, sharded

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fixtures.stores import Side

FLAGS: dict[str, Callable[[Any, object], object]] = {
    "partial of reserve": lambda pool, flag: pool.reserve("a", partial=flag),
    "partial of reserve_many": lambda pool, flag: pool.reserve_many([Order("a", 1)], partial=flag),
    "partial of grant": lambda pool, flag: pool.grant("a", timeout=0, partial=flag),
    "keep_refusal": lambda pool, flag: pool.grant("a", timeout=0, keep_refusal=flag),
    "fair": lambda pool, flag: pool.grant("a", timeout=0, fair=flag),
}
IN_ONE_SLOT: dict[str, Callable[[Any, object], object]] = {
    "gated": lambda pool, flag: pool.open(stock=9, segments=2, gated=flag),
    "stored of restock": lambda pool, flag: pool.restock(1, restock_id="r", stored=flag),
    "yes": lambda pool, flag: pool.repair(pool.audit(), yes=flag),
}
LISTS: dict[str, Callable[[Any], object]] = {
    "reserve_many(None)": lambda pool: pool.reserve_many(None),
    "reserve_many(7)": lambda pool: pool.reserve_many(7),
    "submit_many(None)": lambda pool: pool.submit_many(None),
    "confirm_many(None)": lambda pool: pool.confirm_many(None),
    "confirm_many([[]])": lambda pool: pool.confirm_many([[]]),
    "cancel_many([None])": lambda pool: pool.cancel_many([None]),
}
CUSTOMERS: dict[str, Callable[[Any, object], object]] = {
    "confirm": lambda pool, customer: pool.confirm("a", customer_id=customer),
    "cancel": lambda pool, customer: pool.cancel("a", customer_id=customer),
    "handle": lambda pool, customer: pool.handle("a", customer_id=customer),
    "shard_of": lambda pool, customer: pool.shard_of("a", customer_id=customer),
}


@pytest.mark.parametrize("flag", ["no", 1, None], ids=repr)
@pytest.mark.parametrize("name", [*FLAGS, *IN_ONE_SLOT])
def test_a_flag_is_true_or_false(waiting_side: Side, name: str, flag: object) -> None:
    pool = waiting_side.pool(waiting_side.name())
    if name != "gated":
        pool.open(stock=9, segments=2)
    call = (FLAGS | IN_ONE_SLOT)[name]
    with pytest.raises(InvalidInput, match=rf"^{name.partition(' ')[0]}={flag!r} is not True or False$"):
        call(pool, flag)
    if name != "gated":
        assert pool.state().sequence == 1
        return
    assert not waiting_side.pool(pool.sku).open(stock=9, segments=2).state.gated


@pytest.mark.parametrize("name", FLAGS)
def test_a_flag_of_a_pool_in_shards_is_true_or_false(waiting_side: Side, name: str) -> None:
    pool = sharded(waiting_side, waiting_side.name())
    pool.open(stock=9, segments=4, shards=2)
    with pytest.raises(InvalidInput, match=r"='no' is not True or False$"):
        FLAGS[name](pool, "no")
    check_all(pool)


@pytest.mark.parametrize("in_shards", [False, True], ids=["in one slot", "in shards"])
@pytest.mark.parametrize("name", LISTS)
def test_what_is_no_list_of_orders_is_refused_in_a_sentence(waiting_side: Side, name: str, *, in_shards: bool) -> None:
    pool: Any = (sharded if in_shards else type(waiting_side).pool)(waiting_side, waiting_side.name())
    pool.open(stock=9, segments=4, **({"shards": 2} if in_shards else {}))
    with pytest.raises(InvalidInput, match=r"is not (a list|text)$"):
        LISTS[name](pool)
    assert pool.state().available == 9


@pytest.mark.parametrize("limit", [None, 3])
@pytest.mark.parametrize("name", CUSTOMERS)
def test_a_customer_of_an_order_in_shards_is_text(waiting_side: Side, name: str, limit: int | None) -> None:
    pool = sharded(waiting_side, waiting_side.name())
    pool.open(stock=9, segments=4, shards=2, limit_per_customer=limit)
    for customer, sentence in (
        (7, "is not text"),
        ("", "must have 1 to 256 bytes"),
        ("a\tb", "characters that cannot be printed"),
    ):
        with pytest.raises(InvalidInput, match=f"^customer id .*{sentence}"):
            CUSTOMERS[name](pool, customer)


@pytest.mark.parametrize("cart", ["x", None, ("c1", [("mug", 1)])], ids=repr)
def test_a_cart_is_a_cart(waiting_side: Side, cart: Any) -> None:  # noqa: ANN401  # what is no cart
    carts = waiting_side.made(Carts, AsyncCarts)
    with pytest.raises(InvalidInput, match=r" is not a Cart$"):
        carts.reserve(cart)
