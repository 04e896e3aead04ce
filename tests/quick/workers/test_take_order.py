"""`take_order` and its neighbours: a pool and an order database in step, with the database as the judge."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from segmented import MemoryStore, Order, Pool, Reserved, Settled, SoldOut
from segmented.clock import ManualClock
from segmented.errors import PoolDiverged, PoolGated, PoolNotGated
from segmented.orders import Gate, connect, open_gated
from segmented.orders.sale import cancel_order, expire_voided, finish_reserved, take_order

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from segmented.stock import Grant

SKU = "mug"


@pytest.fixture
def gate(sqlite_url: str) -> Iterator[Gate]:
    with Gate(connect(sqlite_url)) as gate:
        gate.create()
        gate.open(SKU, [3, 3])
        yield gate


def gated_pool(clock: ManualClock | None = None) -> Pool:
    pool = Pool(MemoryStore(clock=clock or ManualClock()), SKU)
    pool.open(stock=6, segments=2, gated=True)
    return pool


def test_an_order_taken_twice_has_one_effect_in_both(gate: Gate) -> None:
    pool = gated_pool()
    answers = [take_order(pool, gate, Order("a", 4), timeout=0) for _ in range(2)]
    assert [(answer.state, answer.replay) for answer in answers if isinstance(answer, Settled)] == [
        ("confirmed", False),
        ("confirmed", True),
    ]
    assert gate.confirmed_units(SKU) == pool.state().confirmed == 4
    assert isinstance(take_order(pool, gate, Order("b", 3), timeout=0), SoldOut)


def overtaken(gate: Gate, times: int) -> tuple[Pool, Callable[[Grant], None], list[int]]:
    """Return a pool, a body that lets its lease lapse so often while another order is sold, and its tokens."""
    clock, tokens = ManualClock(), list[int]()
    pool = Pool(MemoryStore(clock=clock), "cup")
    open_gated(pool, gate, stock=20, segments=1)

    def body(grant: Grant) -> None:
        tokens.append(grant.fencing_token)
        if len(tokens) <= times:
            clock.advance(11.0)  # a grant's lease lives for 10
            take_order(pool, gate, Order(f"other {len(tokens)}", 1), timeout=0)

    return pool, body, tokens


def test_an_order_whose_grant_a_later_one_overtook_is_granted_again_and_sold_once(gate: Gate) -> None:
    pool, body, tokens = overtaken(gate, 1)
    settled = take_order(pool, gate, Order("a", 2), timeout=0, body=body, repeat_body=True)
    assert isinstance(settled, Settled)
    assert (settled.state, settled.replay, len(tokens)) == ("confirmed", False, 2)
    assert settled.fencing_token == tokens[1] > tokens[0] + 1
    assert gate.totals("cup").sold == pool.state().confirmed == 3
    assert gate.orders("cup", ["a"])["a"].fence == tokens[1]


def test_after_ten_grants_that_were_overtaken_an_order_gives_up_and_keeps_its_units(gate: Gate) -> None:
    pool, body, tokens = overtaken(gate, 10)
    with pytest.raises(PoolDiverged, match="10 grants in a row were superseded"):
        take_order(pool, gate, Order("a", 2), timeout=0, body=body, repeat_body=True)
    assert len(tokens) == 10
    assert (pool.state().confirmed, pool.state().reserved, gate.totals("cup").sold) == (10, 2, 10)


def test_a_body_that_raises_voids_the_order_and_gives_its_units_back(gate: Gate) -> None:
    pool = gated_pool()

    def refuse(_: Grant) -> None:
        message = "the card was refused"
        raise ValueError(message)

    with pytest.raises(ValueError, match="the card was refused"):
        take_order(pool, gate, Order("a", 4), timeout=0, body=refuse)
    assert gate.orders(SKU, ["a"])["a"].state == "void"
    assert pool.state().available == 6


def test_a_pool_that_was_opened_without_a_gate_is_refused(gate: Gate) -> None:
    pool = Pool(MemoryStore(), SKU)
    pool.open(stock=6, segments=2)
    with pytest.raises(PoolNotGated):
        take_order(pool, gate, Order("a", 1), timeout=0)
    reserved = pool.reserve(Order("b", 1))
    assert isinstance(reserved, Reserved)
    with pytest.raises(PoolNotGated):
        finish_reserved(pool, gate, Order("b", 1), reserved)
    assert gate.confirmed_units(SKU) == 0


def test_a_gated_pool_gives_back_only_what_the_database_has_voided(gate: Gate) -> None:
    pool = gated_pool()
    pool.reserve(Order("a", 2))
    with pytest.raises(PoolGated):
        pool.cancel("a")
    assert cancel_order(pool, gate, Order("a", 2)).state == "cancelled"
    assert pool.state().available == 6


def test_lapsed_holds_are_voided_first_and_what_the_database_confirmed_stays_sold(gate: Gate) -> None:
    clock = ManualClock()
    pool = gated_pool(clock)
    pool.reserve(Order("lapsed", 2))
    pool.reserve(Order("stored", 1))
    gate.confirm(order_id="stored", sku=SKU, segment=0, quantity=1, epoch=1)
    clock.advance(1_000)
    decided = expire_voided(pool, gate)
    assert sorted((settled.order_id, settled.state) for settled in decided) == [
        ("lapsed", "expired"),
        ("stored", "confirmed"),
    ]
    assert pool.audit().is_clean
