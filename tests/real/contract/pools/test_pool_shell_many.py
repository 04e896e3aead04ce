"""What the pool's shell adds to batches, changes and expiry: pages, repeats while lapsed holds come back, resolvers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from segmented import protocol as op
from segmented.errors import InvalidInput, OrderUnknown, PoolGated, PoolNotGated
from segmented.models import (
    Closed,
    LimitReached,
    Opened,
    Order,
    PoolClosed,
    Reserved,
    Resized,
    Restocked,
    Settled,
    SoldOut,
    TooFew,
)
from tests.support.contract.parking import has_come_to_rest, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from segmented.models import OrderRecord
    from segmented.stock import Pool
    from tests.fixtures.stores import Side

SOON = 30.0


@pytest.fixture
def pool(waiting_side: Side) -> Iterator[Pool]:
    """A pool whose holds lapse soon; not yet open."""
    made = waiting_side.pool(waiting_side.name(), ttl=0.02, hold=0.02)
    yield made
    assert made.audit().is_clean


@pytest.fixture
def lasting(waiting_side: Side) -> Iterator[Pool]:
    """A pool whose holds live; not yet open."""
    made = waiting_side.pool(waiting_side.name())
    yield made
    assert made.audit().is_clean


def totals(pool: Pool) -> tuple[int, int, int]:
    state = pool.state()
    return state.available, state.reserved, state.confirmed


def resolver_of(side: Side, verdicts: dict[str, Any], asked: list[OrderRecord]) -> Any:  # noqa: ANN401  # of either colour
    def resolve(record: OrderRecord) -> Any:  # noqa: ANN401  # also what is no verdict
        asked.append(record)
        return verdicts[record.order_id]

    async def resolve_later(record: OrderRecord) -> Any:  # noqa: ANN401  # as above
        return resolve(record)

    return resolve_later if side.flavour.colour == "async" else resolve


# --- batches ---


def test_more_than_a_thousand_orders_are_reserved_confirmed_and_cancelled(lasting: Pool) -> None:
    lasting.open(stock=2_600, segments=7)
    answers = lasting.reserve_many(Order(f"o{index}", 1) for index in range(2_700))
    assert [type(answer) for answer in answers] == [Reserved] * 2_600 + [SoldOut] * 100
    assert [answer.order_id for answer in answers if isinstance(answer, Reserved)] == [f"o{n}" for n in range(2_600)]
    confirmed = lasting.confirm_many(f"o{index}" for index in range(1_500))
    cancelled = lasting.cancel_many(f"o{index}" for index in range(1_400, 2_700))
    assert all(isinstance(answer, Settled) and answer.state == "confirmed" for answer in confirmed)
    assert [getattr(answer, "state", type(answer)) for answer in cancelled] == (
        ["confirmed"] * 100 + ["cancelled"] * 1_100 + [OrderUnknown] * 100
    )
    assert totals(lasting) == (1_100, 0, 1_500)
    assert lasting.state().sequence == 8  # opened, and 3 + 2 + 2 pages: the last of the cancels knew nobody


def test_an_id_that_comes_again_on_a_later_page_is_a_repeat(lasting: Pool) -> None:
    lasting.open(stock=2_000, segments=7)
    orders = [Order(f"o{index}", 1) for index in range(1_200)]
    answers = lasting.reserve_many([*orders, orders[0], orders[1_199]])
    assert [isinstance(answer, Reserved) and answer.replay for answer in answers] == [False] * 1_200 + [True] * 2
    assert totals(lasting) == (800, 1_200, 0)


def test_no_orders_are_no_answers(lasting: Pool) -> None:
    lasting.open(stock=2, segments=1)
    assert lasting.reserve_many([]) == []
    assert lasting.confirm_many([]) == []
    assert lasting.cancel_many(()) == []
    assert lasting.state().sequence == 1


def test_orders_that_lapsed_holds_keep_waiting_are_asked_for_again_and_stay_in_their_places(
    pool: Pool, waiting_side: Side
) -> None:
    pool.open(stock=1_000, segments=4)
    pool.reserve_many(Order(f"late{index}", 1) for index in range(1_000))
    waiting_side.pass_time(0.04)
    lasting = waiting_side.pool(pool.sku)
    answers = lasting.reserve_many(Order(f"o{index}", 16) for index in range(63))
    assert [type(answer) for answer in answers] == [Reserved] * 62 + [SoldOut]
    assert answers[62] == SoldOut("o62", 16, available=8, reserved=992, sequence=answers[62].sequence)  # type: ignore[union-attr]  # compared as a whole
    assert totals(pool) == (8, 992, 0)


def test_a_batch_of_orders_is_not_cancelled_past_the_gate(lasting: Pool, waiting_side: Side) -> None:
    lasting.open(stock=9, segments=2, gated=True)
    lasting.reserve_many([Order("a", 2), Order("b", 3)])
    assert [type(answer) for answer in lasting.cancel_many(["a", "b"])] == [PoolGated, PoolGated]
    voided = op.SettleMany(lasting.sku, "cancelled", ("a", "b"), decided=True)
    assert [type(answer) for answer in waiting_side.execute(voided)] == [Settled, Settled]
    assert totals(lasting) == (9, 0, 0)


def test_a_batch_of_orders_is_not_confirmed_past_the_gate(lasting: Pool, waiting_side: Side) -> None:
    lasting.open(stock=9, segments=2, gated=True)
    lasting.reserve_many([Order("a", 2), Order("b", 3)])
    assert [type(answer) for answer in lasting.confirm_many(["a", "b"])] == [PoolGated, PoolGated]
    with pytest.raises(PoolGated):
        lasting.confirm("a")
    assert totals(lasting) == (4, 5, 0)
    stored = op.SettleMany(lasting.sku, "confirmed", ("a", "b"), decided=True)
    assert [type(answer) for answer in waiting_side.execute(stored)] == [Settled, Settled]
    assert totals(lasting) == (4, 0, 5)


def test_partial_orders_and_limits_pass_through(lasting: Pool) -> None:
    opened = lasting.open(stock=9, segments=2, limit_per_customer=4)
    assert isinstance(opened, Opened)
    assert opened.state.limit_per_customer == 4
    answers = lasting.reserve_many([Order("a", 6, "ann"), Order("b", 6, "ann"), Order("c", 1)], partial=True)
    assert [type(answer) for answer in answers] == [Reserved, LimitReached, InvalidInput]
    answer = lasting.reserve(Order("d", 3, "bob"))
    assert isinstance(answer, Reserved)
    answer = lasting.reserve(Order("e", 9, "cleo"), partial=True)
    assert isinstance(answer, Reserved)
    assert answer.quantity == 2


# --- changes ---


def test_a_pool_is_restocked_withdrawn_from_resized_and_closed(lasting: Pool) -> None:
    lasting.open(stock=9, segments=2)
    assert lasting.restock(5, restock_id="r") == Restocked("r", 5, 2, 14, replay=False)
    assert lasting.restock(5, restock_id="r") == Restocked("r", 5, 2, 14, replay=True)
    assert lasting.withdraw(15, withdraw_id="w") == TooFew("w", 15, 14)
    assert lasting.withdraw(10, withdraw_id="w") == Restocked("w", 10, 3, 4, replay=False)
    assert lasting.resize(4) == Resized(lasting.state(), replay=False)
    assert lasting.state().stock == (1, 1, 1, 1)
    assert lasting.close() == PoolClosed(lasting.state(), replay=False)
    assert lasting.restock(5, restock_id="late") == Closed("late")
    assert lasting.reserve("a") == Closed("a")
    assert lasting.close().replay
    assert lasting.resize(4).replay


def test_a_waiter_gets_one_of_the_segments_that_a_resize_adds(lasting: Pool, waiting_side: Side) -> None:
    lasting.open(stock=9, segments=1)
    held: Any = lasting.grant("a", timeout=0)
    waiters = [waiting_side.start(lambda name=name: lasting.grant(name, timeout=30)) for name in "bc"]  # type: ignore[misc]  # a default argument
    wait_until(lambda: has_come_to_rest(waiting_side.store, 2))
    lasting.resize(3)
    granted: list[Any] = [waiter.result(SOON) for waiter in waiters]
    assert sorted(grant.segment for grant in granted) == [1, 2]
    for grant in (held, *granted):
        grant.confirm()


def test_a_closed_pools_waiter_is_told_when_its_turn_comes(lasting: Pool, waiting_side: Side) -> None:
    lasting.open(stock=9, segments=1)
    held: Any = lasting.grant("a", timeout=0)
    waiter = waiting_side.start(lambda: lasting.grant("b", timeout=30))
    wait_until(lambda: has_come_to_rest(waiting_side.store, 1))
    lasting.close()
    held.confirm()
    assert waiter.result(SOON) == Closed("b")


# --- expiry ---


def test_a_resolver_decides_what_becomes_of_lapsed_holds(pool: Pool, waiting_side: Side) -> None:
    pool.open(stock=9, segments=2, gated=True)
    pool.reserve_many([Order("sold", 1), Order("gone", 2), Order("unknown yet", 3, "ann")])
    waiting_side.pass_time(0.04)
    verdicts = {"sold": "confirm", "gone": "release", "unknown yet": "wait"}
    asked: list[OrderRecord] = []
    settled = pool.expire(resolver=resolver_of(waiting_side, verdicts, asked))
    assert {(one.order_id, one.state, one.quantity) for one in settled} == {
        ("sold", "confirmed", 1),
        ("gone", "expired", 2),
    }
    assert {(record.order_id, record.quantity, record.customer_id) for record in asked} == {
        ("sold", 1, None),
        ("gone", 2, None),
        ("unknown yet", 3, "ann"),
    }
    assert totals(pool) == (5, 3, 1)
    asked.clear()
    assert pool.expire(resolver=resolver_of(waiting_side, {"unknown yet": "release"}, asked))[0].state == "expired"
    assert [record.order_id for record in asked] == ["unknown yet"]
    assert totals(pool) == (8, 0, 1)


def test_a_resolver_is_not_asked_about_holds_that_live(lasting: Pool, waiting_side: Side) -> None:
    lasting.open(stock=9, segments=2, gated=True)
    lasting.reserve("a")
    asked: list[OrderRecord] = []
    assert lasting.expire(resolver=resolver_of(waiting_side, {}, asked)) == ()
    assert asked == []


def test_an_order_decided_while_its_resolver_thinks_keeps_its_fate(pool: Pool, waiting_side: Side) -> None:
    pool.open(stock=9, segments=2, gated=True)
    pool.reserve("a", quantity=2)
    waiting_side.pass_time(0.04)
    sku = pool.sku
    other = waiting_side.store if waiting_side.flavour.colour == "sync" else None

    def confirm_first(record: OrderRecord) -> Any:  # noqa: ANN401  # a verdict
        if other is not None:
            other.execute(op.Confirm(sku, record.order_id, stored=True))
        return "release"

    async def confirm_first_later(record: OrderRecord) -> Any:  # noqa: ANN401  # as above
        await pool._target.store.execute(op.Confirm(sku, record.order_id, stored=True))  # type: ignore[attr-defined]  # noqa: SLF001  # the asyncio pool, inside its loop
        return "release"

    resolver: Any = confirm_first if other is not None else confirm_first_later
    assert pool.expire(resolver=resolver) == ()
    assert totals(pool) == (7, 0, 2)


@pytest.mark.parametrize("verdict", ["", "confirmed", None, True, 1])
def test_what_is_no_verdict_is_an_error_and_changes_nothing(pool: Pool, waiting_side: Side, verdict: object) -> None:
    pool.open(stock=9, segments=2, gated=True)
    pool.reserve_many([Order("a", 1), Order("b", 1)])
    waiting_side.pass_time(0.04)
    before = pool.state()
    resolver = resolver_of(waiting_side, {"a": "release", "b": verdict}, [])
    with pytest.raises(InvalidInput, match=r"for order 'b'; it must return one of confirm, release, wait$"):
        pool.expire(resolver=resolver)
    assert pool.state() == before


def test_a_resolver_that_fails_changes_nothing(pool: Pool, waiting_side: Side) -> None:
    pool.open(stock=9, segments=2, gated=True)
    pool.reserve_many([Order("a", 1), Order("b", 1)])
    waiting_side.pass_time(0.04)
    before = pool.state()
    with pytest.raises(KeyError):
        pool.expire(resolver=resolver_of(waiting_side, {"a": "release"}, []))
    assert pool.state() == before


def test_a_pool_without_a_gate_has_nobody_to_ask(pool: Pool, waiting_side: Side) -> None:
    pool.open(stock=9, segments=2)
    pool.reserve("a")
    waiting_side.pass_time(0.04)
    with pytest.raises(PoolNotGated):
        pool.expire(resolver=resolver_of(waiting_side, {"a": "release"}, []))
    assert totals(pool) == (8, 1, 0)


def test_a_resolver_is_asked_about_no_more_than_the_limit(pool: Pool, waiting_side: Side) -> None:
    pool.open(stock=9, segments=2, gated=True)
    pool.reserve_many([Order(order_id, 1) for order_id in "abcd"])
    waiting_side.pass_time(0.04)
    asked: list[OrderRecord] = []
    verdicts = dict.fromkeys("abcd", "release")
    assert len(pool.expire(limit=3, resolver=resolver_of(waiting_side, verdicts, asked))) == 3
    assert len(asked) == 3
    assert totals(pool) == (8, 1, 0)


def test_a_limit_of_one_hundred_and_fifty_gives_back_that_many(pool: Pool, waiting_side: Side) -> None:
    pool.open(stock=400, segments=2)
    pool.reserve_many(Order(f"o{index}", 1) for index in range(400))
    waiting_side.pass_time(0.04)
    assert len(pool.expire(limit=150)) == 150
    assert totals(pool) == (150, 250, 0)
    assert pool.state().sequence == 4  # in two steps
