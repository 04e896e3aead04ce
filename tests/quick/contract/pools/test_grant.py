from __future__ import annotations

import pytest

from segmented.errors import OrderMismatch, OrderUnknown
from segmented.models import Busy, Granted, Lost, OrderRecord, Renewed, SoldOut
from tests.support.contract.pools.shop import LONG_MS, SHORT_MS, Shop


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


def test_a_token_is_the_clock_if_the_last_one_is_behind_it_or_else_the_last_plus_one(shop: Shop) -> None:
    shop.open(20, 4)
    first = shop.granted("a").fencing_token
    shop.side.pass_time(0.01)
    later_us = shop.now_us()
    assert later_us - first >= 10_000
    shop.check_tokens(later_us, shop.granted("b").fencing_token, shop.granted("c").fencing_token)


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


def test_when_every_segment_is_held_the_answer_is_busy_with_the_shortest_life_left(shop: Shop) -> None:
    shop.open(8, 2)
    shop.granted("a", ttl_ms=60_000)
    shop.granted("b", ttl_ms=120_000)
    answer = shop.grant("c", keep_refusal=True)
    assert isinstance(answer, Busy)
    assert (answer.order_id, answer.sequence, answer.is_in_hand) == ("c", 3, False)
    assert 0 < (answer.free_in_ms or 0) <= 60_000
    assert shop.record("c") is None
    assert shop.totals() == (6, 2, 0)


def test_a_segment_is_free_again_when_its_lease_has_lapsed_but_the_units_stay(shop: Shop) -> None:
    shop.open(8, 1)
    began_us = shop.now_us()
    first = shop.granted("a", 3)
    shop.let_lease_lapse("a")
    shop.check_tokens(began_us, first.fencing_token, shop.granted("b", 5).fencing_token)
    assert shop.totals() == (0, 8, 0)
    assert shop.confirm("a").state == "confirmed"
    assert isinstance(shop.grant("c"), SoldOut)


def test_renewing_moves_the_lease_and_the_hold(shop: Shop) -> None:
    shop.open(8, 1)
    shop.granted("a", ttl_ms=60_000, hold_ms=60_000)
    ends = []
    for ttl_ms in (60_000, LONG_MS):
        assert shop.renew("a", ttl_ms=ttl_ms) == Renewed(ttl_ms)
        record = shop.record("a")
        assert record is not None
        ends.append(record.hold_until_ms or 0)
    assert LONG_MS - 60_000 <= ends[1] - ends[0] <= LONG_MS
    answer = shop.grant("b")
    assert isinstance(answer, Busy)
    assert LONG_MS - 60_000 < (answer.free_in_ms or 0) <= LONG_MS


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


def test_a_kept_refusal_has_a_sequence_number_of_its_own_and_is_final(shop: Shop) -> None:
    shop.open(3, 2)
    shop.reserved("r", 2)
    assert shop.grant("a", 2, keep_refusal=True) == SoldOut("a", 2, available=1, reserved=2, sequence=3)
    shop.cancel("r")
    for keep_refusal in (True, False):
        assert shop.grant("a", 2, keep_refusal=keep_refusal) == SoldOut("a", 2, 3, 0, sequence=3, replay=True)
    with pytest.raises(OrderMismatch):
        shop.grant("a", 1)
    shop.restock(50, "more")
    assert isinstance(shop.grant("a", 2), SoldOut)
    assert shop.story()[2:4] == [("refused", "a"), ("cancelled", "r")]
    record = shop.record("a")
    assert record is not None
    assert (record.state, record.segment, record.parts, record.sequence) == ("refused", -1, (), 3)


def test_with_seventeen_due_holds_the_answer_is_busy_and_no_refusal_is_kept(shop: Shop) -> None:
    shop.open(17, 4)
    for index in range(17):
        shop.reserved(f"late{index:02}", hold_ms=SHORT_MS)
    shop.let_short_holds_lapse()
    assert shop.grant("a", 17, keep_refusal=True) == Busy("a", sequence=19, free_in_ms=0)
    assert shop.granted("a", 17).replay is False


def test_what_lapsed_is_given_back_also_for_a_grant_that_finds_no_free_segment(shop: Shop) -> None:
    shop.open(4, 1)
    shop.granted("a")
    shop.reserved("late", 3, hold_ms=SHORT_MS)
    shop.let_short_holds_lapse()
    assert isinstance(shop.grant("b", 2), Busy)
    assert shop.totals() == (3, 1, 0)


def test_holds_that_lapsed_together_with_their_leases_free_units_and_segments(shop: Shop) -> None:
    shop.open(4, 2)
    began_us = shop.now_us()
    lapsed = [shop.granted(order_id, 2, ttl_ms=SHORT_MS, hold_ms=SHORT_MS) for order_id in "ab"]
    shop.let_short_holds_lapse()
    granted = shop.granted("c", 4)
    shop.check_tokens(began_us, *(one.fencing_token for one in (*lapsed, granted)))
    assert shop.story()[3:] == [("expired", "a"), ("expired", "b"), ("reserved", "c")]


def test_a_gated_pool_keeps_no_refusal_while_ended_holds_are_undecided(shop: Shop) -> None:
    shop.open(2, 2, gated=True)
    shop.granted("late", 2, ttl_ms=SHORT_MS, hold_ms=SHORT_MS)
    shop.let_short_holds_lapse()
    for _ in range(2):
        refused = shop.grant("a", keep_refusal=True)
        assert refused == SoldOut("a", 1, available=0, reserved=2, sequence=2)
        assert refused.free_in_ms == 0
    assert shop.totals() == (0, 2, 0)


def test_the_widest_quantity_and_the_longest_hold_stay_exact(shop: Shop) -> None:
    shop.open(1_000_000_000, 2)
    shop.granted("a", 999_999_999, hold_ms=10 * 365 * 24 * 3_600_000)
    record = shop.record("a")
    assert record is not None
    assert record.parts == ((0, 500_000_000), (1, 499_999_999))
    assert isinstance(record.hold_until_ms, int)
    assert record.hold_until_ms > LONG_MS
    assert shop.totals() == (1, 999_999_999, 0)
