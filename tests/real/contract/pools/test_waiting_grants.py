"""Grants that wait: who is woken, by what, and that nobody is left in line."""

from typing import cast

import pytest

from segmented.models import Closed, Refusal, SoldOut
from segmented.stock import Grant, Pool
from tests.fixtures.stores import Side, another_process
from tests.support.contract.parking import has_come_to_rest, lines_of, wait_until

SOON = 100.0
PATIENCE = 200.0


@pytest.fixture
def rare_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A waiter does not look by itself: only a message wakes it."""
    monkeypatch.setattr("segmented.stock.plans.GONE_SECONDS", 600.0)
    monkeypatch.setattr("segmented.stores.wakeups.SLEEP_MAX", 600.0)


@pytest.fixture
def lasting(waiting_side: Side) -> Pool:
    """Eight units in two segments, with leases that outlive every wait."""
    pool = waiting_side.pool(waiting_side.name(), ttl=600.0)
    pool.open(stock=8, segments=2)
    return pool


def totals(pool: Pool) -> tuple[int, int, int]:
    state = pool.state()
    return state.available, state.reserved, state.confirmed


def granted(pool: Pool, order_id: str, *, quantity: int = 1, timeout: float = 0) -> Grant:
    answer = pool.grant(order_id, quantity=quantity, timeout=timeout)
    assert not isinstance(answer, Refusal), answer
    return answer


@pytest.mark.usefixtures("rare_looks")
def test_a_grant_waits_for_a_segment_and_is_woken_when_one_is_free(lasting: Pool, waiting_side: Side) -> None:
    held = [granted(lasting, order_id) for order_id in "ab"]
    waiter = waiting_side.start(lambda: lasting.grant("c", timeout=PATIENCE))
    wait_until(lambda: has_come_to_rest(waiting_side.store, 1))
    if waiting_side.server is None:
        held[1].confirm()
    else:  # by a process whose replies wake nobody here
        with another_process(waiting_side) as other:
            other.pool(lasting.sku).confirm("b", holder_id=held[1].holder_id)
    answer = cast("Grant", waiter.result(SOON))
    assert answer.segment == 1
    answer.cancel()
    assert lines_of(waiting_side.store) == {}


@pytest.mark.usefixtures("rare_looks")
def test_a_grant_that_waits_is_woken_when_the_pool_gets_more_segments(lasting: Pool, waiting_side: Side) -> None:
    for order_id in "ab":
        granted(lasting, order_id)
    waiter = waiting_side.start(lambda: lasting.grant("c", timeout=PATIENCE))
    wait_until(lambda: has_come_to_rest(waiting_side.store, 1))
    lasting.resize(3)
    assert cast("Grant", waiter.result(SOON)).segment == 2


def test_a_closed_pools_waiter_is_told_when_its_turn_comes(pool: Pool, waiting_side: Side) -> None:
    held = [granted(pool, order_id) for order_id in "ab"]
    waiter = waiting_side.start(lambda: pool.grant("c", timeout=PATIENCE))
    wait_until(lambda: has_come_to_rest(waiting_side.store, 1))
    pool.close()
    held[0].confirm()
    assert waiter.result(SOON) == Closed("c")


def test_a_hundred_orders_of_one_process_share_two_segments_and_all_are_sold(waiting_side: Side) -> None:
    pool = waiting_side.pool(waiting_side.name())
    pool.open(stock=100, segments=2)

    def sell(order_id: str) -> None:
        with granted(pool, order_id, timeout=PATIENCE):
            pass

    for sold in [waiting_side.start(lambda index=index: sell(f"o{index}")) for index in range(100)]:  # type: ignore[misc]  # a default argument
        sold.result(SOON)
    assert totals(pool) == (0, 0, 100)
    assert isinstance(pool.grant("late", timeout=0), SoldOut)
    assert pool.audit().is_clean
    assert lines_of(waiting_side.store) == {}
