"""A gated pool on another server than it was verified on answers nothing until it is compared with its database."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from segmented import protocol as op
from segmented.errors import AnotherDatabase, InvalidInput, PoolFrozen, PoolMissing, PoolNotGated, PoolUnverified
from segmented.models import Reserved, Verified
from tests.quick.contract.pools.test_freezing import CHANGES
from tests.support.contract.pools.shop import Shop, verified

if TYPE_CHECKING:
    from tests.fixtures.stores import Side


@pytest.fixture
def shop(side: Side) -> Shop:
    return Shop(side, side.name())


@pytest.fixture
def redis_shop(redis_side: Side) -> Shop:
    return Shop(redis_side, redis_side.name())


def moved(shop: Shop, *, gated: bool = True) -> Shop:
    """Open a pool of ten units with one sold and one reserved, as it is found after a restart of its server."""
    shop.open(10, 4, gated=gated)
    shop.reserved("sold")
    shop.confirm("sold", stored=gated)
    shop.reserved("kept", 2)
    shop.side.raw().hset(shop.keys.meta, "server", "another")
    return shop


def verify(shop: Shop, sequence: int = 3, *, epoch: int = 1) -> Verified:
    return verified(shop.side, shop.sku, sequence, epoch=epoch)


def test_an_unverified_pool_changes_nothing_until_it_is_verified(redis_shop: Shop) -> None:
    """It is read, opened again and audited."""
    shop = moved(redis_shop)
    before, meta = shop.state(), shop.side.raw().hgetall(shop.keys.meta)
    for name, change in CHANGES.items():
        if name == "open":
            continue
        with pytest.raises(PoolUnverified, match=f"segmented pool verify {shop.sku} --database") as error:
            change(shop)
        assert error.value.sku == shop.sku
        assert (shop.state(), shop.side.raw().hgetall(shop.keys.meta)) == (before, meta), name
    assert (before.available, before.frozen) == (7, None)
    assert shop.open(10, 4, gated=True).state == before
    assert shop.side.pool(shop.sku).audit().is_clean
    assert [verify(shop).replay for _ in range(2)] == [False, True]
    assert isinstance(shop.reserve("next"), Reserved)


def test_a_pool_that_an_earlier_release_opened_is_verified_first(redis_shop: Shop) -> None:
    shop = moved(redis_shop)
    shop.side.raw().hdel(shop.keys.meta, "server")
    with pytest.raises(PoolUnverified):
        shop.reserve("next")
    verify(shop)
    assert isinstance(shop.reserve("next"), Reserved)


def test_a_pool_that_is_behind_its_database_is_frozen(shop: Shop) -> None:
    shop.open(10, 4, gated=True)
    shop.reserved("kept")
    with pytest.raises(PoolFrozen) as error:
        verify(shop, 3)
    assert (error.value.found, error.value.seen) == ((1, 2), (1, 3))
    for call in (lambda: verify(shop, 0), lambda: shop.reserve("next")):
        with pytest.raises(PoolFrozen):
            call()
    assert shop.state().frozen == (1, 3)
    earlier = Shop(shop.side, shop.side.name())
    earlier.open(10, 4, gated=True)
    with pytest.raises(PoolFrozen) as error:
        verify(earlier, 0, epoch=2)
    assert (error.value.found, error.value.seen) == ((1, 1), (2, 0))


def test_a_database_that_was_never_in_the_pools_epoch_verifies_nothing(redis_shop: Shop) -> None:
    shop = redis_shop
    shop.open(10, 4, gated=True, epoch=2)
    with pytest.raises(InvalidInput, match="is in epoch 2, which does not fit epoch 1"):
        verify(shop, 9)


def test_only_an_open_gated_pool_is_verified(shop: Shop) -> None:
    with pytest.raises(PoolMissing):
        verify(shop)
    shop.open(10, 4)
    with pytest.raises(PoolNotGated):
        verify(shop)


def test_a_database_that_was_read_before_this_servers_turn_verifies_nothing(redis_shop: Shop) -> None:
    shop = moved(redis_shop)
    turn = shop.side.execute(op.VerifyPool(shop.sku, 1, 3))
    assert isinstance(turn, str)
    assert shop.side.execute(op.VerifyPool(shop.sku, 1, 3, "the one before")) == turn
    with pytest.raises(PoolUnverified):
        shop.reserve("next")
    assert shop.side.execute(op.VerifyPool(shop.sku, 1, 3, turn)) == Verified(shop.sku, replay=False)


def thawed(shop: Shop) -> Shop:
    """Open a pool of ten units with one sold and two reserved, and put it into its second epoch."""
    shop.open(10, 4, gated=True)
    shop.reserved("sold")
    shop.confirm("sold", stored=True)
    shop.reserved("kept", 2)
    shop.side.execute(op.FreezePool(shop.sku, 1))
    shop.side.execute(op.ThawPool(shop.sku, 2, 1, 10, is_stored=True))
    return shop


def test_a_thawed_pool_changes_nothing_until_its_database_is_asked_for_its_epoch(shop: Shop) -> None:
    thawed(shop)
    before = shop.state()
    for name, change in CHANGES.items():
        if name != "open":
            with pytest.raises(PoolUnverified):
                change(shop)
            assert shop.state() == before, name
    turn = shop.side.execute(op.VerifyPool(shop.sku, 2, 0))
    assert isinstance(turn, str)
    assert shop.state() == before
    assert shop.side.execute(op.VerifyPool(shop.sku, 2, 0, turn)) == Verified(shop.sku, replay=False)
    assert verify(shop, 0, epoch=2) == Verified(shop.sku, replay=True)
    assert isinstance(shop.reserve("next"), Reserved)


def test_a_thawed_pool_whose_database_is_in_a_later_epoch_by_then_is_frozen_again(shop: Shop) -> None:
    thawed(shop)
    with pytest.raises(PoolFrozen) as error:
        verify(shop, 0, epoch=3)
    assert (error.value.found[0], error.value.seen) == (2, (3, 0))
    shop.side.execute(op.ThawPool(shop.sku, 4, 1, 10, is_stored=True))
    verify(shop, 0, epoch=4)
    assert shop.totals() == (7, 2, 1)


def test_a_database_that_was_read_before_the_pool_was_thawed_verifies_nothing(redis_shop: Shop) -> None:
    shop = moved(redis_shop)
    turn = shop.side.execute(op.VerifyPool(shop.sku, 1, 3))
    shop.side.execute(op.FreezePool(shop.sku, 1))
    shop.side.execute(op.ThawPool(shop.sku, 2, 1, 10, is_stored=True))
    assert isinstance(turn, str)
    assert isinstance(shop.side.execute(op.VerifyPool(shop.sku, 2, 0, turn)), str)
    with pytest.raises(PoolUnverified):
        shop.reserve("next")


def sale_id_of(shop: Shop) -> str:
    state = shop.side.execute(op.ReadPool(shop.sku))
    return state.sale_id


def test_a_pool_is_verified_by_its_own_sale_only(shop: Shop) -> None:
    shop.side.execute(op.OpenPool(shop.sku, 10, 4, gated=True, sale_id="own"))
    before = shop.state()
    for sequence in (0, 99):
        with pytest.raises(AnotherDatabase, match=f"^this order database has another sale of {shop.sku!r}"):
            shop.side.execute(op.VerifyPool(shop.sku, 1, sequence, "", "another"))
    assert shop.state() == before
    assert shop.side.execute(op.VerifyPool(shop.sku, 1, 0, "", "own")) == Verified(shop.sku, replay=True)
    assert shop.side.execute(op.VerifyPool(shop.sku, 1, 0, "", "")) == Verified(shop.sku, replay=True)
    assert sale_id_of(shop) == "own"


def test_a_pool_without_a_sale_notes_the_one_that_it_is_verified_with(shop: Shop) -> None:
    thawed(shop)
    turn = shop.side.execute(op.VerifyPool(shop.sku, 2, 0, "", "own"))
    assert (isinstance(turn, str), sale_id_of(shop)) == (True, "")
    assert shop.side.execute(op.VerifyPool(shop.sku, 2, 0, str(turn), "own")) == Verified(shop.sku, replay=False)
    assert sale_id_of(shop) == "own"
    with pytest.raises(AnotherDatabase):
        shop.side.execute(op.VerifyPool(shop.sku, 2, 0, "", "another"))
