"""The mark of a sold-out pool, and holds that are extended."""

from collections.abc import Callable
from typing import Final

import pytest

from segmented.clock import ManualClock
from segmented.errors import AlreadySettled, InvalidInput, NotGranted, OrderMismatch, OrderQueued, OrderUnknown
from segmented.models import Decided, Order, Reserved, SoldOut
from segmented.stock import AsyncPool, Grant, Outbox, Pool, sold_out_mark as module
from segmented.stock.sold_out_mark import SoldOutMark
from tests.fixtures.stores import Side
from tests.support.contract.parking import CountScripts
from tests.support.contract.pools.shop import SHORT_MS, Shop
from tests.support.contract.shards.sharding import check_all, sharded

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


HOUR: Final = 3_600


def until(answer: object) -> int:
    assert isinstance(answer, Reserved), answer
    return answer.hold_until_ms


def test_a_hold_is_lengthened_by_another_process_and_never_shortened(side: Side, pool: Pool) -> None:
    reserved = pool.reserve("a", quantity=3)
    longer = side.pool(pool.sku).extend("a", seconds=HOUR)
    assert 2_900_000 < until(longer) - until(reserved) <= 3_100_000
    assert pool.extend("a", seconds=300) == longer
    assert until(pool.extend("a", seconds=300)) == until(longer)
    assert isinstance(reserved, Reserved)
    assert (longer.quantity, longer.parts, longer.sequence) == (3, reserved.parts, reserved.sequence)
    record = pool.order("a")
    assert record is not None
    assert record.hold_until_ms == until(longer)
    assert pool.state().sequence == 2


@pytest.mark.parametrize("end", ["confirm", "cancel"])
def test_the_hold_of_an_order_that_has_ended_is_refused_in_one_sentence(pool: Pool, end: str) -> None:
    pool.reserve("a", quantity=3)
    state = getattr(pool, end)("a").state
    said = rf"^order 'a' is already {state}: its hold is not lengthened$"
    for _ in range(2):
        with pytest.raises(AlreadySettled, match=said):
            pool.extend("a", seconds=300)
    with pytest.raises(OrderUnknown, match=r"^order 'b' is not known to the pool$"):
        pool.extend("b", seconds=300)


def test_a_hold_extended_after_its_end_gives_its_units_back_at_once(shop: Shop) -> None:
    shop.open(8, 2)
    shop.reserved("a", 3, hold_ms=SHORT_MS)
    shop.let_short_holds_lapse()
    with pytest.raises(AlreadySettled, match=r"^order 'a' is already expired: its hold is not lengthened$"):
        shop.side.pool(shop.sku).extend("a", seconds=300)
    assert shop.totals() == (8, 0, 0)
    assert shop.story() == [("opened", None), ("reserved", "a"), ("expired", "a")]


def test_a_live_lease_keeps_a_hold_that_has_ended_and_it_is_lengthened(shop: Shop) -> None:
    shop.open(8, 2)
    shop.grant("a", 3, hold_ms=SHORT_MS)
    shop.let_short_holds_lapse()
    assert until(shop.side.pool(shop.sku).extend("a", seconds=300)) > 0
    assert shop.totals() == (5, 3, 0)


def test_an_order_that_waits_for_a_worker_has_no_hold_to_lengthen(side: Side) -> None:
    sku, outbox = side.name(), Outbox(decides="in the worker")
    pool = side.made(lambda store: Pool(store, sku, outbox=outbox), lambda store: AsyncPool(store, sku, outbox=outbox))
    pool.open(stock=8, segments=2)
    pool.submit("a")
    with pytest.raises(OrderQueued, match=r"^order 'a' is queued: "):
        pool.extend("a", seconds=300)
    assert pool.state().reserved == 0


def test_a_hold_in_shards_is_lengthened_at_the_orders_home(side: Side) -> None:
    pool = sharded(side, side.name())
    pool.open(stock=9, segments=4, shards=3, limit_per_customer=3)
    reserved = pool.reserve(Order("a", 2, "ann"))
    assert until(pool.extend("a", seconds=HOUR, customer_id="ann")) - until(reserved) > 2_900_000
    with pytest.raises(InvalidInput, match=r"name the customer of order 'a'$"):
        pool.extend("a", seconds=HOUR)
    check_all(pool)
