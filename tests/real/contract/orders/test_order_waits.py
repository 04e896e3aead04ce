"""Waiting for what becomes of an order that was submitted."""

import pytest

from segmented.models import Settled
from segmented.models.submitted import Deciding
from tests.fixtures.stores import Side
from tests.quick.contract.orders.test_submit import BOTH, DEADLINE, decide, opened


@pytest.mark.parametrize("decides", BOTH)
def test_who_waits_is_told_when_the_order_is_decided(waiting_side: Side, decides: Deciding) -> None:
    pool, shop = opened(waiting_side, decides)
    handle = pool.submit("a")
    told = waiting_side.start(lambda: handle.wait(DEADLINE))
    decide(shop, "a")
    outcome = told.result(DEADLINE)
    assert isinstance(outcome, Settled)
    assert outcome.state == "confirmed"
