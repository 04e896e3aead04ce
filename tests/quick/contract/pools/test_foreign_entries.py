"""What others wrote into a pool's keys stops as little as possible, and never half a change; and some rare moments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from segmented import protocol as op
from segmented.errors import PoolDrifted, StoreRefused
from segmented.models import Order, Refusal, Renewed
from segmented.stock.plans import grant_plan
from tests.support.contract.interposed import asks
from tests.support.contract.pools.shop import LONG_MS, SHORT_MS, Shop

if TYPE_CHECKING:
    from collections.abc import Callable

    import redis

    from segmented.plans import Plan
    from tests.fixtures.stores import Side


@pytest.fixture
def open_shop(plain_redis_side: Side) -> Shop:
    """A pool to be damaged: nobody checks its books afterwards."""
    return Shop(plain_redis_side, plain_redis_side.name())


def dump(shop: Shop) -> dict[str, Any]:
    """Every key of the pool, byte for byte."""
    server: redis.Redis = shop.side.raw()
    keys: Any = [key for key in shop.keys.listed() if server.exists(key)]
    return {key: server.dump(key) for key in keys}


CHANGES_OF_A: dict[str, Callable[[Shop], object]] = {
    "reserve": lambda shop: shop.reserve("b"),
    "grant": lambda shop: shop.grant("b"),
    "confirm": lambda shop: shop.confirm("a"),
    "cancel": lambda shop: shop.cancel("a"),
    "restock": lambda shop: shop.restock(5, "r"),
    "withdraw": lambda shop: shop.withdraw(3, "w"),
    "resize": lambda shop: shop.resize(4),
    "close": lambda shop: shop.close(),
}


def test_an_unreadable_number_of_the_pool_stops_it_before_anything_is_written(open_shop: Shop) -> None:
    open_shop.open(9, 3)
    open_shop.reserved("a")
    meta: Any = open_shop.side.raw().hgetall(open_shop.keys.meta)
    for field in ("fence", "available", "sequence", "confirmed"):
        for text in ("", "1.5", "many"):
            open_shop.side.raw().hset(open_shop.keys.meta, field, text)
            before = dump(open_shop)
            for name, call in CHANGES_OF_A.items():
                with pytest.raises(StoreRefused) as caught:
                    call(open_shop)
                assert caught.match("do not add up"), (field, text, name)
            assert dump(open_shop) == before, (field, text)
        open_shop.side.raw().hset(open_shop.keys.meta, mapping=meta)


def test_units_that_cannot_be_read_are_left_alone_and_the_others_are_sold(open_shop: Shop) -> None:
    open_shop.open(9, 3)
    open_shop.side.raw().hset(open_shop.keys.stock, "1", "2.5")
    taken = [open_shop.reserved(f"o{index}", 2) for index in range(3)]
    assert {segment for answer in taken for segment, _ in answer.parts} == {0, 2}
    with pytest.raises(PoolDrifted):
        open_shop.reserve("more", 2)
    assert open_shop.state().available == 3
    with pytest.raises(PoolDrifted):
        open_shop.withdraw(3, "w")
    with pytest.raises(PoolDrifted):
        open_shop.restock(3, "r")


def test_a_segment_short_of_what_the_total_says_refuses_and_takes_nothing(open_shop: Shop) -> None:
    open_shop.open(9, 3)
    open_shop.side.raw().hincrby(open_shop.keys.stock, "0", -3)
    before = dump(open_shop)
    for call in (lambda: open_shop.reserve("a", 9), lambda: open_shop.grant("a", 9)):
        with pytest.raises(PoolDrifted):
            call()
    assert dump(open_shop) == before
    open_shop.reserved("b", 6)


def test_an_entry_that_somebody_put_into_the_ledger_fails_each_change_as_a_whole(open_shop: Shop) -> None:
    open_shop.open(9, 3)
    open_shop.reserved("a")
    open_shop.side.raw().xadd(open_shop.keys.ledger, {"kind": "foreign"})
    before = dump(open_shop)
    for call in CHANGES_OF_A.values():
        with pytest.raises(StoreRefused):
            call(open_shop)
    assert dump(open_shop) == before


def test_a_decision_that_the_ledger_does_not_take_leaves_the_holder_its_segment(open_shop: Shop) -> None:
    open_shop.open(9, 3)
    lock = f"{open_shop.keys.lock}:{open_shop.granted('a').segment}"
    open_shop.side.raw().xadd(open_shop.keys.ledger, {"kind": "foreign"})
    before = dump(open_shop)
    ends: list[Callable[[str], object]] = [open_shop.confirm, open_shop.cancel]
    for end in ends:
        with pytest.raises(StoreRefused):
            end("a")
        assert open_shop.side.raw().get(lock) == "holder of a"
    assert dump(open_shop) == before


def test_holds_without_a_reservation_do_not_stand_before_those_that_lapsed(open_shop: Shop) -> None:
    open_shop.open(5, 1)
    open_shop.reserved("late", 5, hold_ms=SHORT_MS)
    open_shop.side.raw().zadd(open_shop.keys.holds, {f"ghost{index}": index for index in range(101)})
    open_shop.let_short_holds_lapse()
    found: list[str] = []
    for _ in range(3):
        settled, _more = open_shop.expire_due(100)
        found += [one.order_id for one in settled]
    assert found == ["late"]
    assert open_shop.due() == ()
    open_shop.check_books()


def test_a_key_of_another_type_at_a_segments_lock_does_not_stop_what_is_due(open_shop: Shop) -> None:
    open_shop.open(5, 1)
    open_shop.granted("late", 5, ttl_ms=SHORT_MS, hold_ms=SHORT_MS)
    open_shop.let_short_holds_lapse()
    open_shop.side.raw().lpush(f"{open_shop.keys.lock}:0", "something")
    settled, _ = open_shop.expire_due(100)
    assert [one.order_id for one in settled] == ["late"]


def ended_before(kind: type[op.Operation[Any]], plan: Plan[Any], meanwhile: op.Operation[Any]) -> Plan[Any]:
    """Run a plan; before its first operation of a kind something happens, and the caller is gone."""
    effect = next(plan)
    while not asks(kind)(effect):
        effect = plan.send((yield effect))
    yield meanwhile
    effect = plan.throw(RuntimeError("gone"))
    while True:
        effect = plan.send((yield effect))


def test_a_wait_that_is_cut_short_leaves_its_order_to_the_holder_that_has_it_by_now(shop: Shop) -> None:
    shop.open(5, 1)
    order = Order("a", 2)
    waiting, other = (
        op.Grant(shop.sku, order, holder, LONG_MS, LONG_MS, keep_refusal=False) for holder in ("first", "second")
    )
    with pytest.raises(RuntimeError, match="gone"):
        shop.side.run(ended_before(op.Grant, grant_plan(waiting, None), other))
    assert shop.totals() == (3, 2, 0)
    assert shop.renew("a", holder_id="second") == Renewed(LONG_MS)


def test_confirming_again_as_nobody_in_particular_frees_that_segment_too(shop: Shop) -> None:
    shop.open(5, 1)
    shop.granted("a", holder_id="first")
    shop.let_lease_lapse("a", "first")
    shop.granted("a", holder_id="second")
    assert not shop.confirm("a", "first").replay
    assert shop.confirm("a").replay
    shop.granted("b")


def test_a_grant_that_does_not_wait_takes_units_that_are_only_coming_back(side: Side) -> None:
    pool = side.pool(side.name(), ttl=0.01, hold=0.02)
    pool.open(stock=500, segments=4)
    pool.reserve_many([Order(f"late{index}", 1) for index in range(500)])
    side.pass_time(0.05)
    grant = pool.grant("a", quantity=400, timeout=0)
    assert not isinstance(grant, Refusal)
    assert grant.quantity == 400
