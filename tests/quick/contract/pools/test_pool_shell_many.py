"""What the pool's shell adds to batches, changes and expiry: pages, repeats while lapsed holds come back, resolvers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from segmented import protocol as op
from segmented.errors import InvalidInput, OrderUnknown, PoolGated, PoolNotGated
from segmented.models import Closed, Order, PoolClosed, Reserved, Resized, Restocked, Settled, SoldOut, TooFew

if TYPE_CHECKING:
    from collections.abc import Iterator

    from segmented.models import OrderRecord
    from segmented.stock import Pool
    from tests.fixtures.stores import Side


@pytest.fixture
def lasting(side: Side) -> Iterator[Pool]:
    """A pool whose holds live; not yet open."""
    made = side.pool(side.name())
    yield made
    assert made.audit().is_clean


@pytest.fixture
def due(side: Side) -> Iterator[Pool]:
    """A gated pool of nine units in which the orders a, b (two units) and c (three, of ann) have lapsed."""
    made = side.pool(side.name(), ttl=0.02, hold=0.02)
    made.open(stock=9, segments=2, gated=True)
    made.reserve_many([Order("a", 1), Order("b", 2), Order("c", 3, "ann")])
    side.pass_time(0.04)
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
    lasting.open(stock=1_300, segments=7)
    orders = [Order(f"o{index}", 1) for index in range(1_400)]
    answers = lasting.reserve_many([*orders, orders[0]])
    assert [type(answer) for answer in answers] == [Reserved] * 1_300 + [SoldOut] * 100 + [Reserved]
    assert [answer.order_id for answer in answers[:1_300] if isinstance(answer, Reserved)] == [
        f"o{n}" for n in range(1_300)
    ]
    assert getattr(answers[-1], "replay", None) is True
    confirmed = lasting.confirm_many(f"o{index}" for index in range(1_100))
    cancelled = lasting.cancel_many(f"o{index}" for index in range(1_000, 1_400))
    assert all(isinstance(answer, Settled) and answer.state == "confirmed" for answer in confirmed)
    assert [getattr(answer, "state", type(answer)) for answer in cancelled] == (
        ["confirmed"] * 100 + ["cancelled"] * 200 + [OrderUnknown] * 100
    )
    assert totals(lasting) == (200, 0, 1_100)
    assert lasting.state().sequence == 6  # opened, two pages each of reservations and confirmations, one of cancels


def test_no_orders_are_no_answers(lasting: Pool) -> None:
    lasting.open(stock=2, segments=1)
    assert (lasting.reserve_many([]), lasting.confirm_many([]), lasting.cancel_many(())) == ([], [], [])
    assert lasting.state().sequence == 1


def test_orders_that_lapsed_holds_keep_waiting_are_asked_again_and_keep_their_places(lasting: Pool, side: Side) -> None:
    brief = side.pool(lasting.sku, ttl=0.02, hold=0.02)
    brief.open(stock=1_000, segments=4)
    brief.reserve_many(Order(f"late{index}", 1) for index in range(1_000))
    side.pass_time(0.04)
    answers = lasting.reserve_many(Order(f"o{index}", 16) for index in range(63))
    assert [type(answer) for answer in answers] == [Reserved] * 62 + [SoldOut]
    assert answers[62] == SoldOut("o62", 16, available=8, reserved=992, sequence=answers[62].sequence)  # type: ignore[union-attr]  # compared as a whole
    assert totals(lasting) == (8, 992, 0)


def test_a_batch_of_orders_is_neither_cancelled_nor_confirmed_past_the_gate(lasting: Pool, side: Side) -> None:
    lasting.open(stock=9, segments=2, gated=True)
    lasting.reserve_many([Order("a", 2), Order("b", 3), Order("c", 1)])
    for ends in (lasting.cancel_many(["a", "b"]), lasting.confirm_many(["a", "b"])):
        assert [type(answer) for answer in ends] == [PoolGated, PoolGated]
    with pytest.raises(PoolGated):
        lasting.confirm("a")
    assert totals(lasting) == (3, 6, 0)
    side.execute(op.SettleMany(lasting.sku, "cancelled", ("a", "c"), decided=True))
    side.execute(op.SettleMany(lasting.sku, "confirmed", ("b",), decided=True))
    assert totals(lasting) == (6, 0, 3)


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
    assert (lasting.close().replay, lasting.resize(4).replay) == (True, True)


# --- expiry ---


def test_a_resolver_decides_what_becomes_of_lapsed_holds(due: Pool, side: Side) -> None:
    side.pool(due.sku).reserve("alive")
    asked: list[OrderRecord] = []
    settled = due.expire(resolver=resolver_of(side, {"a": "confirm", "b": "release", "c": "wait"}, asked))
    assert [(one.order_id, one.state, one.quantity) for one in settled] == [("a", "confirmed", 1), ("b", "expired", 2)]
    assert [(record.order_id, record.quantity, record.customer_id) for record in asked] == [
        ("a", 1, None),
        ("b", 2, None),
        ("c", 3, "ann"),
    ]
    assert totals(due) == (4, 4, 1)
    asked.clear()
    assert due.expire(resolver=resolver_of(side, {"c": "release"}, asked))[0].state == "expired"
    assert [record.order_id for record in asked] == ["c"]
    assert totals(due) == (7, 1, 1)


def test_an_order_decided_while_its_resolver_thinks_keeps_its_fate(due: Pool, side: Side) -> None:
    sku, store = due.sku, side.store

    def confirm_first(record: OrderRecord) -> Any:  # noqa: ANN401  # a verdict
        store.execute(op.Confirm(sku, record.order_id, stored=True))
        return "release"

    async def confirm_first_later(record: OrderRecord) -> Any:  # noqa: ANN401  # as above
        await store.execute(op.Confirm(sku, record.order_id, stored=True))
        return "release"

    resolver: Any = confirm_first if side.flavour.colour == "sync" else confirm_first_later
    assert due.expire(resolver=resolver) == ()
    assert totals(due) == (3, 0, 6)


def test_what_is_no_verdict_is_an_error_and_changes_nothing(due: Pool, side: Side) -> None:
    before = due.state()
    for verdict in ("", "confirmed", None, True, 1):
        with pytest.raises(InvalidInput, match=r"for order 'b'; it must return one of confirm, release, wait$"):
            due.expire(resolver=resolver_of(side, {"a": "release", "b": verdict, "c": "wait"}, []))
    with pytest.raises(KeyError):
        due.expire(resolver=resolver_of(side, {"a": "release"}, []))
    assert due.state() == before


def test_a_pool_without_a_gate_has_nobody_to_ask(lasting: Pool, side: Side) -> None:
    lasting.open(stock=9, segments=2)
    lasting.reserve("a")
    with pytest.raises(PoolNotGated):
        lasting.expire(resolver=resolver_of(side, {"a": "release"}, []))


def test_a_resolver_is_asked_about_no_more_than_the_limit(due: Pool, side: Side) -> None:
    asked: list[OrderRecord] = []
    verdicts = dict.fromkeys("abc", "release")
    assert len(due.expire(limit=2, resolver=resolver_of(side, verdicts, asked))) == 2
    assert (len(asked), totals(due)) == (2, (6, 3, 0))
