"""`Pool` and `AsyncPool` as a seller uses them: the `with` statement, refusals, renewal, waiting."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, cast

import pytest

from segmented import protocol as op
from segmented.errors import InvalidInput, LeaseLost, NotGranted, OrderMismatch, PoolGated
from segmented.models import Busy, Decided, Opened, Order, Refusal, Reserved, Settled, SoldOut
from segmented.plans.waiting import GONE_SECONDS
from tests.support.contract.bodies import fail_after
from tests.support.contract.parking import has_come_to_rest, lines_of, wait_until

if TYPE_CHECKING:
    from segmented.stock import Grant, Pool
    from tests.fixtures.stores import Side
    from tests.support.contract.parking import CountScripts

SOON = 30.0
PATIENCE = 60.0


def totals(pool: Pool) -> tuple[int, int, int]:
    state = pool.state()
    return state.available, state.reserved, state.confirmed


def granted(pool: Pool, order_id: str, *, quantity: int = 1, timeout: float = 0) -> Grant:
    answer = pool.grant(order_id, quantity=quantity, timeout=timeout)
    assert not isinstance(answer, Refusal), answer
    return answer


def refused(pool: Pool, order_id: str, *, quantity: int = 1, timeout: float = 0) -> Refusal:
    answer = pool.grant(order_id, quantity=quantity, timeout=timeout)
    assert isinstance(answer, Refusal), answer
    return answer


def let_lease_lapse(pool: Pool, side: Side, grant: Grant) -> None:
    side.execute(op.RenewGrant(pool.sku, grant.order_id, grant.holder_id, ttl_ms=1, hold_ms=1))
    side.pass_time(0.005)


def let_a_successor_in(pool: Pool, side: Side, grant: Grant) -> None:
    let_lease_lapse(pool, side, grant)
    granted(pool, grant.order_id, quantity=grant.quantity)


# --- the with statement ---


def test_the_end_of_the_body_confirms(pool: Pool) -> None:
    with granted(pool, "a", quantity=3) as grant:
        assert grant.is_trusted
        assert totals(pool) == (5, 3, 0)
    assert totals(pool) == (5, 0, 3)


def test_an_error_of_the_body_cancels_and_surfaces(pool: Pool) -> None:
    with pytest.raises(ZeroDivisionError), granted(pool, "a", quantity=3):
        _ = 1 // 0
    assert totals(pool) == (8, 0, 0)


def test_an_explicit_end_in_the_body_is_kept(pool: Pool) -> None:
    with granted(pool, "a", quantity=3) as grant:
        assert grant.confirm() == Settled("a", "confirmed", 3, grant.segment, grant.fencing_token, 3, replay=False)
    with granted(pool, "b") as grant:
        assert isinstance(grant.cancel(), Settled)
    assert totals(pool) == (5, 0, 3)


def test_a_refusal_does_not_run_the_body(pool: Pool) -> None:
    sentence = r"^order 'a' was not granted: sold out \(8 units free, 0 on hold, 9 asked for\)$"
    with pytest.raises(NotGranted, match=sentence), refused(pool, "a", quantity=9):
        pytest.fail("the body ran")


def test_busy_does_not_run_the_body(pool: Pool) -> None:
    for order_id in "ab":
        granted(pool, order_id)
    with pytest.raises(NotGranted, match=r"no segment was free before the deadline$"), refused(pool, "c"):
        pytest.fail("the body ran")


def test_a_decided_order_does_not_run_the_body(pool: Pool) -> None:
    granted(pool, "a").confirm()
    with pytest.raises(NotGranted, match=r"already confirmed$") as caught, refused(pool, "a"):
        pytest.fail("the body ran")
    assert isinstance(caught.value.refusal, Decided)


def test_an_overslept_body_that_fails_does_not_cancel_its_successors_order(pool: Pool, waiting_side: Side) -> None:
    with pytest.raises(ZeroDivisionError), granted(pool, "a", quantity=3) as first:
        fail_after(partial(let_a_successor_in, pool, waiting_side, first))
    assert totals(pool) == (5, 3, 0)


def test_the_end_of_the_body_does_not_confirm_in_a_gated_pool(waiting_side: Side) -> None:
    pool = waiting_side.pool(waiting_side.name())
    pool.open(stock=8, segments=2, gated=True)
    sentence = (
        rf"^pool '{pool.sku}' is gated: its order database must store order 'a' first; use "
        r"Pool\(store, sku, gate=gate\), or segmented.orders.take_order$"
    )
    with pytest.raises(PoolGated, match=sentence), granted(pool, "a", quantity=3):
        pytest.fail("the body ran")
    assert totals(pool) == (5, 3, 0)
    confirmed = waiting_side.execute(op.Confirm(pool.sku, "a", stored=True))
    assert (confirmed.state, totals(pool)) == ("confirmed", (5, 0, 3))
    assert pool.audit().is_clean


def test_a_failed_cancel_is_noted_on_the_bodys_error(waiting_side: Side) -> None:
    pool = waiting_side.pool(waiting_side.name())
    pool.open(stock=8, segments=2)

    def fail() -> None:
        waiting_side.execute(op.FreezePool(pool.sku, 1))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught, granted(pool, "a"):
        fail()
    (note,) = caught.value.__notes__
    assert note.startswith(f"and the order could not be cancelled: pool '{pool.sku}' is frozen: ")
    assert totals(pool) == (7, 1, 0)


# --- answers ---


def test_an_order_may_be_given_whole(pool: Pool) -> None:
    answer = pool.reserve(Order("a", 3, customer_id="ann"))
    assert isinstance(answer, Reserved)
    assert answer.quantity == 3
    with pytest.raises(OrderMismatch):
        pool.reserve(Order("a", 3, customer_id="bob"))


def test_a_mismatch_leaves_the_same_holders_grant_alone(pool: Pool) -> None:
    pool.grant("a", quantity=2, timeout=0, holder_id="h")
    for timeout in (0, 1):
        with pytest.raises(OrderMismatch):
            pool.grant("a", quantity=3, timeout=timeout, holder_id="h")
    assert totals(pool) == (6, 2, 0)


def test_a_reservation_clears_more_due_holds_than_one_step_can(waiting_side: Side) -> None:
    pool = waiting_side.pool(waiting_side.name(), ttl=0.02, hold=0.02)
    pool.open(stock=50, segments=4)
    for index in range(50):
        pool.reserve(f"late{index}")
    waiting_side.pass_time(0.04)
    answer = pool.reserve("a", quantity=50)
    assert isinstance(answer, Reserved)
    assert totals(pool) == (0, 50, 0)


def test_expire_gives_back_every_lapsed_hold_up_to_the_limit(waiting_side: Side) -> None:
    pool = waiting_side.pool(waiting_side.name(), ttl=0.02, hold=0.02)
    pool.open(stock=500, segments=4)
    for index in range(250):
        pool.reserve(f"late{index}")
    waiting_side.pass_time(0.04)
    assert len(pool.expire(limit=30)) == 30
    assert len(pool.expire()) == 220
    assert pool.expire() == ()
    assert totals(pool) == (500, 0, 0)


def test_a_gated_pool_does_not_expire_by_itself(waiting_side: Side) -> None:
    pool = waiting_side.pool(waiting_side.name(), ttl=0.02, hold=0.02)
    pool.open(stock=8, segments=2, gated=True)
    pool.reserve("a")
    waiting_side.pass_time(0.04)
    with pytest.raises(PoolGated):
        pool.expire()
    assert totals(pool) == (7, 1, 0)


# --- leases ---


def test_a_renewed_grant_is_trusted_anew(pool: Pool) -> None:
    grant = granted(pool, "a")
    before = grant.trusted_until
    grant.renew()
    assert grant.trusted_until > before
    grant.require()
    grant.confirm()
    assert not grant.is_trusted


def test_a_grant_whose_lease_has_lapsed_cannot_be_renewed(pool: Pool, waiting_side: Side) -> None:
    grant = granted(pool, "a")
    let_lease_lapse(pool, waiting_side, grant)
    with pytest.raises(LeaseLost):
        grant.renew()
    assert not grant.is_trusted
    with pytest.raises(LeaseLost):
        grant.require()


@pytest.mark.parametrize(
    ("ttl", "hold", "sentence"),
    [
        (0, 600, r"^ttl of 0 s is not a duration"),
        (10, -1, r"^hold of -1 s is not a duration"),
        (60, 10, r"^hold of 10 s is shorter than ttl of 60 s: the units would expire under a live lease$"),
    ],
)
def test_times_that_no_pool_can_have_are_rejected(waiting_side: Side, ttl: float, hold: float, sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        waiting_side.pool("never made", ttl=ttl, hold=hold)


@pytest.mark.parametrize(("stock", "segments"), [(0, 1), (-1, 1), (10**12 + 1, 1), (5, 0), (5, -1), (5, 4_097)])
def test_a_stock_or_segment_count_that_no_pool_can_have_is_rejected(
    waiting_side: Side, stock: int, segments: int
) -> None:
    with pytest.raises(InvalidInput, match=r"must be between 1 and [\d,]+$"):
        waiting_side.pool("never made").open(stock=stock, segments=segments)


def test_a_pool_needs_a_sku(waiting_side: Side) -> None:
    with pytest.raises(InvalidInput, match=r"^sku '' must have 1 to 128 bytes of UTF-8$"):
        waiting_side.pool("")


# --- waiting ---


def test_a_grant_waits_for_a_segment_and_is_woken_when_one_is_free(pool: Pool, waiting_side: Side) -> None:
    held = [granted(pool, order_id) for order_id in "ab"]
    waiter = waiting_side.start(lambda: pool.grant("c", timeout=PATIENCE))
    wait_until(lambda: has_come_to_rest(waiting_side.store, 1))
    held[1].confirm()
    answer = cast("Grant", waiter.result(SOON))
    assert answer.segment == 1
    answer.cancel()
    assert lines_of(waiting_side.store) == {}


def test_a_grant_that_waits_is_woken_when_the_pool_gets_more_segments(pool: Pool, waiting_side: Side) -> None:
    for order_id in "ab":
        granted(pool, order_id)
    waiter = waiting_side.start(lambda: pool.grant("c", timeout=PATIENCE))
    wait_until(lambda: has_come_to_rest(waiting_side.store, 1))
    pool.resize(3)
    assert cast("Grant", waiter.result(SOON)).segment == 2


def test_a_grant_is_busy_when_its_time_is_over(pool: Pool) -> None:
    for order_id in "ab":
        granted(pool, order_id)
    began = time.monotonic()
    answer = refused(pool, "c", timeout=0.2)
    assert time.monotonic() - began >= 0.2
    assert isinstance(answer, Busy)
    assert not answer.is_in_hand


def test_one_freed_segment_tells_everyone_in_line_that_the_pool_is_sold_out(pool: Pool, waiting_side: Side) -> None:
    held = [granted(pool, "a", quantity=4), granted(pool, "b", quantity=1)]
    waiters = [waiting_side.start(lambda name=name: pool.grant(name, quantity=3, timeout=30)) for name in "cde"]  # type: ignore[misc]  # a default argument
    wait_until(lambda: has_come_to_rest(waiting_side.store, 3))
    held[0].confirm()
    wait_until(lambda: sum(waiter.done() for waiter in waiters) == 1)
    pool.confirm(next(order_id for order_id in "cde" if waiting_side.execute(op.ReadOrders(pool.sku, (order_id,)))[0]))
    answers = [waiter.result(SOON) for waiter in waiters]
    assert sum(isinstance(answer, SoldOut) for answer in answers) == 2
    assert totals(pool) == (0, 1, 7)


def test_a_dead_holders_segment_is_found_when_its_lease_ends(waiting_side: Side) -> None:
    pool = waiting_side.pool(waiting_side.name(), ttl=0.3, hold=60)
    pool.open(stock=8, segments=1)
    granted(pool, "dead")
    answers = [waiting_side.start(lambda name=name: pool.grant(name, timeout=PATIENCE)) for name in "abc"]  # type: ignore[misc]  # a default argument
    for answer in answers:
        answer.result(SOON)
    assert totals(pool) == (4, 4, 0)


def test_a_second_delivery_that_waits_does_not_keep_others_from_free_segments(pool: Pool, waiting_side: Side) -> None:
    first = granted(pool, "a")
    second = waiting_side.start(lambda: pool.grant("a", timeout=PATIENCE))
    wait_until(lambda: len(lines_of(waiting_side.store)) == 1)
    for order_id in "bcd":
        granted(pool, order_id, timeout=PATIENCE).confirm()
    assert not second.done()
    first.confirm()
    assert isinstance(second.result(SOON), Decided)
    assert lines_of(waiting_side.store) == {}


def test_a_second_delivery_takes_over_when_the_first_holder_has_died(waiting_side: Side) -> None:
    pool = waiting_side.pool(waiting_side.name(), ttl=0.1, hold=60)
    pool.open(stock=8, segments=2)
    first = granted(pool, "a", quantity=3)
    second = granted(pool, "a", quantity=3, timeout=PATIENCE)
    assert second.replay
    assert second.fencing_token > first.fencing_token
    assert totals(pool) == (5, 3, 0)


def test_a_second_delivery_learns_within_a_second_that_the_first_was_confirmed(waiting_side: Side) -> None:
    pool = waiting_side.pool(waiting_side.name(), ttl=600, hold=600)
    pool.open(stock=8, segments=2)
    first = granted(pool, "a", quantity=3)
    second = waiting_side.start(lambda: pool.grant("a", quantity=3, timeout=PATIENCE))
    wait_until(lambda: len(lines_of(waiting_side.store)) == 1)
    time.sleep(GONE_SECONDS)  # by now it asks at the longest interval
    first.confirm()
    answer = second.result(SOON)
    assert isinstance(answer, Decided)
    assert (answer.state, answer.replay) == ("confirmed", True)


def test_a_hundred_orders_of_one_process_share_two_segments_and_all_are_sold(waiting_side: Side) -> None:
    pool = waiting_side.pool(waiting_side.name())
    pool.open(stock=100, segments=2)

    def sell(order_id: str) -> None:
        with granted(pool, order_id, timeout=PATIENCE):
            pass

    for sold in [waiting_side.start(lambda index=index: sell(f"o{index}")) for index in range(100)]:  # type: ignore[misc]  # a default argument
        sold.result(SOON)
    assert totals(pool) == (0, 0, 100)
    assert isinstance(refused(pool, "late"), SoldOut)
    assert pool.audit().is_clean
    assert lines_of(waiting_side.store) == {}


def test_opened_carries_the_state(waiting_side: Side) -> None:
    opened = waiting_side.pool(waiting_side.name()).open(stock=8, segments=2, epoch=4)
    assert isinstance(opened, Opened)
    assert (opened.state.stock, opened.state.epoch) == ((4, 4), 4)


def test_a_pool_shows_its_name_and_no_password(waiting_side: Side) -> None:
    pool = waiting_side.pool("ticket")
    assert "ticket" in repr(getattr(pool, "_target", pool))


def test_a_second_delivery_asks_in_intervals_that_double_and_when_its_time_is_over(
    plain_redis_side: Side, count_scripts: CountScripts
) -> None:
    pool = plain_redis_side.pool(plain_redis_side.name())
    pool.open(stock=8, segments=2)
    first = granted(pool, "a")
    scripts = count_scripts(plain_redis_side.raw(), pool.sku)
    answer = refused(pool, "a", timeout=0.7)
    assert isinstance(answer, Busy)
    assert answer.is_in_hand
    # At 0, 50, 150 and 350 ms, and at the deadline; a slow machine skips some.
    asked = scripts()
    assert 2 <= asked <= 5
    patient = plain_redis_side.start(lambda: pool.grant("a", timeout=PATIENCE))
    wait_until(lambda: scripts() >= asked + 4)
    first.confirm()
    assert isinstance(patient.result(SOON), Decided)
