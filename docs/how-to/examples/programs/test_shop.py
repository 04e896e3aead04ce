"""Tests of a shop without a server: a store in memory, and a clock that the test moves.

Install: pip install '.[testing]' pytest in the checkout.
"""

from __future__ import annotations

import pytest

from segmented import Busy, MemoryStore, Pool, Reserved, SoldOut
from segmented.errors import AlreadySettled, GrantLost
from segmented.testing import ManualClock


class Shop:
    """Any code that takes its pool as an argument."""

    def __init__(self, pool: Pool) -> None:
        """Sell from the pool."""
        self.pool = pool

    def reserve(self, order_id: str, units: int) -> str:
        """Return the sentence that the customer reads."""
        answer = self.pool.reserve(order_id, quantity=units)
        return f"{answer.quantity} reserved" if isinstance(answer, Reserved) else answer.describe()


@pytest.fixture
def clock() -> ManualClock:
    """Return a clock that stands still."""
    return ManualClock()


@pytest.fixture
def shop(clock: ManualClock) -> Shop:
    """Return a shop with three units in two segments."""
    pool = Pool(MemoryStore(clock=clock), "poster", hold=60)
    pool.open(stock=3, segments=2)
    return Shop(pool)


def test_the_last_units_are_sold_once(shop: Shop) -> None:
    assert shop.reserve("ann", 2) == "2 reserved"
    assert shop.reserve("bob", 2).startswith("sold out (1 unit free, 2 on hold, 2 asked for; try again in")
    assert shop.pool.audit().is_clean


def test_units_that_nobody_pays_for_are_sold_again(shop: Shop, clock: ManualClock) -> None:
    shop.reserve("ann", 3)
    clock.advance(61)
    assert shop.reserve("bob", 3) == "3 reserved"
    with pytest.raises(AlreadySettled, match="expired"):
        shop.pool.confirm("ann")


def test_a_customer_whose_hold_ends_during_the_payment_does_not_get_the_unit(shop: Shop, clock: ManualClock) -> None:
    grant = shop.pool.grant("ann")
    assert grant
    clock.advance(61)
    assert [expired.order_id for expired in shop.pool.expire()] == ["ann"]
    with pytest.raises(GrantLost), grant:
        pass  # the body


def test_while_both_segments_are_in_use_a_third_customer_is_told_to_come_back(shop: Shop) -> None:
    with shop.pool.grant("ann"), shop.pool.grant("bob"):
        assert isinstance(shop.pool.grant("cid", timeout=0), Busy)
    assert isinstance(shop.pool.grant("dan", quantity=2, timeout=0), SoldOut)
