"""A gated pool drops the records that are named, if they are finished, unchanged, relayed and trimmed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from segmented import LimitReached, Reserved, protocol as op
from segmented.errors import InvalidInput, PoolFrozen, PoolMissing
from segmented.protocol.archive import Forgot
from segmented.stock.ledger import trim_plan
from tests.support.contract.pools.shop import Shop

if TYPE_CHECKING:
    from tests.fixtures.stores import Side


class ForgetfulShop(Shop):
    def trimmed(self) -> int:
        """Relay and trim all, and return the last change that may be forgotten."""
        for _ in range(2):
            sequence = self.state().sequence
            self.side.execute(op.NoteRelayed(self.sku, (1, sequence)))
            self.side.run(trim_plan(op.TrimLedger(self.sku, 0, relayed_only=True)))
        return self.side.execute(op.ReadLedgerStart(self.sku)) - 1

    def forget(self, up_to: int, *orders: tuple[str, int], notice_ms: int = 0) -> Forgot:
        return self.side.execute(op.ForgetOrders(self.sku, up_to, notice_ms, orders))


@pytest.fixture
def shop(side: Side) -> ForgetfulShop:
    """A gated pool of ten units: change 2 to 5 sell "a" with 2 units and void "b", change 6 reserves "r"."""
    shop = ForgetfulShop(side, side.name())
    shop.open(10, 4, gated=True)
    shop.reserve("a", 2)
    shop.reserve("b", 3)
    side.execute(op.Confirm(shop.sku, "a", None, stored=True))
    side.execute(op.Cancel(shop.sku, "b", voided=True))
    shop.reserve("r", 1)
    return shop


def test_named_records_go_and_their_sold_units_count_as_lost(shop: ForgetfulShop) -> None:
    up_to = shop.trimmed()
    assert shop.forget(up_to) == Forgot(0, 0, 0, 0)
    assert shop.forget(up_to, ("a", 4), ("a", 4), ("b", 5), ("r", 6), ("nobody", 1)) == Forgot(2, 2, 5, 0)
    state = shop.state()
    assert (state.forgotten, state.lost, state.confirmed, state.reserved, state.order_count) == (2, 2, 2, 1, 1)
    assert shop.forget(up_to, ("a", 4), ("b", 5)) == Forgot(0, 0, 2, 0)


def test_a_record_whose_last_change_is_another_stays(shop: ForgetfulShop) -> None:
    up_to = shop.trimmed()
    shop.forget(up_to)
    assert shop.forget(up_to, ("a", 2), ("b", 4)) == Forgot(0, 0, 2, 0)
    assert shop.forget(4, ("b", 5), ("a", 4)) == Forgot(1, 2, 2, 0)
    assert shop.state().order_count == 2


def test_an_id_that_can_be_used_again_goes_and_can_be_used_again(shop: ForgetfulShop) -> None:
    shop.reserve("gone", 1)
    shop.side.execute(op.Cancel(shop.sku, "gone", voided=True, unheard=True))
    up_to = shop.trimmed()
    shop.forget(up_to)
    assert shop.forget(up_to, ("gone", 8)) == Forgot(1, 0, 1, 0)
    shop.reserve("gone", 2)
    assert (shop.state().reserved, shop.state().available) == (3, 5)
    shop.side.execute(op.Confirm(shop.sku, "gone", None, stored=True))
    assert shop.state().confirmed == 4


def test_customers_keep_the_units_of_forgotten_orders(side: Side) -> None:
    shop = ForgetfulShop(side, side.name())
    shop.open(10, 4, gated=True, limit_per_customer=2)
    shop.reserve("a", 2, customer_id="ann")
    side.execute(op.Confirm(shop.sku, "a", None, stored=True))
    up_to = shop.trimmed()
    shop.forget(up_to)
    assert shop.forget(up_to, ("a", 3)) == Forgot(1, 2, 1, 0)
    assert isinstance(shop.reserve("b", 1, customer_id="ann"), LimitReached)
    assert isinstance(shop.reserve("c", 1, customer_id="bob"), Reserved)


def test_nothing_goes_before_the_notice_is_over(shop: ForgetfulShop) -> None:
    up_to = shop.trimmed()
    assert shop.forget(up_to, ("a", 4), notice_ms=60_000) == Forgot(0, 0, 0, 60_000)
    left = shop.forget(up_to, ("a", 4), notice_ms=60_000)
    assert (left.orders, 0 < left.wait_ms <= 60_000) == (0, True)
    assert (shop.state().forgotten, shop.state().order_count) == (0, 3)


def test_changes_that_are_not_relayed_and_trimmed_are_refused(shop: ForgetfulShop) -> None:
    with pytest.raises(InvalidInput, match="its ledger was not relayed and trimmed behind them"):
        shop.forget(1)
    up_to = shop.trimmed()
    with pytest.raises(InvalidInput, match="its ledger was not relayed and trimmed behind them"):
        shop.forget(up_to + 1)


def test_another_pool_is_refused(side: Side) -> None:
    ungated, missing = (ForgetfulShop(side, side.name()) for _ in range(2))
    ungated.open(10, 4)
    with pytest.raises(InvalidInput, match="it has no order database"):
        ungated.forget(1)
    with pytest.raises(PoolMissing):
        missing.forget(1)


def test_a_frozen_pool_forgets_nothing(shop: ForgetfulShop) -> None:
    up_to = shop.trimmed()
    shop.side.execute(op.FreezePool(shop.sku, 1))
    with pytest.raises(PoolFrozen):
        shop.forget(up_to, ("a", 4))
