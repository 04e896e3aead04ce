"""Orders and changes that an order database decided in an earlier epoch than the pool is in: they count once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from segmented import protocol as op
from segmented.errors import EpochEnded
from segmented.models import Decided, Order, Restocked, Settled, SoldOut
from tests.support.contract.orders.submitting import begun, named, queue
from tests.support.contract.pools.shop import Shop, verified

if TYPE_CHECKING:
    from segmented.errors import SegmentedError
    from tests.fixtures.stores import Side


@pytest.fixture
def shop(side: Side) -> Shop:
    """A pool of ten units in its second epoch, in which two of them are sold."""
    shop = Shop(side, side.name())
    shop.open(10, 4, gated=True)
    shop.side.execute(op.FreezePool(shop.sku, 1))
    shop.side.execute(op.ThawPool(shop.sku, 2, 2, 10, is_stored=True))
    verified(side, shop.sku, epoch=2)
    return shop


def confirm(shop: Shop, order_id: str, epoch: int | None, holder_id: str | None = None) -> Settled:
    return shop.side.execute(op.Confirm(shop.sku, order_id, holder_id, stored=True, epoch=epoch))


def confirm_many(shop: Shop, *order_ids: str, epoch: int) -> tuple[Settled | SegmentedError | None, ...]:
    return shop.side.execute(op.SettleMany(shop.sku, "confirmed", order_ids, decided=True, epoch=epoch))


def end_sold(shop: Shop, *order_ids: str) -> tuple[Settled | SegmentedError | None, ...]:
    return shop.side.execute(op.SettleMany(shop.sku, "cancelled", order_ids, decided=True, sold_before=True))


def test_an_order_stored_in_an_earlier_epoch_is_not_confirmed_with_units_of_this_one(shop: Shop) -> None:
    shop.reserved("again", 3)
    shop.granted("granted", 1)
    queue(shop, Order("queued"))
    before = shop.state()
    for order_id in ("again", "queued", "unknown"):
        with pytest.raises(EpochEnded) as error:
            confirm(shop, order_id, 1)
        assert (error.value.sku, error.value.epoch) == (shop.sku, 2)
    with pytest.raises(EpochEnded):
        confirm(shop, "granted", 1, "holder of granted")
    assert named(confirm_many(shop, "again", "queued", "unknown", "granted", epoch=1)) == ["EpochEnded"] * 4
    assert shop.state() == before
    assert confirm(shop, "again", 2).state == "confirmed"
    assert named(confirm_many(shop, "granted", epoch=3)) == ["Settled"]
    assert shop.totals() == (4, 0, 6)


def test_an_order_that_is_decided_answers_a_late_confirm_as_a_replay(shop: Shop) -> None:
    shop.reserved("sold", 3)
    confirm(shop, "sold", None)
    shop.reserved("back", 1)
    shop.cancel("back", voided=True)
    assert (confirm(shop, "sold", 1).replay, confirm(shop, "back", 1).state) == (True, "cancelled")
    assert named(confirm_many(shop, "sold", "back", "sold", epoch=1)) == ["Settled"] * 3
    assert shop.totals() == (5, 0, 5)


def test_units_of_an_order_sold_in_an_earlier_epoch_go_back_and_its_callers_get_sold(shop: Shop) -> None:
    shop.reserved("again", 3)
    shop.granted("granted", 2)
    ended = end_sold(shop, "again", "granted", "unknown", "again")
    assert named(ended) == ["Settled", "Settled", "OrderUnknown", "Settled"]
    told = [(one.state, one.quantity, one.replay) for one in ended if isinstance(one, Settled)]
    assert told == [("confirmed", 3, False), ("confirmed", 2, False), ("confirmed", 3, True)]
    assert shop.totals() == (8, 0, 2)
    answers = [shop.reserve("again", 3), shop.grant("granted", 2), confirm(shop, "again", 1), *end_sold(shop, "again")]
    assert [(getattr(one, "state", None), getattr(one, "replay", None)) for one in answers] == [("confirmed", True)] * 4
    assert getattr(shop.cancel("again", voided=True), "state", None) == "confirmed"
    entry = shop.ledger()[-1]
    assert (entry.kind, entry.note) == ("cancelled", "sold before")
    record = shop.record("again")
    assert record is not None
    assert record.state == "confirmed"
    shop.check_books()


def test_a_queued_order_that_an_earlier_epoch_sold_ends_without_units(shop: Shop) -> None:
    queue(shop, Order("queued", 3), after_ms=0)
    (ended,) = end_sold(shop, "queued")
    assert isinstance(ended, Settled)
    assert (ended.state, ended.quantity) == ("confirmed", 3)
    (again,) = queue(shop, Order("queued", 3))
    assert isinstance(again, Decided)
    assert (again.state, again.quantity, again.replay) == ("confirmed", 3, True)
    (found,) = shop.side.execute(op.ReadSubmitted(shop.sku, ("queued",)))
    assert (found.state, found.is_in_outbox) == ("confirmed", False)
    assert shop.totals() == (8, 0, 2)
    shop.check_books()


def test_a_worker_that_asked_the_database_in_another_epoch_begins_nothing(shop: Shop) -> None:
    queue(shop, Order("o", 1))
    for epoch in (1, 3):
        with pytest.raises(EpochEnded) as error:
            shop.side.execute(op.TakeOrders(shop.sku, ("o",), "w1", 1_000, 1_000, 1_000, 3, epoch=epoch))
        assert error.value.epoch == 2
    assert shop.totals() == (8, 0, 2)
    assert begun(shop, "o").begun == 1


def test_a_change_that_was_begun_in_another_epoch_changes_nothing(shop: Shop) -> None:
    before = shop.state()
    for epoch in (1, 3):
        for operation in (op.Restock(shop.sku, "c", 3, epoch), op.Withdraw(shop.sku, "c", 3, epoch)):
            with pytest.raises(EpochEnded) as error:
                shop.side.execute(operation)
            assert (error.value.sku, error.value.epoch) == (shop.sku, 2)
    assert shop.state() == before
    assert isinstance(shop.side.execute(op.Restock(shop.sku, "r", 3, 2)), Restocked)
    assert isinstance(shop.side.execute(op.Withdraw(shop.sku, "w", 1, 2)), Restocked)
    assert shop.totals() == (10, 0, 2)


def test_a_refusal_names_the_epoch(shop: Shop) -> None:
    shop.reserved("all", 8)
    refusals = [
        shop.reserve("a"),
        shop.grant("b"),
        shop.grant("c", keep_refusal=True),
        shop.grant("c", keep_refusal=True),
    ]
    assert [one.epoch for one in refusals if isinstance(one, SoldOut)] == [2, 2, 2, 2]
