"""A pool that lost changes is frozen, answers reads only, and is thawed from a number known from outside."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from segmented import protocol as op
from segmented.errors import (
    InvalidInput,
    PoolFrozen,
    PoolGated,
    PoolNotFrozen,
    PoolNotGated,
    PoolVanished,
)
from segmented.keys import lock_keys, shard_keys
from segmented.models import Frozen, Granted, Opened, Order, Reserved, Settled
from segmented.protocol.freezing import TooManySold
from tests.support.contract.pools.shop import Shop, frozen, verified

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.fixtures.stores import Side


@pytest.fixture
def shop(side: Side) -> Shop:
    return Shop(side, side.name())


@pytest.fixture
def redis_shop(redis_side: Side) -> Shop:
    return Shop(redis_side, redis_side.name())


@contextmanager
def forgotten(shop: Shop) -> Iterator[None]:
    """Take back all that the body does to the pool's keys, as a server that lost its last writes does."""
    raw = shop.side.raw()
    names = [*shop.keys.listed(), *(f"{shop.keys.lock}:{segment}" for segment in range(4))]
    before = {name: raw.dump(name) for name in names}
    yield
    raw.delete(*names)
    for name, content in before.items():
        if content is not None:
            raw.restore(name, 0, content)


CHANGES: dict[str, Callable[[Shop], object]] = {
    "reserve": lambda shop: shop.reserve("new"),
    "reserve many": lambda shop: shop.reserve_many([Order("new", 1)]),
    "grant": lambda shop: shop.grant("new"),
    "renew": lambda shop: shop.renew("kept"),
    "confirm": lambda shop: shop.confirm("kept"),
    "cancel": lambda shop: shop.cancel("kept"),
    "expire": lambda shop: shop.expire("kept"),
    "confirm many": lambda shop: shop.confirm_many("kept"),
    "expire due": lambda shop: shop.expire_due(),
    "restock": lambda shop: shop.restock(1, "r"),
    "withdraw": lambda shop: shop.withdraw(1, "w"),
    "resize": lambda shop: shop.resize(8),
    "close": lambda shop: shop.close(),
    "open": lambda shop: shop.open(10, 4),
    "submit": lambda shop: shop.side.execute(op.QueueOrders(shop.sku, (Order("new", 1),), 1_000)),
    "take": lambda shop: shop.side.execute(op.TakeOrders(shop.sku, ("kept",), "h", 1_000, 1_000, 1_000, 3)),
    "sweep": lambda shop: shop.side.execute(op.SweepOutbox(shop.sku, 10, None, 0, 0, 1_000, 3)),
    "trim": lambda shop: shop.side.execute(op.TrimLedger(shop.sku, 0)),
}


def test_a_frozen_pool_changes_nothing_and_says_what_was_lost(shop: Shop) -> None:
    frozen(shop)
    assert shop.side.execute(op.FreezePool(shop.sku, 1)) == Frozen(shop.sku, found=(1, 4), seen=(1, 4))
    before = shop.state()
    for name, change in CHANGES.items():
        with pytest.raises(PoolFrozen) as error:
            change(shop)
        told = (error.value.sku, error.value.found, error.value.seen, error.value.missing)
        assert (told, shop.state()) == ((shop.sku, (1, 4), (1, 4), None), before), name
    assert (before.frozen, len(shop.ledger())) == ((1, 4), 4)
    report = shop.side.pool(shop.sku).audit()
    assert (report.is_clean, report.drift_count) == (False, 0)


def test_what_is_known_of_another_epoch_freezes_nothing(shop: Shop) -> None:
    shop.open(10, 4, epoch=2)
    with pytest.raises(InvalidInput, match=r"is in epoch 2, which does not fit epoch 1"):
        shop.side.execute(op.FreezePool(shop.sku, 1))
    assert isinstance(shop.reserve("a"), Reserved)


def test_a_thawed_pool_has_the_given_number_sold_and_sells_the_rest_once(shop: Shop) -> None:
    frozen(shop)
    pool = shop.side.pool(shop.sku)
    thawed = pool.thaw(sold=4)
    state = thawed.state
    numbers = (state.epoch, state.confirmed, state.reserved, state.available, state.frozen, thawed.replay)
    assert numbers == (2, 4, 2, 4, None, False)
    assert [isinstance(shop.reserve(f"new-{number}"), Reserved) for number in range(6)] == [True] * 4 + [False] * 2
    assert shop.confirm("kept").state == "confirmed"
    report = pool.audit()
    assert (report.is_clean, report.drift, report.state.confirmed, report.state.lost) == (True, (), 6, 3)


def test_the_ledger_of_a_thawed_pool_starts_again_and_says_what_happened(shop: Shop) -> None:
    frozen(shop)
    pool = shop.side.pool(shop.sku)
    pool.thaw(sold=4)
    entries = shop.ledger()
    assert [(entry.kind, entry.epoch, entry.sequence) for entry in entries] == [("checkpoint", 2, 5), ("thawed", 2, 6)]
    assert (entries[1].quantity, entries[1].note) == (4, "at 1-4 seen 1-4 lost 3")
    shop.reserved("later")
    shop.confirm("later")
    shop.side.execute(op.FreezePool(shop.sku, 2))
    state = pool.thaw(sold=3).state
    assert (state.epoch, state.confirmed, state.available) == (3, 3, 5)
    report = pool.audit()
    assert (report.is_clean, report.drift, report.state.lost) == (True, (), 1)


def test_more_sold_than_there_ever_was_is_refused_and_nothing_changes(shop: Shop) -> None:
    frozen(shop)
    pool = shop.side.pool(shop.sku)
    sentence = rf"^9 sold and 2 reserved units are more than the 10 units that pool '{shop.sku}' ever had: "
    with pytest.raises(TooManySold, match=sentence):
        shop.side.execute(op.ThawPool(shop.sku, 2, 9))
    state = pool.state()
    assert (state.frozen, state.confirmed, state.reserved, state.available) == ((1, 4), 1, 2, 7)
    assert pool.thaw(sold=8).state.available == 0


def test_a_pool_that_sells_is_not_thawed_and_a_repeat_of_a_thaw_changes_nothing(shop: Shop) -> None:
    shop.open(10, 4)
    with pytest.raises(PoolNotFrozen, match=rf"^pool '{shop.sku}' is not frozen: it sells"):
        shop.side.pool(shop.sku).thaw(sold=0)
    with pytest.raises(PoolNotFrozen):
        shop.side.execute(op.ThawPool(shop.sku, 2, 0))
    shop.side.execute(op.FreezePool(shop.sku, 1))
    first, again = (shop.side.execute(op.ThawPool(shop.sku, 2, 4)) for _ in range(2))
    assert first is not None
    assert again is not None
    assert (first.replay, again.replay, again.state) == (False, True, first.state)


def test_only_the_order_database_thaws_a_gated_pool_and_only_a_gated_one(shop: Shop) -> None:
    shop.open(10, 4, gated=True)
    shop.side.execute(op.FreezePool(shop.sku, 1))
    with pytest.raises(PoolGated):
        shop.side.pool(shop.sku).thaw(sold=0)
    with pytest.raises(PoolGated):
        shop.side.execute(op.ThawPool(shop.sku, 2, 0))
    assert shop.side.execute(op.ThawPool(shop.sku, 2, 0, 10, is_stored=True)) is not None
    other = Shop(shop.side, shop.side.name())
    other.open(10, 4)
    other.side.execute(op.FreezePool(other.sku, 1))
    with pytest.raises(PoolNotGated):
        other.side.execute(op.ThawPool(other.sku, 2, 0, 10, is_stored=True))


def test_orders_that_the_database_decided_are_ended_before_the_pool_sells(shop: Shop) -> None:
    shop.open(10, 4, gated=True)
    for order_id in ("sold", "voided", "open"):
        shop.reserved(order_id, 2)
    shop.side.execute(op.FreezePool(shop.sku, 1))
    ending = op.ThawPool(
        shop.sku, 2, 2, 10, is_stored=True, decided=(("sold", "confirmed"), ("voided", "cancelled")), is_last=False
    )
    for _ in range(2):
        assert shop.side.execute(ending) is None
    thawed = shop.side.execute(op.ThawPool(shop.sku, 2, 2, 10, is_stored=True))
    assert thawed is not None
    state = thawed.state
    assert (state.confirmed, state.reserved, state.available, state.order_count) == (2, 2, 6, 3)
    verified(shop.side, shop.sku, epoch=2)
    states = [shop.confirm(order_id, stored=True).state for order_id in ("sold", "voided", "open")]
    assert states == ["confirmed", "cancelled", "confirmed"]
    assert shop.side.pool(shop.sku).audit().is_clean


def test_units_that_the_database_has_more_or_fewer_of_are_added_or_removed(shop: Shop) -> None:
    for stocked, free, sku in ((15, 15, shop.side.name()), (6, 6, shop.side.name())):
        one = Shop(shop.side, sku)
        one.open(10, 4, gated=True)
        one.side.execute(op.FreezePool(sku, 1))
        thawed = one.side.execute(op.ThawPool(sku, 2, 0, stocked, is_stored=True))
        assert thawed is not None
        assert (thawed.state.stocked, thawed.state.available) == (stocked, free)
        assert one.side.pool(sku).audit().is_clean


def test_a_grant_gets_a_token_above_one_that_a_resource_has_accepted(shop: Shop) -> None:
    shop.open(10, 4)
    first = shop.granted("a")
    accepted = first.fencing_token + 10**9
    again = shop.side.execute(op.Grant(shop.sku, Order("a", 1), "holder of a", 60_000, 60_000, False, above=accepted))  # noqa: FBT003  # an operation is built as the pool builds it
    assert isinstance(again, Granted)
    assert (again.fencing_token, again.segment, again.replay) == (accepted + 1, first.segment, True)
    assert shop.granted("b").fencing_token > accepted + 1
    assert shop.side.pool(shop.sku).audit().is_clean


# --- a server that forgets, on real servers ---


def test_lost_changes_freeze_a_pool_before_the_next_order_is_answered(redis_shop: Shop) -> None:
    shop = redis_shop
    shop.open(10, 4)
    with forgotten(shop):
        token = shop.granted("lost").fencing_token
    with pytest.raises(PoolFrozen) as error:
        shop.grant("next")
    assert (error.value.found, error.value.seen) == ((1, 1), (1, 2))
    thawed = shop.side.execute(op.ThawPool(shop.sku, 2, 1))
    assert thawed is not None
    assert shop.granted("next").fencing_token > token


def test_a_pool_of_an_earlier_epoch_is_frozen_and_thawed_in_a_later_one(redis_shop: Shop) -> None:
    shop = redis_shop
    shop.open(10, 4)
    with forgotten(shop):
        shop.side.execute(op.FreezePool(shop.sku, 1))
        assert shop.side.pool(shop.sku).thaw(sold=3).state.epoch == 2
    with pytest.raises(PoolFrozen) as error:
        shop.reserve("next")
    assert (error.value.found, error.value.seen) == ((1, 1), (2, 3))
    with pytest.raises(InvalidInput, match=r"is in epoch 1, which does not fit epoch 2"):
        shop.side.execute(op.ThawPool(shop.sku, 2, 0))
    assert shop.side.pool(shop.sku).thaw(sold=3).state.epoch == 3


def test_the_thaw_of_a_process_that_is_the_first_to_see_the_loss_is_not_refused(redis_shop: Shop) -> None:
    shop = redis_shop
    shop.open(10, 4)
    with forgotten(shop):
        shop.granted("lost")
    thawed = shop.side.execute(op.ThawPool(shop.sku, 2, 1))
    assert thawed is not None
    assert (thawed.state.epoch, thawed.state.available, thawed.replay) == (2, 9, False)


def test_a_pool_that_lost_nothing_sells_on(redis_shop: Shop) -> None:
    shop = redis_shop
    shop.open(10, 4)
    shop.granted("a")
    with forgotten(shop):
        pass
    assert isinstance(shop.grant("b"), Granted)


def test_a_pool_whose_keys_are_gone_is_not_opened_again_in_its_epoch(redis_shop: Shop) -> None:
    shop = redis_shop
    shop.open(10, 4)
    shop.reserved("a")
    shop.side.raw().delete(*shop.keys.listed())
    for call in (lambda: shop.reserve("b"), lambda: shop.open(10, 4), lambda: shop.confirm("a")):
        with pytest.raises(PoolVanished, match=r"was open in epoch 1 and is not on the stock's server"):
            call()
    assert isinstance(shop.open(9, 4, epoch=2), Opened)
    assert isinstance(shop.reserve("b"), Reserved)


def test_a_token_exceeds_the_last_one_on_a_forgetful_server_whose_clock_is_behind(redis_shop: Shop) -> None:
    shop = redis_shop
    shop.open(10, 4)
    ahead = shop.side.execute(op.Grant(shop.sku, Order("a", 1), "h", 60_000, 60_000, False, above=1 << 52))  # noqa: FBT003  # as above
    assert isinstance(ahead, Granted)
    shop.side.raw().hset(shop.keys.meta, "fence", "0")
    assert shop.granted("b").fencing_token == ahead.fencing_token + 1


def test_a_confirmed_order_is_not_confirmed_by_a_frozen_pool(redis_shop: Shop) -> None:
    shop = redis_shop
    shop.open(10, 4)
    shop.reserved("a")
    with forgotten(shop):
        assert isinstance(shop.confirm("a"), Settled)
    with pytest.raises(PoolFrozen):
        shop.confirm("a")
    assert shop.side.raw().hget(shard_keys(shop.sku).meta, "confirmed") in (b"0", "0")


def test_a_locks_token_exceeds_the_last_one_on_a_server_that_forgot_it(redis_side: Side) -> None:
    name = redis_side.name()
    redis_side.lock(name, ttl=60).acquire(timeout=0).release()
    redis_side.raw().hincrby(lock_keys(name).fence, "token", 10**9)
    ahead = redis_side.lock(name, ttl=60).acquire(timeout=0)
    ahead.release()
    redis_side.raw().delete(lock_keys(name).fence)
    with redis_side.lock(name, ttl=60).acquire(timeout=0) as last:
        assert last.fencing_token == ahead.fencing_token + 1
