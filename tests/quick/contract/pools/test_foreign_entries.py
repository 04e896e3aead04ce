"""Entries that cannot be read, and keys that are missing."""

from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import pytest
import redis

from segmented import protocol as op
from segmented.errors import PoolDrifted, PoolFrozen, StoreRefused
from segmented.models import Busy, Order, Refusal, Renewed, Reserved, Settled
from segmented.models.submitted import SUBMITTED_UNTIL_MS, BegunOrder
from segmented.plans import Plan
from segmented.stock.plans import grant_plan
from tests.fixtures.stores import Side
from tests.quick.contract.pools.test_freezing import CHANGES
from tests.support.contract.interposed import asks
from tests.support.contract.orders.submitting import queue, take
from tests.support.contract.pools.shop import LONG_MS, SHORT_MS, Shop


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


def test_an_entry_that_somebody_put_into_the_ledger_fails_each_change_as_a_whole(open_shop: Shop) -> None:
    open_shop.open(9, 3)
    open_shop.reserved("a")
    open_shop.side.raw().xadd(open_shop.keys.ledger, {"kind": "foreign"})
    before = dump(open_shop)
    for call in CHANGES_OF_A.values():
        with pytest.raises(StoreRefused):
            call(open_shop)
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


def units_there(shop: Shop) -> list[int]:
    """The units of the segments as the server has them, the fewest first."""
    found: Any = shop.side.raw().hvals(shop.keys.stock)
    return sorted(int(units) for units in found)


def test_units_that_were_gathered_in_vain_are_there_for_the_next_order_of_the_batch(open_shop: Shop) -> None:
    open_shop.open(9, 3)
    open_shop.side.raw().hincrby(open_shop.keys.stock, "0", -3)
    first, second = open_shop.reserve_many([Order("a", 9), Order("b", 5)])
    assert isinstance(first, PoolDrifted)
    assert isinstance(second, Reserved)
    assert units_there(open_shop) == [0, 0, 1]
    assert open_shop.totals() == (4, 5, 0)


def test_units_that_were_gathered_in_vain_for_a_grant_stay_and_its_segment_is_free(open_shop: Shop) -> None:
    open_shop.open(9, 1)
    open_shop.side.raw().hincrby(open_shop.keys.stock, "0", -3)
    with pytest.raises(PoolDrifted):
        open_shop.grant("a", 9)
    open_shop.granted("b", 6)


def test_units_go_back_to_no_segment_whose_own_cannot_be_read(open_shop: Shop) -> None:
    open_shop.open(9, 1)
    open_shop.reserved("plain", 2, hold_ms=SHORT_MS)
    open_shop.granted("granted", 2, ttl_ms=SHORT_MS, hold_ms=SHORT_MS)
    open_shop.let_short_holds_lapse()
    open_shop.side.raw().hset(open_shop.keys.stock, "0", "2.5")
    before = dump(open_shop)
    for end in (Shop.cancel, Shop.expire):
        for order_id in ("plain", "granted"):
            with pytest.raises(PoolDrifted):
                end(open_shop, order_id)
    assert open_shop.expire_due() == ((), False)
    assert [type(answer) for answer in open_shop.cancel_many("plain", "granted")] == [PoolDrifted] * 2
    assert dump(open_shop) == before
    assert [answer.state for answer in map(open_shop.confirm, ("plain", "granted"))] == ["confirmed"] * 2
    assert open_shop.totals() == (5, 0, 4)


KEYS: Final = ("ledger", "orders", "holds")
"""Those that memory has as well; it counts its segments by their stock."""


@pytest.fixture
def keyless_shop(side: Side) -> Shop:
    """Ten units in four segments: one is sold, and two are reserved."""
    return filled(Shop(side, side.name()))


def filled(keyless_shop: Shop) -> Shop:
    keyless_shop.open(10, 4)
    keyless_shop.reserved("sold")
    keyless_shop.confirm("sold")
    keyless_shop.reserved("kept", 2)
    return keyless_shop


def lose(keyless_shop: Shop, key: str) -> None:
    """Delete one key of the pool behind the store."""
    if keyless_shop.side.server is not None:
        assert keyless_shop.side.server.delete(getattr(keyless_shop.keys, key)) == 1
    else:
        assert keyless_shop.side.store.model.ask("DEL", getattr(keyless_shop.keys, key)) == 1


def holds(keyless_shop: Shop) -> list[str]:
    cursor, found = keyless_shop.side.execute(op.ScanKey(keyless_shop.sku, "holds", 0))
    assert cursor == 0
    return sorted(dict(found))


def test_a_pool_that_lost_a_key_is_frozen_before_it_answers(keyless_shop: Shop) -> None:
    """Its audit is not clean. Memory counts its segments by their stock, which it cannot lose."""
    for key in KEYS if keyless_shop.side.server is None else (*KEYS, "stock"):
        for name, change in CHANGES.items():
            damaged = filled(Shop(keyless_shop.side, keyless_shop.side.name()))
            lose(damaged, key)
            before = damaged.state()
            assert before.frozen == (1, 4), (key, name)
            with pytest.raises(PoolFrozen) as error:
                change(damaged)
            assert error.match(f"It is at change 4 of epoch 1, and its key '{key}' is gone. Run "), (key, name)
            assert (error.value.found, error.value.seen, error.value.missing) == ((1, 4), (1, 4), key)
            assert damaged.state() == before, (key, name)
            assert not damaged.side.pool(damaged.sku).audit().is_clean, (key, name)


def test_a_pool_that_lost_a_key_is_thawed_and_sells_exactly_the_rest(keyless_shop: Shop) -> None:
    for key in KEYS if keyless_shop.side.server is None else (*KEYS, "stock"):
        for is_noticed in (True, False):
            damaged = filled(Shop(keyless_shop.side, keyless_shop.side.name()))
            lose(damaged, key)
            if is_noticed:
                with pytest.raises(PoolFrozen):
                    damaged.reserve("next")
            check_thawed(damaged, reserved=0 if key == "orders" else 2)


def check_thawed(keyless_shop: Shop, *, reserved: int) -> None:
    state = keyless_shop.side.pool(keyless_shop.sku).thaw(sold=1).state
    free = 9 - reserved
    assert (state.confirmed, state.reserved, state.available, state.frozen) == (1, reserved, free, None)
    sold = [isinstance(keyless_shop.reserve(f"new-{number}"), Reserved) for number in range(free + 1)]
    assert sold == [True] * free + [False]
    if reserved:
        assert isinstance(keyless_shop.cancel("kept"), Settled)
        assert isinstance(keyless_shop.reserve("in its place", 2), Reserved)
    keyless_shop.check_books()


def test_reserved_orders_whose_holds_are_gone_are_held_again_by_a_thaw(keyless_shop: Shop) -> None:
    keyless_shop.side.execute(op.QueueOrders(keyless_shop.sku, (Order("queued", 1),), 1_000))
    keyless_shop.side.execute(op.ReserveMany(keyless_shop.sku, (Order("submitted", 1),), 1_000, publish_after_ms=1_000))
    keyless_shop.reserved("short", hold_ms=60_000)
    lose(keyless_shop, "holds")
    keyless_shop.side.pool(keyless_shop.sku).thaw(sold=1)
    assert holds(keyless_shop) == ["kept", "short", "submitted"]
    records = keyless_shop.side.execute(op.ReadOrders(keyless_shop.sku, ("kept", "short", "submitted")))
    now_ms = keyless_shop.now_us() // 1_000
    left = [None if record is None else (record.hold_until_ms or 0) for record in records]
    assert left[2] == SUBMITTED_UNTIL_MS
    assert [round((until - now_ms) / 60_000) for until in left[:2] if until is not None] == [10, 10]


# --- states in which a key is missing and nothing is lost ---


SEGMENTS: Final = 4_096
FOURS: Final = tuple(Order(f"o{index}", 4) for index in range(1_000))
IDS: Final = tuple(order.order_id for order in FOURS)


def test_1000_orders_of_4_segments_each_take_6_steps_and_give_back_in_6(shop: Shop) -> None:
    shop.open(SEGMENTS, SEGMENTS)
    taken = [answer for answer in shop.reserve_many(FOURS) if isinstance(answer, Reserved)]
    assert [answer.order_id for answer in taken] == list(IDS)
    assert Counter(answer.sequence for answer in taken) == {2: 167, 3: 167, 4: 167, 5: 167, 6: 167, 7: 165}
    assert {len(answer.parts) for answer in taken} == {4}
    assert len({segment for answer in taken for segment, _ in answer.parts}) == 4_000
    assert shop.totals() == (96, 4_000, 0)
    ended = shop.side.execute(op.SettleMany(shop.sku, "cancelled", IDS))
    given_back = Counter(one.sequence for one in ended if isinstance(one, Settled))
    assert given_back == {8: 167, 9: 167, 10: 167, 11: 167, 12: 167, 13: 165}
    assert shop.totals() == (SEGMENTS, 0, 0)


def test_a_message_of_1000_orders_begins_in_5_steps_under_one_segment_and_token(shop: Shop) -> None:
    shop.open(2_000, 4)
    ids = tuple(f"o{index}" for index in range(1_000))
    queue(shop, *(Order(order_id) for order_id in ids))
    taken = take(shop, *ids)
    begun = [one for one in taken.orders if isinstance(one, BegunOrder)]
    assert [one.order.order_id for one in begun] == list(ids)
    assert Counter(one.sequence for one in begun) == {2: 200, 3: 200, 4: 200, 5: 200, 6: 200}
    assert len({(one.segment, one.fencing_token) for one in begun}) == 1
    assert take(shop, *ids).orders == taken.orders
    another = take(shop, *ids, holder="w2").orders
    assert [isinstance(one, Busy) and one.is_in_hand for one in another] == [True] * 1_000
    assert len({shop.granted(f"g{index}").segment for index in range(3)}) == 3, "three segments are free"
    assert shop.totals() == (997, 1_003, 0)


def test_holds_of_many_parts_lapse_a_few_in_a_step(shop: Shop) -> None:
    shop.open(600, 600)
    for order_id in ("a", "b", "c"):
        shop.reserved(order_id, 600, hold_ms=0)
        shop.side.execute(op.Restock(shop.sku, f"for {order_id}", 600))
    steps = []
    is_more_due = True
    while is_more_due:
        settled, is_more_due = shop.side.execute(op.ExpireDue(shop.sku, 100))
        steps.append([one.order_id for one in settled])
    assert steps == [["a", "b"], ["c"]]
    assert shop.totals() == (2_400, 0, 0)


def test_records_of_thousands_of_parts_are_read_in_several_replies(shop: Shop) -> None:
    shop.open(SEGMENTS, SEGMENTS)
    for index in range(10):
        shop.reserved(f"o{index}", SEGMENTS)
        shop.side.execute(op.Restock(shop.sku, f"r{index}", SEGMENTS))
    asked = tuple(f"o{index}" for index in range(12))
    records = shop.side.execute(op.ReadOrders(shop.sku, asked))
    assert [record and record.order_id for record in records] == [*asked[:10], None, None]
    assert {len(record.parts) for record in records if record} == {SEGMENTS}
    inspected = shop.side.execute(op.InspectOrders(shop.sku, asked))
    assert [one.order_id for one in inspected] == list(asked)
    assert [one.raw is not None for one in inspected] == [True] * 10 + [False] * 2
