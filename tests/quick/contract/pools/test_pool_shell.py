"""`Pool` and `AsyncPool` as a seller uses them: the `with` statement, refusals, renewal, holds that lapse, waits."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from segmented import protocol as op
from segmented.errors import InvalidInput, LeaseLost, NotGranted, OrderMismatch, PoolGated
from segmented.models import Busy, Decided, Order, Refusal, Reserved, Settled
from segmented.plans import perform
from segmented.stock.plans import grant_plan
from tests.support.contract.bodies import fail_after
from tests.support.contract.pools.asleep import asleep
from tests.support.contract.pools.shop import Shop

if TYPE_CHECKING:
    from segmented.plans import Plan
    from segmented.stock import Grant, Pool
    from tests.fixtures.stores import Side

BRIEF = 0.02


def totals(pool: Pool) -> tuple[int, int, int]:
    state = pool.state()
    return state.available, state.reserved, state.confirmed


def granted(pool: Pool, order_id: str, *, quantity: int = 1) -> Grant:
    answer = pool.grant(order_id, quantity=quantity, timeout=0)
    assert not isinstance(answer, Refusal), answer
    return answer


def let_lease_lapse(pool: Pool, side: Side, grant: Grant) -> None:
    Shop(side, pool.sku).let_lease_lapse(grant.order_id, grant.holder_id)


# --- the with statement ---


def test_the_end_of_the_body_confirms_and_an_error_of_it_cancels(pool: Pool) -> None:
    with granted(pool, "a", quantity=3) as grant:
        assert grant.is_trusted
        assert totals(pool) == (5, 3, 0)
    assert totals(pool) == (5, 0, 3)
    with pytest.raises(ZeroDivisionError), granted(pool, "b", quantity=3):
        _ = 1 // 0
    assert totals(pool) == (5, 0, 3)


def test_an_explicit_end_in_the_body_is_kept(pool: Pool) -> None:
    with granted(pool, "a", quantity=3) as grant:
        assert grant.confirm() == Settled("a", "confirmed", 3, grant.segment, grant.fencing_token, 3, replay=False)
    with granted(pool, "b") as grant:
        assert isinstance(grant.cancel(), Settled)
    assert totals(pool) == (5, 0, 3)


def test_a_refusal_does_not_run_the_body(pool: Pool) -> None:
    granted(pool, "sold").confirm()
    for order_id in "ab":
        granted(pool, order_id)
    sold_out = r"sold out \(5 units free, 2 on hold, 9 asked for; try again in \d+\.\d s\)"
    for order_id, quantity, said in (
        ("large", 9, rf"^order 'large' was not granted: {sold_out}$"),
        ("c", 1, r"no segment was free before the deadline$"),
        ("sold", 1, r"already confirmed$"),
    ):
        with pytest.raises(NotGranted, match=said) as caught, pool.grant(order_id, quantity=quantity, timeout=0):
            pytest.fail("the body ran")
        assert isinstance(caught.value.refusal, Decided) is (order_id == "sold")


def test_an_overslept_body_that_fails_does_not_cancel_its_successors_order(pool: Pool, side: Side) -> None:
    def let_a_successor_in(first: Grant) -> None:
        let_lease_lapse(pool, side, first)
        granted(pool, "a", quantity=3)

    with pytest.raises(ZeroDivisionError), granted(pool, "a", quantity=3) as first:
        fail_after(partial(let_a_successor_in, first))
    assert totals(pool) == (5, 3, 0)


def test_the_end_of_the_body_does_not_confirm_in_a_gated_pool(side: Side) -> None:
    pool = side.pool(side.name())
    pool.open(stock=8, segments=2, gated=True)
    said = rf"^pool '{pool.sku}' is gated: its order database must store order 'a' first; use Pool\(store, sku, gate="
    with pytest.raises(PoolGated, match=said), granted(pool, "a", quantity=3):
        pytest.fail("the body ran")
    assert totals(pool) == (5, 3, 0)
    confirmed = side.execute(op.Confirm(pool.sku, "a", stored=True))
    assert (confirmed.state, totals(pool)) == ("confirmed", (5, 0, 3))
    assert pool.audit().is_clean


def test_a_failed_cancel_is_noted_on_the_bodys_error(side: Side) -> None:
    pool = side.pool(side.name())
    pool.open(stock=8, segments=2)
    with pytest.raises(ZeroDivisionError) as caught, granted(pool, "a"):
        fail_after(lambda: side.execute(op.FreezePool(pool.sku, 1)))
    (note,) = caught.value.__notes__
    assert note.startswith(f"and the order could not be cancelled: pool '{pool.sku}' is frozen: ")
    assert totals(pool) == (7, 1, 0)


# --- answers ---


def test_a_mismatch_leaves_the_same_holders_grant_alone(pool: Pool) -> None:
    pool.grant("a", quantity=2, timeout=0, holder_id="h")
    for timeout in (0, 1):
        with pytest.raises(OrderMismatch):
            pool.grant("a", quantity=3, timeout=timeout, holder_id="h")
    assert totals(pool) == (6, 2, 0)


def test_a_reservation_clears_more_due_holds_than_one_step_can(side: Side) -> None:
    pool = side.pool(side.name(), ttl=BRIEF, hold=BRIEF)
    pool.open(stock=50, segments=4)
    pool.reserve_many(Order(f"late{index}") for index in range(50))
    side.pass_time(2 * BRIEF)
    assert isinstance(pool.reserve("a", quantity=50), Reserved)
    assert totals(pool) == (0, 50, 0)


def test_expire_gives_back_every_lapsed_hold_up_to_the_limit(side: Side) -> None:
    pool = side.pool(side.name(), ttl=BRIEF, hold=BRIEF)
    pool.open(stock=500, segments=4)
    pool.reserve_many(Order(f"late{index}") for index in range(400))
    side.pass_time(2 * BRIEF)
    assert len(pool.expire(limit=30)) == 30
    before = pool.state().sequence
    assert (len(pool.expire(limit=150)), pool.state().sequence - before) == (150, 2)  # in two steps
    assert len(pool.expire()) == 220
    assert pool.expire() == ()
    assert totals(pool) == (500, 0, 0)


def test_a_gated_pool_does_not_expire_by_itself(side: Side) -> None:
    pool = side.pool(side.name(), ttl=BRIEF, hold=BRIEF)
    pool.open(stock=8, segments=2, gated=True)
    pool.reserve("a")
    side.pass_time(2 * BRIEF)
    with pytest.raises(PoolGated):
        pool.expire()
    assert totals(pool) == (7, 1, 0)


# --- leases ---


def test_a_renewed_grant_is_trusted_for_longer_and_a_confirmed_one_no_more(pool: Pool, side: Side) -> None:
    grant = granted(pool, "a")
    before = grant.trusted_until
    side.pass_time(0.001)
    grant.renew()
    assert grant.trusted_until > before
    grant.require()
    grant.confirm()
    assert not grant.is_trusted


def test_a_grant_whose_lease_has_lapsed_cannot_be_renewed(pool: Pool, side: Side) -> None:
    grant = granted(pool, "a")
    let_lease_lapse(pool, side, grant)
    for call in (grant.renew, grant.require):
        with pytest.raises(LeaseLost):
            call()
    assert not grant.is_trusted


# --- input ---


@pytest.mark.parametrize(
    ("ttl", "hold", "sentence"),
    [
        (0, 600, r"^ttl of 0 s is not a duration"),
        (10, -1, r"^hold of -1 s is not a duration"),
        (60, 10, r"^hold of 10 s is shorter than ttl of 60 s: the units would expire under a live lease$"),
    ],
)
def test_times_that_no_pool_can_have_are_rejected(memory: Side, ttl: float, hold: float, sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        memory.pool("never made", ttl=ttl, hold=hold)


def test_a_stock_or_segment_count_that_no_pool_can_have_is_rejected(memory: Side) -> None:
    for stock, segments in ((0, 1), (-1, 1), (10**12 + 1, 1), (5, 0), (5, -1), (5, 4_097)):
        with pytest.raises(InvalidInput, match=r"must be between 1 and [\d,]+$"):
            memory.pool("never made").open(stock=stock, segments=segments)
    with pytest.raises(InvalidInput, match=r"^sku '' must have 1 to 128 bytes of UTF-8$"):
        memory.pool("")


# --- how a second delivery of an order waits, and until when ---


def asked_again(shop: Shop, timeout: float | None) -> Plan[object]:
    operation = op.Grant(shop.sku, Order("a", 1), "second", 60_000, 60_000, keep_refusal=False)
    answer, _ = yield from grant_plan(operation, timeout)
    return answer


def test_a_second_delivery_asks_in_intervals_that_double_and_when_its_time_is_over(memory: Side) -> None:
    shop, slept = Shop(memory, "sku"), list[int]()
    shop.open(8, 2)
    shop.granted("a")
    answer = memory.run(asleep(memory, asked_again(shop, 0.7), slept))
    assert isinstance(answer, Busy)
    assert answer.is_in_hand
    assert slept == [50, 100, 200, 350]


def test_a_second_delivery_learns_within_a_second_that_the_first_was_confirmed(memory: Side) -> None:
    shop, slept = Shop(memory, "sku"), list[int]()
    shop.open(8, 2)
    shop.granted("a")

    def confirmed_in_the_end() -> Plan[object]:
        plan = asked_again(shop, None)
        effect = next(plan)
        while True:
            if len(slept) == 7:
                yield from perform(op.Confirm(shop.sku, "a"))
            try:
                effect = plan.send((yield effect))
            except StopIteration as stop:
                return stop.value

    answer = memory.run(asleep(memory, confirmed_in_the_end(), slept))
    assert isinstance(answer, Decided)
    assert (answer.state, answer.replay, slept) == ("confirmed", True, [50, 100, 200, 400, 800, 800, 800])


def test_a_second_delivery_takes_over_when_the_lease_of_the_first_ends(memory: Side) -> None:
    shop, slept = Shop(memory, "sku"), list[int]()
    shop.open(8, 2)
    first = shop.granted("a", ttl_ms=500)
    answer = memory.run(asleep(memory, asked_again(shop, None), slept))
    assert getattr(answer, "fencing_token", 0) > first.fencing_token
    assert slept == [50, 100, 200, 151]
