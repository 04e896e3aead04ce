"""The sold-out mark: what it refuses, what it never refuses, and how long."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from segmented.clock import ManualClock
from segmented.errors import NotGranted, OrderMismatch
from segmented.models import Decided, Order, Reserved, SoldOut
from segmented.stock import AsyncPool, Grant, Pool, sold_out_mark as module
from segmented.stock.sold_out_mark import SoldOutMark

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fixtures.stores import Side
    from tests.support.contract.parking import CountScripts


LONG: Final = 60.0


def marked(side: Side, sku: str, seconds: float = LONG) -> Pool:
    """Make a pool with a mark: each is a process of its own."""
    return side.made(
        lambda store: Pool(store, sku, sold_out_mark=seconds),
        lambda store: AsyncPool(store, sku, sold_out_mark=seconds),
    )


def sold_out(side: Side, stock: int = 2, seconds: float = LONG) -> Pool:
    pool = marked(side, side.name(), seconds)
    pool.open(stock=stock, segments=2)
    assert isinstance(pool.reserve("first", quantity=stock), Reserved)
    assert not by_mark(pool.reserve("second"))
    return pool


def refuse_and_fail(pool: Pool) -> None:
    assert not by_mark(pool.reserve("second"))
    _ = 1 // 0


def by_mark(answer: object) -> bool:
    assert isinstance(answer, SoldOut), answer
    return answer.by_mark


def test_after_a_refusal_new_orders_are_refused_without_a_command_and_counted(
    plain_redis_side: Side, count_scripts: CountScripts
) -> None:
    pool = sold_out(plain_redis_side)
    scripts = count_scripts(plain_redis_side.raw(), pool.sku)
    assert all(by_mark(pool.reserve(f"o{index}")) for index in range(20))
    assert by_mark(pool.grant("granted", timeout=0))
    assert [by_mark(answer) for answer in pool.reserve_many([Order("m1", 1), Order("m2", 2)])] == [True, True]
    with pytest.raises(NotGranted, match="sold out"), pool.grant("third", timeout=0):
        pytest.fail("the body ran")
    assert (scripts(), pool.refused_by_mark) == (0, 24)
    assert pool.audit().is_clean


def test_without_a_mark_a_refused_order_costs_one_command(plain_redis_side: Side, count_scripts: CountScripts) -> None:
    pool = plain_redis_side.pool(plain_redis_side.name())
    pool.open(stock=1, segments=2)
    pool.reserve("first")
    pool.grant("second", timeout=0)  # the server has both scripts from now on
    scripts = count_scripts(plain_redis_side.raw(), pool.sku)
    for index in range(5):
        pool.reserve(f"r{index}")
        pool.grant(f"g{index}", timeout=LONG)
    assert scripts() == 10


def test_an_order_that_fits_what_was_free_is_sent(side: Side) -> None:
    pool = marked(side, side.name())
    pool.open(stock=5, segments=2)
    assert not by_mark(pool.reserve("too large", quantity=7))
    assert by_mark(pool.reserve("as large", quantity=6))
    assert isinstance(pool.reserve("part", quantity=9, partial=True), Reserved)
    assert not by_mark(pool.reserve("next", quantity=5))


def test_a_repeat_gets_its_first_answer_while_the_mark_lives(side: Side) -> None:
    pool = marked(side, side.name())
    pool.open(stock=3, segments=2)
    pool.reserve("kept")
    pool.reserve("sold")
    pool.confirm("sold")
    grant = pool.grant("granted", holder_id="me", timeout=0)
    assert isinstance(grant, Grant) or type(grant).__name__ == "Blocking"
    assert not by_mark(pool.reserve("refused"))
    again = pool.reserve("kept")
    assert isinstance(again, Reserved)
    assert again.replay
    assert isinstance(pool.reserve("sold"), Decided)
    with pytest.raises(OrderMismatch):
        pool.reserve("kept", quantity=2)
    assert not isinstance(pool.grant("granted", holder_id="me", timeout=0), SoldOut)
    assert by_mark(pool.reserve("refused"))  # nothing was kept of it: a repeat is a new order


def test_what_this_process_gives_back_ends_it(side: Side) -> None:
    ways: dict[str, Callable[[Pool], object]] = {
        "cancel": lambda pool: pool.cancel("first"),
        "cancel_many": lambda pool: pool.cancel_many(["first"]),
        "restock": lambda pool: pool.restock(1, restock_id="r1"),
    }
    for way, give_back in ways.items():
        pool = sold_out(side, stock=1)
        give_back(pool)
        assert isinstance(pool.reserve("third"), Reserved), way
    pool = sold_out(side)
    pool.expire()  # whatever it gave back
    assert not by_mark(pool.reserve("asked again"))
    pool = marked(side, side.name())
    pool.open(stock=1, segments=1)
    with pytest.raises(ZeroDivisionError), pool.grant("first", timeout=0):
        refuse_and_fail(pool)
    assert isinstance(pool.reserve("third"), Reserved)


def test_what_another_process_gives_back_is_buyable_within_its_seconds(memory: Side) -> None:
    here = sold_out(memory, stock=1, seconds=0.1)
    memory.pool(here.sku).cancel("first")
    assert by_mark(here.reserve("too early"))
    memory.pass_time(0.1)
    assert isinstance(here.reserve("in time"), Reserved)


def test_a_refusal_that_is_to_be_kept_is_the_servers(side: Side) -> None:
    pool = sold_out(side)
    answer = pool.grant("kept", keep_refusal=True, timeout=0)
    assert not by_mark(answer)
    again = pool.grant("kept", timeout=0)
    assert isinstance(again, SoldOut)
    assert (again.replay, again.by_mark) == (True, False)


# --- the mark alone ---


def refusal_at(mark: SoldOutMark, asked_at: float, available: int = 0) -> None:
    mark.note("refused", SoldOut("refused", available + 1, available, 0, 7), asked_at)


def test_an_answer_to_what_was_asked_before_a_return_sets_no_mark() -> None:
    clock = ManualClock()
    mark = SoldOutMark(1.0, clock)
    asked_at = clock.now()
    clock.advance(0.01)
    mark.clear()
    clock.advance(0.01)
    refusal_at(mark, asked_at)
    assert mark.refusal(Order("a", 1), partial=False) is None
    refusal_at(mark, clock.now())
    assert mark.refusal(Order("b", 1), partial=False) is not None


def test_at_the_age_at_which_it_ends_it_refuses_no_more(memory: Side) -> None:
    """Its answer is that of the order that was refused, with its age, rounded up."""
    pool = sold_out(memory, stock=3, seconds=0.125)
    memory.pass_time(0.0625)
    told = pool.reserve("third", quantity=2)
    assert told == SoldOut("third", 2, 0, 3, 2, by_mark=True, age_ms=63)
    memory.pass_time(0.0625)
    assert not by_mark(pool.reserve("third", quantity=2))


def test_a_refusal_kept_before_sets_no_mark_and_its_order_is_asked_for_again() -> None:
    clock = ManualClock()
    mark = SoldOutMark(1.0, clock)
    assert mark.refusal(Order("kept", 1), partial=False) is None
    mark.note("kept", SoldOut("kept", 1, 0, 0, 7, replay=True), clock.now())
    assert mark.refusal(Order("a", 1), partial=False) is None
    refusal_at(mark, clock.now())
    assert mark.refusal(Order("kept", 1), partial=False) is None


def test_the_order_ids_that_it_remembers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KNOWN_MAX", 3)
    clock = ManualClock()
    mark = SoldOutMark(1.0, clock)
    for name in "abcd":
        assert mark.refusal(Order(name, 1), partial=False) is None
        mark.note(name, Reserved(name, 1, 0, ((0, 1),), 1, 1, replay=False), clock.now())
    refusal_at(mark, clock.now())
    assert [mark.refusal(Order(name, 1), partial=False) is None for name in "bcd"] == [True] * 3
    assert mark.refusal(Order("a", 1), partial=False) is not None
