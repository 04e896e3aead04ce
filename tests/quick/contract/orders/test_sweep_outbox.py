"""The sweep, the dead-letter set, and the messages that nobody could read."""

from typing import cast

import pytest

from segmented import protocol as op
from segmented.models import Order, Settled
from segmented.models.submitted import OutboxState, Queued, Replayed, SweepSuperseded, Swept
from tests.fixtures.stores import Side
from tests.support.contract.orders.submitting import (
    begin_and_die,
    begun,
    buried,
    dead,
    named,
    orders,
    outbox,
    put_off,
    queue,
    replay,
    submit,
    submitted,
    sweep,
    take,
    waiting,
)
from tests.support.contract.pools.shop import LONG_MS, SHORT_MS, Shop

NOTHING = Swept((), (), is_more_due=False)


def swept(shop: Shop, **terms: int) -> Swept:
    answer = sweep(shop, **terms)
    assert isinstance(answer, Swept)
    return answer


# --- what is due ---


def test_what_is_due_is_named_longest_ago_first_and_once(shop: Shop) -> None:
    shop.open(9, 3)
    submit(shop, Order("b", 1), after_ms=0)
    shop.side.pass_time(0.003)
    queue(shop, Order("a", 1), after_ms=0)
    submit(shop, Order("later", 1))
    shop.side.pass_time(0.003)
    assert outbox(shop).due == 2
    assert outbox(shop).oldest_due_ms >= 3
    assert swept(shop).due == (("b", 0), ("a", 0))
    assert sweep(shop) == NOTHING
    assert outbox(shop) == OutboxState(3, 0, 0, 0)


def test_no_more_than_the_limit_is_named_and_it_is_said_that_more_is_due(shop: Shop) -> None:
    shop.open(9, 3)
    submit(shop, *orders(5), after_ms=0)
    shop.side.pass_time(0.003)
    first, second, third = (swept(shop, limit=2) for _ in range(3))
    assert [(len(one.due), one.is_more_due) for one in (first, second, third)] == [(2, True), (2, True), (1, False)]
    assert [order_id for one in (first, second, third) for order_id, _ in one.due] == [
        "o00",
        "o01",
        "o02",
        "o03",
        "o04",
    ]


def check_due_in(shop: Shop, order_id: str, milliseconds: int) -> None:
    """Check when an order is due next, with up to ten seconds for a slow machine."""
    server = shop.side.server
    if server is None:
        shop.side.pass_time((milliseconds - 2) / 1_000)
        assert outbox(shop).due == 0
        shop.side.pass_time(0.004)
        assert outbox(shop).due == 1
        return
    seconds, microseconds = server.time()
    due_ms = cast("float", server.zscore(shop.keys.outbox, order_id)) - seconds * 1_000 - microseconds // 1_000
    assert milliseconds - 30_000 < due_ms <= milliseconds


def test_the_time_between_doubles_up_to_the_most(shop: Shop) -> None:
    shop.open(9, 3)
    submit(shop, Order("a", 1))
    for number, wait_ms in enumerate((20_000, 40_000, 50_000, 50_000)):
        put_off(shop, "a", delay_ms=0)
        shop.side.pass_time(0.003)
        assert swept(shop, base_ms=20_000, most_ms=50_000).due == (("a", 0),)
        assert submitted(shop, "a").published == number + 1
        check_due_in(shop, "a", wait_ms)


def test_the_time_between_begins_anew_once_a_worker_has_begun_the_order(shop: Shop) -> None:
    shop.open(9, 3)
    submit(shop, Order("a", 1))
    for _ in range(2):
        put_off(shop, "a", delay_ms=0)
        shop.side.pass_time(0.003)
        swept(shop)
    begin_and_die(shop, "a")
    assert submitted(shop, "a").published == 0
    assert swept(shop, base_ms=20_000).due == (("a", 1),)
    check_due_in(shop, "a", 20_000)


def test_an_id_in_the_outbox_of_which_nothing_else_is_known_leaves_it(plain_redis_shop: Shop) -> None:
    shop = plain_redis_shop
    shop.open(9, 3)
    shop.side.raw().zadd(shop.keys.outbox, {"stray": 1})
    assert (waiting(shop), outbox(shop).due) == (1, 1)
    assert sweep(shop) == NOTHING
    assert waiting(shop) == 0


def test_the_hold_of_what_is_published_again_begins_anew(shop: Shop) -> None:
    shop.open(9, 3)
    submit(shop, Order("a", 1), after_ms=0, hold_ms=SHORT_MS)
    shop.side.pass_time(0.003)
    swept(shop, hold_ms=LONG_MS)
    shop.let_short_holds_lapse()
    assert shop.expire_due() == ((), False)


def test_an_order_begun_too_often_is_buried_by_the_sweep(shop: Shop) -> None:
    shop.open(9, 3)
    submit(shop, *orders(2), after_ms=0)
    begin_and_die(shop, "o00", times=5)
    assert sweep(shop) == Swept((("o01", 0),), ("o00",), is_more_due=False)
    assert (submitted(shop, "o00").state, submitted(shop, "o00").begun) == ("dead", 5)
    assert outbox(shop).dead == 1
    assert waiting(shop) == 1


# --- who sweeps ---


def test_a_sweep_with_an_earlier_token_changes_nothing(shop: Shop) -> None:
    shop.open(9, 3)
    submit(shop, *orders(3), after_ms=0)
    shop.side.pass_time(0.003)
    assert swept(shop, token=7, limit=1).due == (("o00", 0),)
    assert sweep(shop, token=6) == SweepSuperseded(7)
    assert outbox(shop).due == 2
    assert len(swept(shop, token=7, limit=1).due) == 1
    assert len(swept(shop, token=8, limit=1).due) == 1
    assert sweep(shop, token=7) == SweepSuperseded(8)


# --- the dead-letter set ---


@pytest.mark.parametrize("by_worker", [False, True], ids=["at acceptance", "in the worker"])
def test_a_dead_order_is_replayed_as_if_for_the_first_time(shop: Shop, *, by_worker: bool) -> None:
    shop.open(9, 3)
    order = Order("a", 2, "ann")
    (queue if by_worker else submit)(shop, order)
    buried(shop, "a")
    assert replay(shop, "a") == (Replayed("a"),)
    assert dead(shop) == []
    found = submitted(shop, "a")
    assert (found.state, found.begun, found.published, found.reason) == ("reserved", 0, 0, "")
    shop.side.pass_time(0.003)
    assert swept(shop).due == (("a", 0),)
    again = begun(shop, "a", holder="w2")
    assert (again.order, again.begun) == (order, 1)
    assert replay(shop, "a") == (None,)


def test_a_queued_order_that_died_and_is_submitted_again_comes_back_to_the_set(shop: Shop) -> None:
    shop.open(9, 3)
    queue(shop, Order("a", 2))
    assert put_off(shop, "a", begun_max=0) == 1
    assert queue(shop, Order("a", 2)) == (Queued("a", replay=True),)
    assert waiting(shop) == 1
    assert named(take(shop, "a").orders) == ["Dead"]
    assert (waiting(shop), shop.totals()) == (0, (9, 0, 0))


def test_the_hold_of_a_dead_order_lapses_as_any_other(shop: Shop) -> None:
    shop.open(9, 3)
    submit(shop, Order("a", 2))
    take(shop, "a")
    put_off(shop, "a", begun_max=1, hold_ms=1)
    shop.let_short_holds_lapse()
    assert [one.order_id for one in shop.expire_due()[0]] == ["a"]
    answer = replay(shop, "a")[0]
    assert isinstance(answer, Settled)
    assert answer.state == "expired"


# --- messages that nobody could read ---


def test_no_more_than_a_thousand_messages_are_kept_and_a_known_one_is_still_kept(side: Side) -> None:
    queue_name = side.name("queue")
    for number in range(1_000):
        assert side.execute(op.KeepMessage(queue_name, f"d{number}", "", "x"))
    assert not side.execute(op.KeepMessage(queue_name, "one more", "", "x"))
    assert side.execute(op.KeepMessage(queue_name, "d7", "", "x"))
    assert len(side.execute(op.ListMessages(queue_name))) == 1_000
    side.execute(op.DropMessage(queue_name, "d7"))
    assert side.execute(op.KeepMessage(queue_name, "one more", "", "x"))
