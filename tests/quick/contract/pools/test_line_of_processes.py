"""The line of the processes that wait for a segment: whose turn it is, on a server and in the model alike."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from segmented import MemoryStore, RedisStore, protocol as op
from segmented.clock import ManualClock
from segmented.keys import shard_keys
from segmented.models import Busy, Granted, Order, Refusal, SoldOut
from segmented.models.submitted import BegunOrder
from segmented.protocol.lock import LEFT_MS, LINE_TTL_MS, NEWCOMER, NEWCOMERS_MAX, PASSED_MS, WAITERS_MAX
from segmented.servers import ValkeyServer
from tests.support.contract.parking import wait_until

SKU = "ticket"
KEYS = shard_keys(SKU)
PAST: float = max(LEFT_MS, PASSED_MS) / 1000 + 0.01


@pytest.fixture(params=["redis", "memory"])
def store(
    request: pytest.FixtureRequest,
    valkey: ValkeyServer,
    untimed_turns: None,  # noqa: ARG001  # for its effect
) -> Iterator[RedisStore | MemoryStore]:
    """Each store, empty; no time ends a turn."""
    if request.param == "memory":
        yield MemoryStore(clock=ManualClock())
        return
    with RedisStore.from_url(valkey.url) as found:
        yield found


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def timed(clock: ManualClock) -> Box:
    """A pool on memory, where turns end by a clock that only the test moves."""
    return Box(MemoryStore(clock=clock))


class Box:
    """One pool, asked for grants as by many processes."""

    def __init__(self, store: RedisStore | MemoryStore, *, stock: int = 100, segments: int = 1) -> None:
        self.store = store
        self.said: list[str] = []
        self._count = 0
        store.execute(op.OpenPool(SKU, stock, segments, gated=False))
        store.wakeups.join(KEYS.freed)
        store.wakeups.listen(KEYS.freed, store.clock.now() + 60)
        hear = store.wakeups.hear

        def note(channel: str, said: str = "") -> None:
            self.said.append(said)
            hear(channel, said)

        store.wakeups.hear = note  # type: ignore[method-assign]  # listens in

    def ask(self, order_id: str, party: str = "") -> Granted | Refusal:
        return self.store.execute(
            op.Grant(SKU, Order(order_id, 1), f"h-{order_id}", 60_000, 60_000, keep_refusal=False, party=party)
        )

    def fill(self, count: int) -> None:
        """Take segments."""
        for index in range(count):
            assert isinstance(self.ask(f"full{index}"), Granted)

    def release(self, order_id: str) -> None:
        self.store.execute(op.Confirm(SKU, order_id, f"h-{order_id}"))

    def take(self, order: Order, party: str = NEWCOMER) -> object:
        """Begin a submitted order, as a worker with a message of one order does."""
        work = (f"h-{order.order_id}", 60_000, 60_000, 60_000, 5)
        taken = self.store.execute(op.TakeOrders(SKU, (order.order_id,), *work, party=party))
        (answer,) = taken.orders
        if isinstance(answer, Busy):
            assert answer.free_in_ms == taken.free_in_ms
        return answer

    def takes(self, party: str = NEWCOMER) -> bool:
        """Return whether a caller gets a segment; give it back at once."""
        self._count += 1
        order_id = f"o{self._count}"
        if isinstance(self.ask(order_id, party), Busy):
            return False
        self.release(order_id)
        return True

    def hears(self, beginning: str) -> bool:
        """Return whether a message with this beginning has come, waiting for it."""
        wait_until(lambda: any(said.startswith(beginning) for said in self.said))
        return True


@pytest.mark.parametrize(
    ("party", "turns"), [(NEWCOMER, NEWCOMERS_MAX), (NEWCOMER + "other", NEWCOMERS_MAX), ("other", WAITERS_MAX)]
)
def test_a_free_segment_is_left_to_the_first_after_so_many_turns_of_others(
    store: RedisStore | MemoryStore, party: str, turns: int
) -> None:
    box = Box(store)
    box.fill(1)
    box.ask("first", "first")
    box.release("full0")
    assert [box.takes(party) for _ in range(turns + 2)] == [True] * turns + [False, False]
    assert box.hears("turn:first")
    assert box.takes("first")


def test_submitted_orders_have_the_turns_of_newcomers_then_leave_one_to_the_first(
    store: RedisStore | MemoryStore,
) -> None:
    box = Box(store)
    box.fill(1)
    box.ask("first", "first")
    orders = tuple(Order(f"submitted{index}", 1) for index in range(NEWCOMERS_MAX + 1))
    store.execute(op.QueueOrders(SKU, orders, 60_000))
    box.release("full0")
    for order in orders[:-1]:
        assert isinstance(box.take(order), BegunOrder)
        box.store.execute(op.Confirm(SKU, order.order_id, f"h-{order.order_id}"))
    left = box.take(orders[-1])
    assert isinstance(left, Busy)
    assert 0 < (left.free_in_ms or 0) <= 60_000
    assert box.hears("turn:first")
    assert box.takes("first")
    assert isinstance(box.take(orders[-1]), BegunOrder)


def test_after_50_ms_a_free_segment_is_left_to_the_first_after_any_number_of_turns(
    timed: Box, clock: ManualClock
) -> None:
    timed.fill(1)
    timed.ask("first", "first")
    clock.advance(PAST)
    timed.release("full0")
    assert (timed.takes(), timed.takes("first"), timed.takes()) == (False, True, True)


def test_a_process_that_does_not_come_in_40_ms_loses_its_place_to_the_next(timed: Box, clock: ManualClock) -> None:
    timed.fill(1)
    for party in ("dead", "next", "dead too", "last"):
        timed.ask(party, party)
    clock.advance(PAST)
    timed.release("full0")
    assert not timed.takes("next")
    clock.advance(PAST)
    assert (timed.takes("next"), timed.takes("last"), timed.takes()) == (True, True, True)
    assert timed.said[-4:].count("turn:*") == 1


def test_of_3_free_segments_2_are_left_to_waiters_and_a_newcomer_takes_the_third(
    store: RedisStore | MemoryStore,
) -> None:
    box = Box(store, segments=3)
    box.fill(3)
    for party in ("first", "second"):
        box.ask(party, party)
    for index in range(3):
        box.release(f"full{index}")
    assert isinstance(box.ask("new", NEWCOMER), Granted)
    turns = 3 * NEWCOMERS_MAX
    assert [box.takes() for _ in range(turns + 2)] == [True] * turns + [False, False]


@pytest.mark.parametrize("ending", ["confirmed", "cancelled"])
def test_a_worker_passes_its_turn_on_when_its_order_was_begun_or_cancelled_meanwhile(
    store: RedisStore | MemoryStore, ending: str
) -> None:
    box, order = Box(store), Order("submitted", 1)
    box.fill(1)
    store.execute(op.QueueOrders(SKU, (order,), 60_000))
    waits = box.take(order, "first"), box.ask("second", "second")
    assert [type(one) for one in waits] == [Busy, Busy]
    if ending == "cancelled":
        store.execute(op.Cancel(SKU, order.order_id))
        box.take(order, "first")
        assert box.hears("turn:second")
    else:
        box.release("full0")
        assert isinstance(box.take(order, "first"), BegunOrder)
        assert box.hears("first:second ")


def test_an_attempt_of_a_process_that_waits_says_how_many_are_ahead_of_it(store: RedisStore | MemoryStore) -> None:
    box = Box(store)
    box.fill(1)
    answers = [box.ask(f"w{party}", party) for party in ("a", NEWCOMER + "b", "c", NEWCOMER + "a", "b")]
    assert [answer.ahead for answer in answers if isinstance(answer, Busy)] == [0, 1, 2, 0, 1]


@pytest.mark.parametrize(("freed", "said"), [(2, "turn:second"), (1, "first:second ")])
def test_after_the_firsts_turn_the_next_process_tries_now_or_at_the_next_release(
    store: RedisStore | MemoryStore, freed: int, said: str
) -> None:
    box = Box(store, segments=2)
    box.fill(2)
    for party in ("first", "second"):
        box.ask(party, party)
    for index in range(freed):
        box.release(f"full{index}")
    assert isinstance(box.ask("first", "first"), Granted)
    assert box.hears(said)
    assert [one[: len(said)] for one in box.said if one.startswith(("turn:", "first:"))] == [said]


def test_a_first_that_is_told_sold_out_passes_its_turn_on(store: RedisStore | MemoryStore) -> None:
    box = Box(store, stock=1)
    box.fill(1)
    assert isinstance(box.ask("none", "other"), SoldOut)
    store.execute(op.Restock(SKU, "truck", 1))
    for party in ("first", "second"):
        box.ask(party, party)
    store.execute(op.Withdraw(SKU, "back", 1))
    assert isinstance(box.ask("first", "first"), SoldOut)
    assert box.hears("turn:second")


def test_a_line_leaves_no_key_when_the_last_of_it_had_its_turn(valkey: ValkeyServer) -> None:
    with RedisStore.from_url(valkey.url) as store:
        box, client = Box(store), store.client
        box.fill(1)
        box.ask("first", NEWCOMER)
        assert client.exists(KEYS.line) == 0
        box.ask("first", "first")
        remaining: Any = client.pttl(KEYS.line)
        assert 0 < remaining <= LINE_TTL_MS
        box.release("full0")
        assert box.takes("first")
        assert (client.exists(KEYS.line), client.hget(KEYS.meta, "line")) == (0, None)
