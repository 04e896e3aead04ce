"""Waiting for what becomes of an order that was submitted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from segmented.models import Settled
from tests.quick.contract.orders.test_order_handles import BOTH, DEADLINE, decide, opened

if TYPE_CHECKING:
    from segmented.models.submitted import Deciding
    from tests.fixtures.stores import Side


@pytest.mark.parametrize("decides", BOTH)
def test_who_waits_is_told_when_the_order_is_decided(waiting_side: Side, decides: Deciding) -> None:
    pool, shop = opened(waiting_side, decides)
    handle = pool.submit("a")
    told = waiting_side.start(lambda: handle.wait(DEADLINE))
    decide(shop, "a")
    outcome = told.result(DEADLINE)
    assert isinstance(outcome, Settled)
    assert outcome.state == "confirmed"
