"""`take_order` and its neighbours where the pool grants less, or nothing: the database stores what was taken."""

from collections.abc import Callable

import pytest

from segmented import MemoryStore, Order, Pool, Reserved, Settled, SoldOut
from segmented.clock import ManualClock
from segmented.errors import OrderMismatch, OrderUnknown
from segmented.models import Closed, Decided, LimitReached
from segmented.orders import Gate
from segmented.orders.answers import AlreadyConfirmed, Voided
from segmented.orders.sale import cancel_order, expire_voided, finish_reserved, take_order
from segmented.protocol import ReadOrders
from segmented.stock import Grant
from tests.support.pools.gating import NEW, REPLAY, confirm

pytestmark = pytest.mark.usefixtures("patient_attempts")


@pytest.fixture
def open_pool(memory: MemoryStore, gate: Gate) -> Callable[..., Pool]:
    def open_one(stock: int = 6, *, limit_per_customer: int | None = None) -> Pool:
        pool = Pool(memory, "mug")
        Pool(pool.store, pool.sku, gate=gate).open(stock=stock, segments=2, limit_per_customer=limit_per_customer)
        return pool

    return open_one


def state_of(answer: object) -> tuple[str, int, bool]:
    assert isinstance(answer, Settled | Decided)
    return answer.state, answer.quantity, answer.replay


def known(pool: Pool, order_id: str) -> bool:
    return pool.store.execute(ReadOrders("mug", (order_id,))) != (None,)


def check_agree(pool: Pool, gate: Gate) -> None:
    state, totals = pool.state(), gate.totals("mug")
    assert (totals.quota, totals.sold, gate.confirmed_units("mug")) == (state.stocked, state.confirmed, state.confirmed)
    assert pool.audit().is_clean


# --- what is left ---


def test_a_partial_order_is_stored_with_what_it_took(open_pool: Callable[..., Pool], gate: Gate) -> None:
    pool = open_pool()
    seen: list[int] = []

    def body(grant: Grant) -> None:
        seen.append(grant.quantity)

    assert state_of(take_order(pool, gate, Order("a", 4), timeout=0)) == ("confirmed", 4, False)
    order = Order("b", 5)
    assert isinstance(take_order(pool, gate, order, timeout=0), SoldOut)
    assert state_of(take_order(pool, gate, order, timeout=0, partial=True, body=body)) == ("confirmed", 2, False)
    assert state_of(take_order(pool, gate, order, timeout=0, partial=True, body=body)) == ("confirmed", 2, True)
    assert seen == [2]
    assert gate.orders("mug", ["b"])["b"].quantity == 2
    check_agree(pool, gate)


def test_a_partial_order_voided_before_it_was_granted_gives_back_what_it_took(
    open_pool: Callable[..., Pool], gate: Gate
) -> None:
    """Whoever voided it knew only how many were asked for."""
    pool = open_pool()
    gate.void(order_id="a", sku="mug", quantity=9, asked=9)
    answer = take_order(pool, gate, Order("a", 9), timeout=0, partial=True)
    assert state_of(answer) == ("cancelled", 6, False)
    assert (pool.state().available, gate.orders("mug", ["a"])["a"].state) == (6, "void")
    check_agree(pool, gate)


def test_lapsed_partial_holds_are_voided_with_what_they_took(
    open_pool: Callable[..., Pool], gate: Gate, clock: ManualClock
) -> None:
    pool = open_pool()
    pool.reserve(Order("lapsed", 9), partial=True)
    clock.advance(1_000)
    decided = [*expire_voided(pool, gate)]
    pool.reserve(Order("stored", 8), partial=True)
    confirm(gate, "stored", quantity=6, asked=8)
    clock.advance(1_000)
    decided += expire_voided(pool, gate)
    assert [state_of(one) for one in decided] == [("expired", 6, False), ("confirmed", 6, False)]
    assert gate.orders("mug", ["lapsed"])["lapsed"].quantity == 6
    check_agree(pool, gate)


def test_a_lapsed_hold_of_an_order_that_was_stored_with_another_part_stays_sold(
    open_pool: Callable[..., Pool], gate: Gate, clock: ManualClock
) -> None:
    """As after a failover that lost the first reservation, which a worker had stored before."""
    pool = open_pool()
    pool.reserve(Order("a", 9), partial=True)
    confirm(gate, "a", quantity=2, asked=9)
    clock.advance(1_000)
    decided = expire_voided(pool, gate)
    assert [state_of(one) for one in decided] == [("confirmed", 6, False)]


def test_the_gate_takes_any_part_of_what_was_asked_and_no_more(gate: Gate) -> None:
    gate.open("mug", [9])
    assert confirm(gate, "a", quantity=3, asked=5) == NEW
    assert confirm(gate, "a", quantity=2, asked=5) == REPLAY
    for quantity, asked in ((2, None), (2, 2), (5, None)):
        with pytest.raises(OrderMismatch):
            confirm(gate, "a", quantity=quantity, asked=asked)
    assert gate.void(order_id="a", sku="mug", quantity=5, asked=5) == AlreadyConfirmed()
    assert gate.void(order_id="b", sku="mug", quantity=5, asked=5) == Voided(replay=False)
    assert confirm(gate, "b", quantity=3, asked=5) == Voided(replay=True)
    assert gate.totals("mug").sold == 3


# --- an id that the database knows with other content ---


def test_units_of_an_order_that_is_void_with_other_content_go_back(open_pool: Callable[..., Pool], gate: Gate) -> None:
    pool = open_pool()
    with pytest.raises(OrderUnknown):
        cancel_order(pool, gate, Order("x", 5))  # before it has arrived
    assert state_of(take_order(pool, gate, Order("x", 3), timeout=0)) == ("cancelled", 3, False)
    assert (pool.state().available, pool.state().reserved) == (6, 0)
    assert state_of(take_order(pool, gate, Order("x", 3), timeout=0)) == ("cancelled", 3, True)
    assert gate.orders("mug", ["x"])["x"].quantity == 5
    check_agree(pool, gate)


# --- limits ---


def test_a_customer_at_the_limit_is_refused_and_nothing_is_kept(open_pool: Callable[..., Pool], gate: Gate) -> None:
    pool = open_pool(limit_per_customer=3)
    assert state_of(take_order(pool, gate, Order("a", 2, "ann"), timeout=0)) == ("confirmed", 2, False)
    for _ in range(2):
        answer = take_order(pool, gate, Order("b", 2, "ann"), timeout=0, keep_refusal=True)
        assert answer == LimitReached("b", 2, "ann", 3, 2)
    assert not known(pool, "b")
    assert set(gate.orders("mug", ["a", "b"])) == {"a"}
    check_agree(pool, gate)


def test_after_a_cancel_the_customer_buys_again_under_the_refused_id(
    open_pool: Callable[..., Pool], gate: Gate
) -> None:
    pool = open_pool(limit_per_customer=3)
    pool.reserve(Order("a", 2, "ann"))
    assert isinstance(take_order(pool, gate, Order("b", 2, "ann"), timeout=0, keep_refusal=True), LimitReached)
    cancel_order(pool, gate, Order("a", 2, "ann"))
    answer = take_order(pool, gate, Order("b", 2, "ann"), timeout=0, keep_refusal=True)
    assert state_of(answer) == ("confirmed", 2, False)
    row = gate.orders("mug", ["b"])["b"]
    assert (row.quantity, row.customer_id) == (2, "ann")
    check_agree(pool, gate)


# --- closed ---


def test_a_closed_pool_refuses_new_orders_and_keeps_no_refusal(open_pool: Callable[..., Pool], gate: Gate) -> None:
    pool = open_pool()
    reserved = pool.reserve(Order("before", 2))
    assert isinstance(reserved, Reserved)
    assert state_of(take_order(pool, gate, Order("a", 1), timeout=0)) == ("confirmed", 1, False)
    pool.close()
    for _ in range(2):
        assert take_order(pool, gate, Order("b", 1), timeout=0, keep_refusal=True) == Closed("b")
    assert not known(pool, "b")
    assert gate.orders("mug", ["b"]) == {}
    assert state_of(take_order(pool, gate, Order("a", 1), timeout=0)) == ("confirmed", 1, True)
    assert state_of(finish_reserved(pool, gate, Order("before", 2), reserved)) == ("confirmed", 2, False)
    check_agree(pool, gate)
