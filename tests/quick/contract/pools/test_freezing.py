"""Pools that lost changes: frozen, verified, recounted and thawed."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from segmented import protocol as op
from segmented.errors import (
    AnotherDatabase,
    InvalidInput,
    PoolFrozen,
    PoolGated,
    PoolMissing,
    PoolNotFrozen,
    PoolNotGated,
    PoolUnverified,
    PoolVanished,
)
from segmented.models import Frozen, Granted, Opened, Order, Reserved, Verified
from segmented.protocol.freezing import TooManySold
from tests.fixtures.stores import Side
from tests.support.contract.pools.shop import Shop, frozen, verified


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


def recount(shop: Shop, *, before: tuple[int, int] = (2, 1)) -> bool:
    return shop.side.execute(op.RecountPool(shop.sku, 2, 1, 4, 3, 4, 0, before))


def frozen_to_count(shop: Shop) -> Shop:
    """Eleven units, of which one is sold and two are reserved, after a restock and a withdrawal."""
    shop.open(10, 4, gated=True)
    shop.restock(4, "r")
    shop.withdraw(3, "w")
    shop.reserved("sold")
    shop.confirm("sold", stored=True)
    shop.reserved("kept", 2)
    shop.side.execute(op.FreezePool(shop.sku, 1))
    return shop


def test_a_pool_with_counted_numbers_stays_frozen_and_is_thawed_with_them(shop: Shop) -> None:
    frozen_to_count(shop)
    assert recount(shop)
    state = shop.state()
    assert (state.reserved, state.confirmed, state.restocked, state.withdrawn, state.lost) == (2, 1, 4, 3, 0)
    assert state.frozen is not None
    shop.side.execute(op.ThawPool(shop.sku, 2, 1, 11, is_stored=True))
    verified(shop.side, shop.sku, epoch=2)
    assert (shop.totals(), shop.state().stocked) == ((8, 2, 1), 11)
    shop.confirm("kept", stored=True)
    shop.check_books()


def test_numbers_that_another_rebuild_has_changed_meanwhile_are_left_alone(shop: Shop) -> None:
    frozen_to_count(shop)
    before = shop.state()
    assert not recount(shop, before=(3, 1))
    assert not recount(shop, before=(2, 0))
    assert shop.state() == before


def test_counted_numbers_are_for_a_frozen_pool_with_an_order_database(shop: Shop) -> None:
    with pytest.raises(PoolMissing):
        recount(shop)
    shop.open(10, 4)
    with pytest.raises(PoolNotGated):
        recount(shop)
    sells = Shop(shop.side, shop.side.name())
    sells.open(10, 4, gated=True)
    with pytest.raises(PoolNotFrozen):
        recount(sells, before=(0, 0))
    assert sells.totals() == (10, 0, 0)


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


def test_only_an_open_gated_pool_is_verified(shop: Shop) -> None:
    with pytest.raises(PoolMissing):
        verify(shop)
    shop.open(10, 4)
    with pytest.raises(PoolNotGated):
        verify(shop)


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
