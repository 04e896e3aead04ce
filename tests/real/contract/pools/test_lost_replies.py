"""The answer to a call whose reply was lost is that of the call: it is no replay of what the call itself did."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from segmented import protocol as op
from segmented.errors import LeaseLost
from segmented.keys import shard_keys
from segmented.models import Cart, Granted, Lost, Order, Refusal, SoldOut
from tests.fixtures.stores import Side
from tests.support.contract.carts.carts import CartPools
from tests.support.contract.pools.lost_replies import (
    ROUNDS,
    STOCK,
    LossyPool,
    operations_on_the_pool,
    replays,
    replays_in_batches,
)
from tests.support.proxy import RedisProxy


@pytest.fixture
def pool(far_side: Side, proxy: RedisProxy) -> Iterator[LossyPool]:
    """A pool of a million units behind a proxy; not yet open."""
    made = LossyPool(far_side, lambda _: proxy.swallow_replies(1, to=b"EVALSHA"))
    yield made
    assert proxy.swallowed == made.lost
    made.shop.check_books()


def test_of_105_calls_whose_reply_was_lost_none_says_replay_and_all_105_repeats_do(pool: LossyPool) -> None:
    pool.shop.open(STOCK, 4)
    found = replays(pool)
    assert found == dict.fromkeys(found, (0, ROUNDS))
    assert len(found) * ROUNDS == 105


def test_a_batch_whose_reply_was_lost_says_replay_only_of_the_order_named_twice(pool: LossyPool) -> None:
    pool.shop.open(STOCK, 4)
    found = replays_in_batches(pool, 200)
    assert found == dict.fromkeys(found, [False] * 200 + [True])
    assert len(found) == 4


def test_a_batch_of_orders_that_others_have_ended_says_replay_of_these(pool: LossyPool) -> None:
    pool.shop.open(STOCK, 4)
    ids = [pool.reserved() for _ in range(300)]
    for index in range(0, 300, 2):
        pool.shop.confirm(ids[index])
    answers = pool.lossy(lambda: pool.shop.confirm_many(*ids))
    assert [one.replay for one in answers] == [index % 2 == 0 for index in range(300)]
    assert [one.state for one in answers] == ["confirmed"] * 300


def test_expire_names_the_orders_that_it_expired_though_its_first_reply_was_lost(pool: LossyPool) -> None:
    pool.shop.open(STOCK, 4)
    made = pool.shop.side.pool(pool.shop.sku)
    made.expire()
    for number in (1, 250):
        orders = [Order(pool.name()) for _ in range(number)]
        pool.shop.reserve_many(orders, hold_ms=0)
        answer = pool.lossy(made.expire)
        assert not any(one.replay for one in answer)
        assert sorted(one.order_id for one in answer) == sorted(order.order_id for order in orders)


def test_opening_resizing_and_closing_are_no_replay_when_the_reply_was_lost(pool: LossyPool) -> None:
    calls = operations_on_the_pool(pool)
    assert [pool.lossy(call) for call in calls.values()] == ["Opened", False, False]
    assert [call() for call in calls.values()] == ["AlreadyOpen", True, True]


def test_a_grant_whose_reply_was_lost_is_no_replay_but_a_second_delivery_is_one(pool: LossyPool) -> None:
    pool.shop.open(8, 2)
    granted = pool.lossy(lambda: pool.shop.grant("a", 3))
    assert isinstance(granted, Granted)
    assert not granted.replay
    assert pool.shop.granted("a", 3).replay
    pool.shop.let_lease_lapse("a")
    assert pool.lossy(lambda: pool.shop.grant("a", 3, holder_id="another")).replay


def test_a_revoked_lease_is_lost_even_if_the_connection_broke_and_no_other_is(pool: LossyPool) -> None:
    shop = pool.shop
    shop.open(9, 3)
    made = shop.side.pool(shop.sku)
    kept, gone = made.grant("kept", timeout=0), made.grant("gone", timeout=0)
    assert not isinstance(kept, Refusal)
    assert not isinstance(gone, Refusal)
    kept.renew()
    pool.lossy(kept.renew)
    shop.side.raw().delete(f"{shop.keys.lock}:{gone.segment}")
    with pytest.raises(LeaseLost):
        pool.lossy(gone.renew)
    assert shop.totals() == (7, 2, 0)


def test_the_end_of_a_grant_is_its_own_also_when_the_reply_was_lost(pool: LossyPool) -> None:
    pool.shop.open(9, 3)
    made = pool.shop.side.pool(pool.shop.sku)
    ends = []
    for name in ("confirm", "cancel"):
        grant = made.grant(f"to {name}", timeout=0)
        assert not isinstance(grant, Refusal)
        ended = pool.lossy(getattr(grant, name))
        ends.append((ended.state, ended.replay))
    assert ends == [("confirmed", False), ("cancelled", False)]
    assert pool.shop.totals() == (8, 0, 1)


def test_a_freed_segment_is_not_said_to_be_lost_when_the_reply_was(pool: LossyPool) -> None:
    pool.shop.open(9, 3)
    holder_id = pool.shop.granted("a").holder_id
    release = op.ReleaseGrant(pool.shop.sku, "a", holder_id)
    pool.shop.side.execute(op.ReleaseGrant(pool.shop.sku, "a", "of another"))  # the server knows the script
    assert pool.lossy(partial(pool.shop.side.execute, release)) == Lost(is_unsure=True)
    assert pool.shop.side.execute(release) == Lost()


def test_a_kept_refusal_whose_reply_was_lost_is_no_replay_while_it_is_true(pool: LossyPool) -> None:
    pool.shop.open(2, 1)
    pool.shop.grant("warm", 1, keep_refusal=True)
    first = pool.lossy(lambda: pool.shop.grant("a", 3, keep_refusal=True))
    assert first == SoldOut("a", 3, 1, 1, 3)
    assert pool.shop.grant("a", 3, keep_refusal=True) == SoldOut("a", 3, 1, 1, 3, replay=True)


def test_a_cart_whose_replies_were_lost_is_no_replay(far_side: Side, proxy: RedisProxy) -> None:
    pools = CartPools(far_side)
    for letter in "ab":
        pools.open(letter, 9)
    warm = pools.cart("warm", ("a", 1), ("b", 1))
    pools.reserved(warm)
    pools.confirm(warm)
    found = []

    def lost(cart: Cart) -> None:
        """Lose the next reply about the cart's own record."""
        proxy.swallow_replies(1, to=b"EVALSHA(?s:.)*" + cart.cart_id.encode() + b"\r\n\\$1\r\n")

    for number in range(3):
        cart = pools.cart(f"cart-{number}", ("a", 1), ("b", 1))
        lost(cart)
        reserved = pools.reserve(cart)
        lost(cart)
        ended = pools.cancel(cart) if number == 1 else pools.confirm(cart)
        found.append((type(reserved).__name__, reserved.replay, ended.state, ended.replay))
        assert pools.reserve(cart).replay
    assert found == [
        ("CartReserved", False, "confirmed", False),
        ("CartReserved", False, "cancelled", False),
        ("CartReserved", False, "confirmed", False),
    ]
    assert proxy.swallowed == 6
    pools.check_books()


def test_the_name_of_a_call_costs_the_ledger_ten_bytes_a_step_and_records_none(pool: LossyPool) -> None:
    """And the note of an expired page ends by itself."""
    pool.shop.open(STOCK, 4)
    pool.shop.reserve_many([Order(f"o{index:03}") for index in range(100)])
    server: Any = pool.shop.side.raw()
    (entry,) = server.xrange(pool.shop.keys.ledger, "1-2", "1-2")
    assert len(entry[1]["by"]) == 8
    assert {len(raw) for raw in server.hvals(pool.shop.keys.orders)} == {len("r\t1\t1\t2")}
    pool.reserved(hold_ms=0)
    for _ in range(2):
        pool.shop.side.execute(op.ExpireDue(pool.shop.sku, 10))
    (note,) = server.keys(f"{shard_keys(pool.shop.sku).holds.replace('[', '?')}:*")
    assert 480_000 < server.pttl(note) <= 600_000
