"""A pool one of whose keys was deleted or lost is frozen before it answers, and sells again once it is thawed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from segmented import protocol as op
from segmented.errors import PoolFrozen
from segmented.models import Order, Reserved, Settled
from segmented.models.submitted import SUBMITTED_UNTIL_MS
from segmented.stock.ledger import trim_plan
from tests.quick.contract.pools.test_freezing import CHANGES
from tests.support.contract.pools.shop import Shop

if TYPE_CHECKING:
    from tests.fixtures.stores import Side

KEYS: Final = ("ledger", "orders", "holds")
"""Those that memory has as well; it counts its segments by their stock."""


@pytest.fixture
def shop(side: Side) -> Shop:
    """Ten units in four segments: one is sold, and two are reserved."""
    return filled(Shop(side, side.name()))


@pytest.fixture
def redis_shop(redis_side: Side) -> Shop:
    return filled(Shop(redis_side, redis_side.name()))


def filled(shop: Shop) -> Shop:
    shop.open(10, 4)
    shop.reserved("sold")
    shop.confirm("sold")
    shop.reserved("kept", 2)
    return shop


def lose(shop: Shop, key: str) -> None:
    """Delete one key of the pool behind the store."""
    if shop.side.server is not None:
        assert shop.side.server.delete(getattr(shop.keys, key)) == 1
    else:
        assert shop.side.store.model.ask("DEL", getattr(shop.keys, key)) == 1


def frozen_at(shop: Shop) -> tuple[int, int] | None:
    return shop.side.pool(shop.sku).state().frozen


def holds(shop: Shop) -> list[str]:
    cursor, ids = shop.side.execute(op.ScanHolds(shop.sku, 0))
    assert cursor == 0
    return sorted(ids)


def test_a_pool_that_lost_a_key_is_frozen_before_it_answers(shop: Shop) -> None:
    """Its audit is not clean. Memory counts its segments by their stock, which it cannot lose."""
    for key in KEYS if shop.side.server is None else (*KEYS, "stock"):
        for name, change in CHANGES.items():
            damaged = filled(Shop(shop.side, shop.side.name()))
            lose(damaged, key)
            before = damaged.state()
            assert before.frozen == (1, 4), (key, name)
            with pytest.raises(PoolFrozen) as error:
                change(damaged)
            assert error.match(f"It is at change 4 of epoch 1, and its key '{key}' is gone. Run "), (key, name)
            assert (error.value.found, error.value.seen, error.value.missing) == ((1, 4), (1, 4), key)
            assert damaged.state() == before, (key, name)
            assert not damaged.side.pool(damaged.sku).audit().is_clean, (key, name)


def test_a_pool_that_lost_a_key_is_thawed_and_sells_exactly_the_rest(shop: Shop) -> None:
    for key in KEYS if shop.side.server is None else (*KEYS, "stock"):
        for is_noticed in (True, False):
            damaged = filled(Shop(shop.side, shop.side.name()))
            lose(damaged, key)
            if is_noticed:
                with pytest.raises(PoolFrozen):
                    damaged.reserve("next")
            check_thawed(damaged, reserved=0 if key == "orders" else 2)


def check_thawed(shop: Shop, *, reserved: int) -> None:
    state = shop.side.pool(shop.sku).thaw(sold=1).state
    free = 9 - reserved
    assert (state.confirmed, state.reserved, state.available, state.frozen) == (1, reserved, free, None)
    sold = [isinstance(shop.reserve(f"new-{number}"), Reserved) for number in range(free + 1)]
    assert sold == [True] * free + [False]
    if reserved:
        assert isinstance(shop.cancel("kept"), Settled)
        assert isinstance(shop.reserve("in its place", 2), Reserved)
    shop.check_books()


def test_reserved_orders_whose_holds_are_gone_are_held_again_by_a_thaw(shop: Shop) -> None:
    shop.side.execute(op.QueueOrders(shop.sku, (Order("queued", 1),), 1_000))
    shop.side.execute(op.ReserveMany(shop.sku, (Order("submitted", 1),), 1_000, publish_after_ms=1_000))
    shop.reserved("short", hold_ms=60_000)
    lose(shop, "holds")
    shop.side.pool(shop.sku).thaw(sold=1)
    assert holds(shop) == ["kept", "short", "submitted"]
    records = shop.side.execute(op.ReadOrders(shop.sku, ("kept", "short", "submitted")))
    now_ms = shop.now_us() // 1_000
    left = [None if record is None else (record.hold_until_ms or 0) for record in records]
    assert left[2] == SUBMITTED_UNTIL_MS
    assert [round((until - now_ms) / 60_000) for until in left[:2] if until is not None] == [10, 10]


def test_holds_are_written_again_once_however_often_they_are_asked_for(shop: Shop) -> None:
    lose(shop, "holds")
    shop.side.execute(op.FreezePool(shop.sku, 1))
    again = op.ThawPool(
        shop.sku, 2, 1, decided=(("kept", "reserved"), ("sold", "reserved"), ("no", "reserved")), is_last=False
    )
    assert shop.side.execute(again) is None
    first = shop.side.execute(op.ReadOrders(shop.sku, ("kept",)))
    shop.side.pass_time(0.01)
    assert shop.side.execute(again) is None
    assert (shop.side.execute(op.ReadOrders(shop.sku, ("kept",))), holds(shop)) == (first, ["kept"])


# --- states in which a key is missing and nothing is lost ---


def test_a_pool_without_orders_or_holds_sells(side: Side) -> None:
    shop = Shop(side, side.name())
    shop.open(4, 2)
    assert frozen_at(shop) is None
    shop.reserved("a")
    shop.confirm("a")  # no hold is left
    assert (holds(shop), frozen_at(shop)) == ([], None)
    shop.reserved("b", 2)
    shop.cancel("b")
    assert (holds(shop), isinstance(shop.reserve("c"), Reserved)) == ([], True)
    assert isinstance(shop.confirm("c"), Settled)
    shop.check_books()


def test_a_pool_that_has_forgotten_all_its_orders_sells(side: Side) -> None:
    shop = Shop(side, side.name())
    shop.open(4, 2, gated=True)
    shop.reserved("a", 2)
    side.execute(op.Confirm(shop.sku, "a", None, stored=True))
    for _ in range(2):
        side.execute(op.NoteRelayed(shop.sku, (1, shop.state().sequence)))
        side.run(trim_plan(op.TrimLedger(shop.sku, 0, relayed_only=True)))
    for _ in range(2):
        side.execute(op.ForgetOrders(shop.sku, 3, 0, (("a", 3),)))
    state = shop.state()
    assert (state.order_count, state.confirmed, state.lost, state.frozen) == (0, 2, 2, None)
    assert isinstance(shop.reserve("b", 2), Reserved)


def test_a_ledger_that_is_trimmed_to_nothing_but_its_checkpoint_freezes_nothing(shop: Shop) -> None:
    for _ in range(3):
        shop.side.run(trim_plan(op.TrimLedger(shop.sku, 0)))
    assert [entry.kind for entry in shop.side.execute(op.ReadLedger(shop.sku, 0, 100))] == ["checkpoint"]
    assert isinstance(shop.reserve("next"), Reserved)


def test_a_pool_whose_number_of_lost_units_cannot_be_read_is_not_frozen_for_it(redis_shop: Shop) -> None:
    redis_shop.cancel("kept")
    raw = redis_shop.side.raw()
    raw.hset(redis_shop.keys.meta, "lost", "x")
    raw.delete(redis_shop.keys.orders)
    assert isinstance(redis_shop.reserve("b"), Reserved)
