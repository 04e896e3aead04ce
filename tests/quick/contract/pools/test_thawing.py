"""A thaw counts what it ends once, and one that is refused changes nothing, whatever another program wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import pytest

from segmented import protocol as op
from segmented.errors import InvalidInput, PoolFrozen, StoreRefused, WrongKind
from segmented.models import LimitReached, Reserved
from tests.support.contract.pools.shop import Shop, frozen, verified

if TYPE_CHECKING:
    from tests.fixtures.stores import Side


@pytest.fixture
def shop(side: Side) -> Shop:
    return Shop(side, side.name())


@pytest.fixture
def redis_shop(redis_side: Side) -> Shop:
    return Shop(redis_side, redis_side.name())


Decided = tuple[tuple[str, Literal["confirmed", "cancelled"]], ...]


def contents(shop: Shop) -> list[bytes | None]:
    raw = shop.side.raw()
    return [raw.dump(name) for name in shop.keys.listed()]


def test_a_customer_whose_order_the_database_voided_may_buy_again(shop: Shop) -> None:
    shop.open(10, 4, gated=True, limit_per_customer=2)
    for order_id, customer_id in (("voided", "ann"), ("sold", "bob")):
        assert isinstance(shop.reserve(order_id, 2, customer_id=customer_id), Reserved)
    shop.side.execute(op.FreezePool(shop.sku, 1))
    decided: Decided = (("voided", "cancelled"), ("sold", "confirmed"))
    ending = op.ThawPool(shop.sku, 2, 2, 10, is_stored=True, decided=(*decided, *decided), is_last=False)
    assert [shop.side.execute(ending) for _ in range(2)] == [None, None]
    assert shop.side.execute(op.ThawPool(shop.sku, 2, 2, 10, is_stored=True)) is not None
    verified(shop.side, shop.sku, epoch=2)
    assert isinstance(shop.reserve("again", 2, customer_id="ann"), Reserved)
    for customer_id in ("ann", "bob"):
        assert isinstance(shop.reserve("more", 1, customer_id=customer_id), LimitReached)
    assert shop.side.pool(shop.sku).audit().is_clean


def test_no_pool_is_thawed_with_what_is_no_number_of_units(shop: Shop) -> None:
    frozen(shop)
    before = shop.state()
    bad: list[tuple[Any, Any]] = [(-1, None), (1.5, None), (10**15, None), (0, -1), (0, 2.5), (True, 10)]
    for sold, stocked in bad:
        with pytest.raises(InvalidInput, match=r"units are not a number of units: give a whole number from 0$"):
            shop.side.execute(op.ThawPool(shop.sku, 2, sold, stocked))
    with pytest.raises(InvalidInput, match=r"^5 sold units are more than the 4 units that pool"):
        shop.side.pool(shop.sku).thaw(sold=5, stocked=4)
    assert shop.state() == before


def test_a_pool_frozen_at_what_cannot_be_read_is_frozen_at_its_own_numbers(redis_shop: Shop) -> None:
    shop = frozen(redis_shop)
    pool = shop.side.pool(shop.sku)
    too_large = ("1-" + "9" * 16, "9" * 20 + "-1", "9" * 5_000 + "-1")
    for said in ("garbage", "", "5", "5-", "1-x", "1--1", "1-2-3", " 1-2", *too_large):
        shop.side.raw().hset(shop.keys.meta, "frozen", said)
        with pytest.raises(PoolFrozen) as error:
            shop.reserve("next")
        assert (error.value.found, error.value.seen) == ((1, 4), (1, 4)), said
        assert pool.state().frozen == (1, 4), said
    assert pool.thaw(sold=4).state.epoch == 2
    assert isinstance(shop.reserve("next"), Reserved)


DAMAGED: list[tuple[str, str | None]] = [
    *((field, said) for field in ("sent", "received", "lost") for said in ("x", "", "1.5", "1e400", "9" * 23)),
    ("sent", "-5"),
    ("received", "-5"),
    ("chain", None),
    ("reserved", "-5"),
    ("segment_count", "0"),
    ("segment_count", "-3"),
    ("segment_count", "99999999999"),
    ("sequence", "9" * 20),
    ("sequence", "-7"),
    ("epoch", "-2"),
    ("epoch", "9" * 20),
    ("opened", "9" * 20),
    ("confirmed", "9" * 20),
]


def test_a_thaw_with_a_damaged_number_is_refused_and_nothing_changes(redis_shop: Shop) -> None:
    shop = frozen(redis_shop)
    raw = shop.side.raw()
    meta: Any = raw.hgetall(shop.keys.meta)
    for field, said in DAMAGED:
        raw.hset(shop.keys.meta, field, said) if said is not None else raw.hdel(shop.keys.meta, field)
        before = contents(shop)
        with pytest.raises(StoreRefused) as caught:
            shop.side.execute(op.ThawPool(shop.sku, 2, 4))
        assert caught.match("do not add up"), (field, said)
        assert contents(shop) == before, (field, said)
        raw.delete(shop.keys.meta)
        raw.hset(shop.keys.meta, mapping=meta)


def test_a_thaw_that_ends_a_damaged_record_is_refused_and_nothing_changes(redis_shop: Shop) -> None:
    shop = redis_shop
    shop.open(10, 4, limit_per_customer=5)
    shop.reserve("kept", 2, customer_id="ann")
    shop.side.execute(op.FreezePool(shop.sku, 1))
    shop.side.raw().hset(shop.keys.customers, "ann", "junk")
    for record in ("junk", "r\t" + "9" * 20 + "\t0\t2", "r\t1\t0\t2" + "\t" * 9, "r\t2\t0\t2\t\tann"):
        shop.side.raw().hset(shop.keys.orders, "kept", record)
        before = contents(shop)
        for is_last in (False, True):
            with pytest.raises(StoreRefused, match="do not add up"):
                shop.side.execute(op.ThawPool(shop.sku, 2, 0, decided=(("kept", "cancelled"),), is_last=is_last))
        assert contents(shop) == before, record


def test_a_thaw_that_finds_a_key_of_another_type_changes_nothing(redis_shop: Shop) -> None:
    shop = frozen(redis_shop)
    shop.side.raw().set(shop.keys.dead, "x")
    before = contents(shop)
    with pytest.raises(WrongKind):
        shop.side.execute(op.ThawPool(shop.sku, 2, 3, decided=(("kept", "confirmed"),)))
    assert contents(shop) == before


def test_a_pool_is_thawed_above_the_epoch_of_its_ledger(redis_shop: Shop) -> None:
    shop = frozen(redis_shop)
    shop.side.raw().xadd(shop.keys.ledger, {"a": "1"}, id="9-1")
    before = contents(shop)
    with pytest.raises(InvalidInput, match=r"is in epoch 9, which does not fit epoch 9"):
        shop.side.execute(op.ThawPool(shop.sku, 9, 4))
    with pytest.raises(InvalidInput, match=r"which does not fit epoch 1000000000000000"):
        shop.side.execute(op.ThawPool(shop.sku, 10**15, 4))
    assert contents(shop) == before
    pool = shop.side.pool(shop.sku)
    assert pool.thaw(sold=4).state.epoch == 10
    assert isinstance(shop.reserve("next"), Reserved)
    assert pool.audit().is_clean


# --- the operator's number is always usable ---


def test_reservations_beyond_the_operators_number_are_cancelled_newest_first(shop: Shop) -> None:
    shop.open(10, 4)
    for order_id in ("first", "second", "third"):
        shop.reserved(order_id, 2)
    shop.side.execute(op.FreezePool(shop.sku, 1))
    pool = shop.side.pool(shop.sku)
    thawed = pool.thaw(sold=7)
    state = thawed.state
    assert (thawed.cancelled_count, state.confirmed, state.reserved, state.available) == (2, 7, 2, 1)
    assert [shop.confirm(order_id).state for order_id in ("first", "second", "third")] == [
        "confirmed",
        "cancelled",
        "cancelled",
    ]
    assert isinstance(shop.reserve("new"), Reserved)
    report = pool.audit()
    assert (report.is_clean, report.drift, report.oversold) == (True, (), 0)


def test_a_restock_that_was_forgotten_is_named_with_the_units_ever_stocked(shop: Shop) -> None:
    frozen(shop)
    pool = shop.side.pool(shop.sku)
    sentence = rf"^11 sold units are more than the 10 units that pool '{shop.sku}' ever had: check the number, or give"
    with pytest.raises(InvalidInput, match=sentence):
        pool.thaw(sold=11)
    assert (pool.state().frozen, pool.state().reserved) == ((1, 4), 2)
    thawed = pool.thaw(sold=11, stocked=15)
    state = thawed.state
    assert (thawed.cancelled_count, state.stocked, state.confirmed, state.reserved) == (0, 15, 11, 2)
    assert state.available == 2
    assert pool.audit().is_clean


def test_cancelled_reservations_count_for_their_customers_no_more(shop: Shop) -> None:
    shop.open(4, 2, limit_per_customer=2)
    for order_id, customer_id in (("old", "ann"), ("new", "bob")):
        assert isinstance(shop.reserve(order_id, 2, customer_id=customer_id), Reserved)
    shop.side.execute(op.FreezePool(shop.sku, 1))
    assert shop.side.pool(shop.sku).thaw(sold=2).cancelled_count == 1
    shop.restock(2, "more")
    assert isinstance(shop.reserve("again", 2, customer_id="bob"), Reserved)
    assert isinstance(shop.reserve("third", 1, customer_id="ann"), LimitReached)


def test_a_thaw_counts_the_reserved_units_of_the_orders_and_not_the_pools_number(redis_side: Side) -> None:
    for said in ("-5", "0", "9", "3"):
        shop = frozen(Shop(redis_side, redis_side.name()))
        shop.side.raw().hset(shop.keys.meta, "reserved", said)
        pool = shop.side.pool(shop.sku)
        state = pool.thaw(sold=4).state
        assert (state.confirmed, state.reserved, state.available) == (4, 2, 4), said
        report = pool.audit()
        assert (report.is_clean, report.drift, report.oversold) == (True, (), 0), said


def test_a_count_that_another_thaw_has_overtaken_is_refused_and_nothing_changes(shop: Shop) -> None:
    frozen(shop)
    before = shop.state()
    with pytest.raises(InvalidInput, match=r"^another thaw of pool '.*' cancels orders: read its state and try again$"):
        shop.side.execute(op.ThawPool(shop.sku, 2, 4, reserved=(3, 2)))
    assert shop.state() == before
