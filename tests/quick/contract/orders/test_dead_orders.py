"""What an operator reads of submitted orders, and the replay of dead ones: each store, both colours."""

from dataclasses import replace
from typing import Any, Final

import pytest

from segmented import protocol as op
from segmented.errors import InvalidInput, PoolMissing
from segmented.models import Order
from segmented.models.submitted import SUBMITTED_UNTIL_MS, KeptMessage, Replayed, Submitted
from segmented.stock.dead_letters import (
    Place,
    ReplayedOrder,
    dead_letters_plan,
    message_of,
    order_plan,
    outboxes_plan,
    replay_plan,
)
from tests.fixtures.stores import Side
from tests.support.contract.pools.shop import LONG_MS, Shop

WORKER: Final = "0f9c2d71aa"
REASON: Final = "ValueError: no such address"


def queue(side: Side, sku: str, order_id: str, quantity: int = 2) -> None:
    side.execute(op.NotePool(sku, submits=True))
    side.execute(op.QueueOrders(sku, (Order(order_id, quantity, "ann"),), LONG_MS))


def take(side: Side, sku: str, order_id: str) -> None:
    side.execute(op.TakeOrders(sku, (order_id,), WORKER, LONG_MS, LONG_MS, LONG_MS, 5))


def bury(side: Side, sku: str, order_id: str, quantity: int = 2, *, hold_ms: int = LONG_MS) -> None:
    """Accept an order, take its units, and give it up at the first failure."""
    queue(side, sku, order_id, quantity)
    take(side, sku, order_id)
    given_up = op.PutOff(sku, (order_id,), WORKER, LONG_MS, counts=True, begun_max=1, reason=REASON, hold_ms=hold_ms)
    assert side.execute(given_up) == 1


def one(shop: Shop, order_id: str) -> Submitted:
    (found,) = shop.side.run(order_plan(shop.sku, order_id))
    assert found.place == Place(shop.sku)
    return found.found


# --- an order ---


def test_an_order_in_hand_names_its_worker_its_end_and_a_hold_without_a_worker(shop: Shop) -> None:
    shop.open(10, 2)
    queue(shop.side, shop.sku, "a")
    take(shop.side, shop.sku, "a")
    found = one(shop, "a")
    assert (found.state, found.order, found.worker, found.begun) == ("reserved", None, WORKER, 1)
    assert LONG_MS - 30_000 < found.until_ms - found.read_at_ms <= LONG_MS
    assert found.record is not None
    assert found.record.hold_until_ms == SUBMITTED_UNTIL_MS


def test_a_dead_order_is_in_nobodys_hand_and_in_no_outbox(shop: Shop) -> None:
    shop.open(10, 2)
    bury(shop.side, shop.sku, "a")
    found = one(shop, "a")
    assert (found.state, found.worker, found.until_ms, found.due_ms) == ("dead", "", 0, None)
    assert found.dead_at_ms is not None
    assert 0 <= found.read_at_ms - found.dead_at_ms < 30_000


# --- the set ---


def test_the_set_tells_units_on_hold_and_what_was_decided_meanwhile(shop: Shop) -> None:
    shop.open(10, 2)
    bury(shop.side, shop.sku, "held")
    bury(shop.side, shop.sku, "cancelled", 3)
    shop.side.execute(op.Cancel(shop.sku, "cancelled"))
    bury(shop.side, shop.sku, "lapsed", 3, hold_ms=1)
    shop.let_short_holds_lapse()
    shop.expire_due()
    letters = {letter.dead.order_id: letter for letter in shop.side.run(dead_letters_plan(shop.sku))}
    assert {name: (letter.units_on_hold, letter.found.state) for name, letter in letters.items()} == {
        "held": (2, "dead"),
        "lapsed": (0, "expired"),
    }
    assert {letter.dead.reason for letter in letters.values()} == {REASON}
    assert all(0 <= letter.age_ms < 30_000 for letter in letters.values())


def test_more_dead_orders_than_one_page_are_read_and_replayed(shop: Shop) -> None:
    shop.open(5_000, 2)
    ids = tuple(f"order-{number}" for number in range(1_200))
    for page in (ids[:1_000], ids[1_000:]):
        shop.side.execute(op.QueueOrders(shop.sku, tuple(Order(each, 1) for each in page), LONG_MS))
        shop.side.execute(op.TakeOrders(shop.sku, page, WORKER, LONG_MS, LONG_MS, LONG_MS, 5))
        shop.side.execute(op.PutOff(shop.sku, page, WORKER, LONG_MS, counts=True, begun_max=1, reason=REASON))
    assert len(shop.side.run(dead_letters_plan(shop.sku))) == 1_200
    for page in (ids[:1_000], ids[1_000:]):
        assert {type(each.answer) for each in shop.side.run(replay_plan(shop.sku, page))} == {Replayed}
    assert shop.side.run(dead_letters_plan(shop.sku)) == []


def test_a_replayed_order_is_due_at_once_and_counted_anew(shop: Shop) -> None:
    shop.open(10, 2)
    bury(shop.side, shop.sku, "a")
    answers = shop.side.run(replay_plan(shop.sku, ["a", "b", "a"]))
    assert answers == [
        ReplayedOrder("a", Place(shop.sku), Replayed("a")),
        ReplayedOrder("b", Place(shop.sku), None),
    ]
    found = one(shop, "a")
    assert (found.state, found.begun, found.dead_at_ms) == ("reserved", 0, None)
    assert found.due_ms is not None
    assert found.due_ms <= found.read_at_ms
    (again,) = shop.side.run(replay_plan(shop.sku, ["a"]))
    assert again.answer is None


@pytest.mark.parametrize("ids", [[], ["a", "b\n"], [f"{number}" for number in range(1_001)]], ids=len)
def test_a_replay_of_what_cannot_be_changes_nothing(shop: Shop, ids: list[str]) -> None:
    shop.open(10, 2)
    bury(shop.side, shop.sku, "a")
    with pytest.raises(InvalidInput):
        shop.side.run(replay_plan(shop.sku, ids))
    assert len(shop.side.run(dead_letters_plan(shop.sku))) == 1


# --- places ---


def test_outboxes_are_those_that_orders_were_submitted_to_or_those_asked_for(side: Side) -> None:
    used, unused, gone = side.name(), side.name(), side.name()
    for sku in (used, unused):
        side.execute(op.OpenPool(sku, 10, 2, gated=False))
    side.execute(op.NotePool(gone, submits=True))
    queue(side, used, "a")
    bury(side, used, "b")
    noted = {found.place.sku: found.state for found in side.run(outboxes_plan())}
    assert unused not in noted
    assert noted[gone] is None
    state = noted[used]
    assert state is not None
    assert (state.waiting, state.due, state.dead) == (1, 0, 1)
    (asked,) = side.run(outboxes_plan([unused, unused]))
    assert asked.state is not None
    assert (asked.place, asked.state.waiting) == (Place(unused), 0)
    plans: list[Any] = [outboxes_plan([gone]), order_plan(gone, "a"), dead_letters_plan(gone), replay_plan(gone, ["a"])]
    for plan in plans:
        with pytest.raises(PoolMissing):
            side.run(plan)


# --- messages ---


def test_a_kept_message_has_an_age_by_the_servers_clock(side: Side) -> None:
    queue_name = side.name("queue")
    text = "tabs\tand\nlines, ü"
    assert side.execute(op.KeepMessage(queue_name, "d1", "it  rained", text))
    side.pass_time(0.01)
    (kept,) = side.execute(op.ListMessages(queue_name))
    assert 10 <= kept.age_ms < 30_000
    assert replace(kept, at_ms=0, age_ms=0) == KeptMessage("d1", 0, "it rained", text)
    assert side.execute(op.ListMessages(side.name("queue"))) == ()


def test_a_message_is_named_by_a_beginning_that_no_other_has() -> None:
    first, second = (KeptMessage(digest, 0, "", "") for digest in ("3f10", "3f20"))
    assert message_of((first, second), "3f1", "q") is first
    for beginning, why in (("3f", "2 messages of queue 'q' begin with '3f'"), ("4", "begins with '4'"), ("", "''")):
        with pytest.raises(InvalidInput, match=why):
            message_of((first, second), beginning, "q")
