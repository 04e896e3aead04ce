"""Grants: units and a segment in one step, again, gathered from several segments, and beside other clients' locks."""

from typing import Any

import pytest

from segmented import MemoryStore, Pool
from segmented.clock import ManualClock
from segmented.errors import InvalidInput, OrderUnknown
from segmented.keys import shard_keys
from segmented.models import Busy, Granted, Lost, OrderRecord, Renewed, Settled, SoldOut, Superseded
from segmented.stock import Grant
from tests.fixtures.stores import Side
from tests.support.contract.pools.shop import LONG_MS, SHORT_MS, Shop
from tests.support.contract.shards.sharding import sharded


def test_a_grant_takes_units_and_a_segment_in_one_step(shop: Shop) -> None:
    shop.open(10, 4)
    began_us = shop.now_us()
    granted = shop.grant("a", 4, holder_id="h", customer_id="ann")
    assert isinstance(granted, Granted)
    token = granted.fencing_token
    assert granted == Granted("a", 4, 0, ((0, 3), (1, 1)), "h", token, 1, 2, 0, replay=False)
    shop.check_tokens(began_us, token)
    assert shop.totals() == (6, 4, 0)
    assert shop.state().stock == (0, 2, 2, 2)
    record = shop.record("a")
    assert record is not None
    until_ms = record.hold_until_ms
    assert record == OrderRecord("a", "reserved", 4, 0, ((0, 3), (1, 1)), "h", token, until_ms, "ann", 2, 4)


def test_a_token_is_one_more_than_the_last_when_that_is_ahead_of_the_clock(redis_shop: Shop) -> None:
    redis_shop.open(20, 4)
    ahead = redis_shop.granted("a").fencing_token + 3_600_000_000
    redis_shop.side.raw().hset(redis_shop.keys.meta, "fence", ahead)
    assert [redis_shop.granted(order_id).fencing_token for order_id in "bc"] == [ahead + 1, ahead + 2]
    redis_shop.side.raw().hset(redis_shop.keys.meta, "fence", 1)  # as on a promoted server whose clock is behind
    assert redis_shop.granted("d").fencing_token == ahead + 3


def test_a_grant_says_that_another_segment_was_freed(shop: Shop) -> None:
    shop.open(8, 3)
    for order_id in "abc":
        shop.granted(order_id)
    for order_id in "ab":
        shop.confirm(order_id)
    assert shop.granted("d").free_in_ms == 0


def test_a_segment_is_free_again_when_its_lease_has_lapsed_but_the_units_stay(shop: Shop) -> None:
    shop.open(8, 1)
    began_us = shop.now_us()
    first = shop.granted("a", 3)
    shop.let_lease_lapse("a")
    shop.check_tokens(began_us, first.fencing_token, shop.granted("b", 5).fencing_token)
    assert shop.totals() == (0, 8, 0)
    assert shop.confirm("a").state == "confirmed"
    assert isinstance(shop.grant("c"), SoldOut)


def test_renewing_never_shortens_the_hold(shop: Shop) -> None:
    shop.open(8, 1)
    shop.granted("a", hold_ms=60_000)
    before = shop.record("a")
    shop.renew("a", ttl_ms=10)
    assert shop.record("a") == before


def test_who_does_not_hold_the_lease_cannot_renew_it(shop: Shop) -> None:
    shop.open(8, 2)
    shop.granted("a", holder_id="h")
    assert shop.renew("a", holder_id="another") == Lost()
    shop.let_lease_lapse("a", "h")
    assert shop.renew("a", holder_id="h") == Lost()
    shop.reserved("b")
    assert shop.renew("b", holder_id="h") == Lost()
    shop.granted("c", holder_id="h")
    shop.confirm("c")
    assert shop.renew("c", holder_id="h") == Lost()
    with pytest.raises(OrderUnknown, match=r"^order 'd' is not known to the pool$"):
        shop.renew("d")


def test_sold_out_is_exact_to_the_last_unit(shop: Shop) -> None:
    """And goes before busy."""
    shop.open(100, 7)
    for index in range(99):
        shop.granted(f"o{index}")
        shop.confirm(f"o{index}")
    assert shop.grant("two", 2) == SoldOut("two", 2, available=1, reserved=0, sequence=199)
    assert shop.granted("one").parts[0][1] == 1
    assert shop.grant("none") == SoldOut("none", 1, available=0, reserved=1, sequence=200)
    assert shop.record("none") is None  # a refusal is not kept unless asked
    other = Shop(shop.side, shop.side.name())
    other.open(2, 1)
    other.granted("a")
    assert other.grant("b", 2) == SoldOut("b", 2, available=1, reserved=1, sequence=2)
    assert isinstance(other.grant("c", 1), Busy)


def test_with_seventeen_due_holds_the_answer_is_busy_and_no_refusal_is_kept(shop: Shop) -> None:
    shop.open(17, 4)
    for index in range(17):
        shop.reserved(f"late{index:02}", hold_ms=SHORT_MS)
    shop.let_short_holds_lapse()
    assert shop.grant("a", 17, keep_refusal=True) == Busy("a", sequence=19, free_in_ms=0)
    assert shop.granted("a", 17).replay is False


def test_holds_that_lapsed_together_with_their_leases_free_units_and_segments(shop: Shop) -> None:
    shop.open(4, 2)
    began_us = shop.now_us()
    lapsed = [shop.granted(order_id, 2, ttl_ms=SHORT_MS, hold_ms=SHORT_MS) for order_id in "ab"]
    shop.let_short_holds_lapse()
    granted = shop.granted("c", 4)
    shop.check_tokens(began_us, *(one.fencing_token for one in (*lapsed, granted)))
    assert shop.story()[3:] == [("expired", "a"), ("expired", "b"), ("reserved", "c")]


def test_an_empty_segment_still_serves_any_order(shop: Shop) -> None:
    shop.open(4, 2)
    shop.granted("a", 2)
    shop.confirm("a")
    assert shop.granted("b").segment == 1
    granted = shop.granted("c")
    assert (granted.segment, granted.parts) == (0, ((1, 1),))


def test_a_repeat_counts_the_lease_anew(side: Side) -> None:
    """Others are told so, and kept out, also when the first life is over."""
    for first_ms in (60_000, SHORT_MS):
        shop = Shop(side, side.name())
        shop.open(8, 1)
        shop.granted("a", holder_id="h", ttl_ms=first_ms)
        shop.granted("a", holder_id="h", ttl_ms=LONG_MS)
        shop.let_short_holds_lapse()
        answer = shop.grant("b")
        assert isinstance(answer, Busy), first_ms
        assert LONG_MS - 60_000 < (answer.free_in_ms or 0) <= LONG_MS, first_ms
        assert shop.renew("a", holder_id="h") == Renewed(LONG_MS)
        shop.check_books()


def test_a_repeat_holds_the_units_anew(shop: Shop) -> None:
    shop.open(8, 1)
    shop.granted("a", 8, holder_id="h", hold_ms=SHORT_MS)
    shop.granted("a", 8, holder_id="h", hold_ms=LONG_MS)
    shop.let_short_holds_lapse()
    assert shop.due() == ()


@pytest.mark.parametrize("second", ["h", "second"])
def test_a_shorter_hold_of_a_repeat_or_second_delivery_does_not_shorten_the_first(shop: Shop, second: str) -> None:
    shop.open(8, 1)
    shop.granted("a", holder_id="h", hold_ms=LONG_MS)
    if second != "h":
        shop.let_lease_lapse("a", "h")
    assert shop.granted("a", holder_id=second, hold_ms=SHORT_MS).replay
    shop.let_short_holds_lapse()
    assert shop.due() == ()


def test_a_holder_of_another_orders_segment_has_no_lease_on_this_order(shop: Shop) -> None:
    shop.open(8, 1)
    shop.granted("a", holder_id="first")
    shop.let_lease_lapse("a", "first")
    shop.granted("b", holder_id="second")
    answer = shop.grant("a", holder_id="second")
    assert isinstance(answer, Busy)
    assert not answer.is_in_hand


def test_another_holder_is_told_how_long_the_lease_lives(shop: Shop) -> None:
    shop.open(8, 2)
    shop.granted("a", 3, holder_id="h", ttl_ms=60_000)
    answer = shop.grant("a", 3, holder_id="second")
    assert isinstance(answer, Busy)
    assert (answer.order_id, answer.sequence, answer.is_in_hand) == ("a", 2, True)
    assert answer.free_in_ms is not None
    assert 0 < answer.free_in_ms <= 60_000
    assert answer.describe() == "another holder works on it"
    assert shop.totals() == (5, 3, 0)


def test_an_overslept_holder_cannot_cancel_what_its_successor_works_on(shop: Shop) -> None:
    shop.open(8, 2)
    shop.reserved("r")
    assert shop.cancel("r", "h") == Superseded("r", 0)  # it was never granted
    shop.granted("a", 3, holder_id="h")
    shop.let_lease_lapse("a", "h")
    token = shop.granted("a", 3, holder_id="second").fencing_token
    assert shop.cancel("a", "h") == Superseded("a", token)
    assert shop.totals() == (4, 4, 0)
    assert isinstance(shop.cancel("a", "second"), Settled)


def test_an_overslept_holder_may_still_confirm_because_the_units_are_the_orders(shop: Shop) -> None:
    """That frees nothing of its successor, who confirms, too."""
    shop.open(8, 1)
    shop.granted("a", 3, holder_id="old")
    shop.let_lease_lapse("a", "old")
    shop.granted("a", 3, holder_id="new")
    assert [shop.confirm("a", "old").replay, isinstance(shop.grant("b"), Busy)] == [False, True]
    assert shop.confirm("a", "new").replay
    assert shop.totals() == (5, 0, 3)
    assert shop.granted("b").segment == 0


def hold(shop: Shop, segment: int, *, px: int | None = None) -> None:
    assert shop.side.raw().set(f"{shop.keys.lock}:{segment}", "another client", nx=True, px=px)


def release(shop: Shop, segment: int) -> None:
    assert shop.side.raw().delete(f"{shop.keys.lock}:{segment}") == 1


def test_a_segment_that_another_client_holds_is_passed_over(redis_shop: Shop) -> None:
    """Its units are sold all the same."""
    redis_shop.open(6, 3)
    hold(redis_shop, 0)
    assert [redis_shop.granted(order_id).segment for order_id in "ab"] == [1, 2]
    assert isinstance(redis_shop.grant("c"), Busy)
    redis_shop.confirm("b")
    assert redis_shop.granted("d", 4).parts == ((2, 1), (0, 2), (1, 1))


def test_a_lock_that_never_lapses_is_looked_at_again_in_a_second(redis_shop: Shop) -> None:
    redis_shop.open(6, 1)
    hold(redis_shop, 0)
    answer = redis_shop.grant("a")
    assert isinstance(answer, Busy)
    assert answer.free_in_ms == 1_000


def test_a_segment_is_found_again_the_moment_the_other_client_has_gone(redis_shop: Shop) -> None:
    redis_shop.open(6, 2)
    hold(redis_shop, 0, px=600_000)
    hold(redis_shop, 1)
    assert isinstance(redis_shop.grant("a"), Busy)
    release(redis_shop, 1)
    assert redis_shop.granted("a").segment == 1
    release(redis_shop, 0)
    assert redis_shop.granted("b").segment == 0


def test_a_lock_whose_holder_is_named_like_an_orders_is_not_that_orders_lease(redis_shop: Shop) -> None:
    redis_shop.open(6, 2)
    redis_shop.granted("a", holder_id="h")
    hold(redis_shop, 1)
    release(redis_shop, 0)
    redis_shop.side.raw().set(f"{redis_shop.keys.lock}:0", "somebody else", px=600_000)
    answer = redis_shop.grant("a", holder_id="h")
    assert isinstance(answer, Busy)
    assert answer.is_in_hand is False
    release(redis_shop, 0)
    release(redis_shop, 1)


def test_a_deleted_lock_among_many_segments_is_found_after_a_fifth_of_a_second() -> None:
    """A refused attempt does not read the locks of 129 segments each time: it did so a moment ago."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    pool = Pool(store, "ticket", ttl=600, hold=600)
    pool.open(stock=1_000, segments=129)
    for index in range(129):
        assert isinstance(pool.grant(f"full{index}", timeout=0), Grant)
    assert isinstance(pool.grant("a", timeout=0), Busy)
    store.model.ask("DEL", f"{shard_keys('ticket').lock}:77")
    assert isinstance(pool.grant("a", timeout=0), Busy)
    clock.advance(0.2)
    found = pool.grant("a", timeout=0)
    assert isinstance(found, Grant)
    assert found.segment == 77


class PaymentTimeoutError(Exception):
    """The provider did not answer."""


class LateTimeoutError(PaymentTimeoutError):
    """It did not answer for long."""


@pytest.fixture(params=[False, True], ids=["in one slot", "in shards"])
def pool(side: Side, request: pytest.FixtureRequest) -> Any:  # noqa: ANN401  # a Pool or a ShardedPool
    """Eight units in as few segments as there can be."""
    make: Any = sharded if request.param else type(side).pool
    pool = make(side, side.name())
    pool.open(stock=8, segments=1 + request.param, **({"shards": 2} if request.param else {}))
    return pool


def totals(pool: Any) -> tuple[int, int, int]:  # noqa: ANN401  # as above
    state = pool.state()
    return state.available, state.reserved, state.confirmed


def raise_timeout() -> None:
    raise LateTimeoutError


def test_a_body_with_an_unknown_outcome_keeps_its_units_and_frees_its_segment(pool: Any) -> None:  # noqa: ANN401  # as above
    grant = pool.grant("a", quantity=3, timeout=0, keep_on=(KeyError, PaymentTimeoutError))
    with pytest.raises(LateTimeoutError), grant:
        raise_timeout()
    assert totals(pool) == (5, 3, 0)
    again = pool.grant("a", quantity=3, timeout=0)  # the segment is free, and the units are the order's
    assert (again.replay, again.quantity) == (True, 3)
    assert again.fencing_token > grant.fencing_token
    again.confirm()
    assert totals(pool) == (5, 0, 3)


def test_what_is_no_exception_type_is_refused_before_anything_is_sent(pool: Any) -> None:  # noqa: ANN401  # as above
    bad_ones: list[Any] = ["PaymentTimeout", (KeyError, "x"), [KeyError], int, KeyError(), None]
    for bad in bad_ones:
        with pytest.raises(InvalidInput, match=r"^keep_on=.* is not an exception type or a tuple of them$"):
            pool.grant("a", timeout=0, keep_on=bad)
    assert totals(pool) == (8, 0, 0)


def test_units_come_from_the_own_segment_first_then_from_where_some_were_found_last(shop: Shop) -> None:
    shop.open(12, 4)
    shop.granted("a")
    assert shop.granted("b", 8).parts == ((1, 3), (0, 2), (2, 3))
    assert shop.state().stock == (0, 0, 0, 3)


def test_units_of_a_locked_segment_are_not_stranded(shop: Shop) -> None:
    shop.open(10, 2)
    shop.granted("a")
    assert shop.granted("b", 9).parts == ((1, 5), (0, 4))
    assert shop.totals() == (0, 10, 0)
