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


def refused(call: Callable[[], object], sentence: str, name: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        call()
    assert caught.match(sentence), name


def test_a_flag_is_true_or_false(side: Side) -> None:
    pool = side.pool(side.name())
    for flag in ("no", 1, None):
        refused(lambda: pool.open(stock=9, segments=2, gated=flag), f"^gated={flag!r} is not True or False$", "gated")  # type: ignore[arg-type]  # noqa: B023  # bad on purpose; called at once
    assert not pool.open(stock=9, segments=2).state.gated
    for name, call in (FLAGS | IN_ONE_SLOT).items():
        for flag in ("no", 1, None):
            said = f"^{name.partition(' ')[0]}={flag!r} is not True or False$"
            refused(lambda: call(pool, flag), said, name)  # noqa: B023  # called at once
    assert pool.state().sequence == 1


def test_arguments_of_a_pool_in_shards_are_checked_as_those_of_one_in_one_slot(side: Side) -> None:
    pool = sharded(side, side.name())
    pool.open(stock=9, segments=4, shards=2)
    for name, call in FLAGS.items():
        refused(lambda: call(pool, "no"), r"='no' is not True or False$", name)  # noqa: B023  # called at once
    check_all(pool)


@pytest.mark.parametrize("in_shards", [False, True], ids=["in one slot", "in shards"])
def test_what_is_no_list_of_orders_is_refused_in_a_sentence(side: Side, *, in_shards: bool) -> None:
    pool: Any = (sharded if in_shards else type(side).pool)(side, side.name())
    pool.open(stock=9, segments=4, **({"shards": 2} if in_shards else {}))
    for name, call in LISTS.items():
        refused(lambda: call(pool), r"is not (a list|text)$", name)  # noqa: B023  # called at once
    assert pool.state().available == 9


@pytest.mark.parametrize("limit", [None, 3])
def test_a_customer_of_an_order_in_shards_is_text(side: Side, limit: int | None) -> None:
    pool = sharded(side, side.name())
    pool.open(stock=9, segments=4, shards=2, limit_per_customer=limit)
    bad = ((7, "is not text"), ("", "must have 1 to 256 bytes"), ("a\tb", "characters that cannot be printed"))
    for name, call in CUSTOMERS.items():
        for customer, sentence in bad:
            refused(lambda: call(pool, customer), f"^customer id .*{sentence}", name)  # noqa: B023  # called at once


def test_a_cart_is_a_cart(side: Side) -> None:
    carts: Any = side.made(Carts, AsyncCarts)
    for cart in ("x", None, ("c1", [("mug", 1)])):
        refused(lambda: carts.reserve(cart), r" is not a Cart$", repr(cart))  # noqa: B023  # called at once
