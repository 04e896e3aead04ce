"""Orders that a worker gives back unfinished, and those that it keeps for longer."""

import pytest

from segmented.models import Order
from tests.support.contract.orders.submitting import (
    begin_and_die,
    begun,
    buried,
    confirm,
    dead,
    named,
    orders,
    outbox,
    put_off,
    queue,
    renew_work,
    submit,
    submitted,
    take,
    waiting,
)
from tests.support.contract.pools.shop import SHORT_MS, Shop

TEN = [order.order_id for order in orders(10)]


def test_what_is_put_off_is_not_this_workers_any_more_and_its_segment_is_free(shop: Shop) -> None:
    shop.open(9, 1)
    queue(shop, *orders(2))
    began_us = shop.now_us()
    token = begun(shop, "o00").fencing_token
    assert put_off(shop, "o00") == 0
    found = submitted(shop, "o00")
    assert (found.state, found.begun, found.reason, found.is_in_outbox) == ("reserved", 1, "it rained", True)
    shop.check_tokens(began_us, token, begun(shop, "o01", holder="w2").fencing_token)
    confirm(shop, "o01", holder="w2")
    assert begun(shop, "o00", holder="w2").begun == 2


@pytest.mark.parametrize(("counts", "times"), [(True, 1), (False, 0)])
def test_what_stopped_the_worker_does_not_count_unless_it_was_the_orders_fault(
    shop: Shop, times: int, *, counts: bool
) -> None:
    shop.open(9, 3)
    submit(shop, Order("a", 1))
    begun(shop, "a")
    put_off(shop, "a", counts=counts)
    put_off(shop, "a", counts=counts)
    assert submitted(shop, "a").begun == times


def test_failures_that_are_not_the_orders_do_not_bury_it_with_fewer_tries_allowed(shop: Shop) -> None:
    """An order is not dead for tries that were not its fault, even if fewer tries are allowed by now."""
    shop.open(9, 3)
    submit(shop, Order("a", 1))
    begin_and_die(shop, "a", times=3)
    begun(shop, "a")
    assert put_off(shop, "a", counts=False, begun_max=2) == 0
    assert dead(shop) == []


def test_an_order_that_failed_five_times_is_buried_when_it_is_put_off(shop: Shop) -> None:
    shop.open(9, 3)
    submit(shop, Order("a", 1))
    told = [(begun(shop, "a").begun, put_off(shop, "a", reason="no such\n\taddress")) for _ in range(5)]
    assert told == [(1, 0), (2, 0), (3, 0), (4, 0), (5, 1)]
    (found,) = dead(shop)
    assert (found.order_id, found.begun, found.reason) == ("a", 5, "no such address")
    assert submitted(shop, "a").reason == "no such address"
    assert waiting(shop) == 0


def test_what_another_worker_has_by_now_is_left_alone(shop: Shop) -> None:
    shop.open(9, 3)
    queue(shop, Order("a", 1))
    begun(shop, "a", ttl_ms=SHORT_MS, work_ms=SHORT_MS)
    shop.let_short_holds_lapse()
    begun(shop, "a", holder="w2")
    assert put_off(shop, "a", holder="w1", delay_ms=0, begun_max=1) == 0
    found = submitted(shop, "a")
    assert (found.begun, found.reason, outbox(shop).due) == (2, "", 0)
    assert renew_work(shop, "a", holder="w1") == ()


def test_only_what_is_still_this_workers_is_renewed(shop: Shop) -> None:
    shop.open(9, 3)
    submit(shop, *orders(4))
    take(shop, *TEN[:3])
    shop.confirm("o01")
    put_off(shop, "o02")
    assert renew_work(shop, *TEN[:4], "nobody") == ("o00",)


def test_a_buried_order_is_dead_for_an_envelope_too(shop: Shop) -> None:
    shop.open(9, 3)
    submit(shop, *orders(2))
    buried(shop, "o00")
    assert named(take(shop, *TEN[:2]).orders) == ["Dead", "BegunOrder"]
