"""A worker that ends its orders hands their segment to the next one of its process; a quiet release loses nobody."""

import threading
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from segmented import Outbox, Pool, RedisStore, protocol as op
from segmented.errors import StoreUnavailable
from segmented.keys import shard_keys
from segmented.models import Busy, Order, SoldOut
from segmented.models.submitted import BegunOrder
from segmented.orders.envelopes import take_envelope
from segmented.stock import Grant
from tests.real.contract.locks.test_hand_over import SOON, Spy, offers
from tests.support.contract.parking import wait_until

SKU = "ticket"
FREED = shard_keys(SKU).freed


@pytest.fixture(autouse=True)
def rare_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A waiter does not look by itself, and hand-overs of any number follow each other."""
    monkeypatch.setattr("segmented.stock.plans.GONE_SECONDS", 600.0)
    monkeypatch.setattr("segmented.plans.line.HANDING_SECONDS", 600.0)


class Messages:
    """The messages that other processes get of a pool's segments."""

    def __init__(self, store: RedisStore) -> None:
        self._store = store
        self._heard = store.client.pubsub(ignore_subscribe_messages=True)
        self._heard.subscribe(FREED)
        self()

    def __call__(self) -> list[str]:
        """Return those that were sent since the last call."""
        found: list[str] = []
        mark = uuid4().hex
        self._store.client.publish(FREED, mark)
        while True:
            message: Any = self._heard.get_message(timeout=SOON)
            if message is None:
                continue
            data = message["data"]
            text = data.decode() if isinstance(data, bytes) else str(data)
            if text == mark:
                return found
            found.append(text)

    def close(self) -> None:
        self._heard.close()


@pytest.fixture
def messages(store: RedisStore) -> Iterator[Messages]:
    """Listen from before the first release."""
    found = Messages(store)
    yield found
    found.close()


def test_a_worker_hands_its_segment_to_the_next_and_only_the_last_sends_a_message(
    store: RedisStore, messages: Messages
) -> None:
    pool, spy = Pool(store, SKU), Spy(store)
    pool.open(stock=9, segments=1)
    for _ in range(2):  # a script that the server has not seen is sent again, after the attempt
        pool.confirm(pool.reserve("warm").order_id)
    ids = [f"o{index}" for index in range(4)]
    store.execute(op.QueueOrders(SKU, tuple(Order(order_id, 1) for order_id in ids), 600_000))
    goes_on, reports = threading.Event(), []

    def step(_: BegunOrder) -> None:
        goes_on.wait(SOON)

    def work(order_id: str) -> None:
        reports.append(take_envelope(pool, [order_id], step=step))

    workers = [threading.Thread(target=work, args=(order_id,)) for order_id in ids]
    for worker in workers:
        worker.start()
    wait_until(lambda: offers(store) >= 3)
    goes_on.set()
    for worker in workers:
        worker.join(SOON)
    assert [report.counts() for report in reports] == [{"settled": 1}] * 4
    assert spy.count == 3
    assert len([said for said in messages() if not said.startswith(("turn:", "first:"))]) == 1
    assert pool.state().confirmed == 5
    assert pool.audit().is_clean


def test_a_release_for_a_buyer_who_is_then_refused_wakes_the_others_by_its_message(
    store: RedisStore, messages: Messages
) -> None:
    pool, spy = Pool(store, SKU), Spy(store)
    pool.open(stock=2, segments=1)
    first = pool.grant("a", timeout=0)
    assert isinstance(first, Grant)
    found: list[object] = []
    waiter = threading.Thread(target=lambda: found.append(pool.grant("b", timeout=60)))
    waiter.start()
    wait_until(lambda: offers(store) >= 1)
    pool.withdraw(1, withdraw_id="damaged")
    first.confirm()
    waiter.join(SOON)
    assert spy.count == 1
    assert isinstance(found[0], SoldOut)
    assert first.answer.holder_id in messages()


def test_a_release_for_a_worker_whose_order_is_decided_wakes_others_by_its_message(
    store: RedisStore, messages: Messages
) -> None:
    pool, spy = Pool(store, SKU), Spy(store)
    pool.open(stock=2, segments=1)
    store.execute(op.QueueOrders(SKU, (Order("b", 1),), 600_000))
    first = pool.grant("a", timeout=0)
    assert isinstance(first, Grant)
    found: list[Any] = []
    worker = threading.Thread(target=lambda: found.append(take_envelope(pool, ["b"], step=lambda _: None)))
    worker.start()
    wait_until(lambda: offers(store) >= 1)
    pool.cancel("b")
    first.confirm()
    worker.join(SOON)
    assert spy.count == 1
    assert found[0].counts() == {"settled": 1}
    assert first.answer.holder_id in messages()
    assert pool.state().confirmed == 1


class Struck(BaseException):
    """The exception that a signal handler raises."""


def test_a_release_that_an_exception_strikes_after_its_hand_over_wakes_the_others(
    store: RedisStore, messages: Messages
) -> None:
    pool = Pool(store, SKU)
    pool.open(stock=2, segments=1)
    first = pool.grant("a", timeout=0)
    assert isinstance(first, Grant)
    waiter = threading.Thread(target=lambda: pool.grant("b", timeout=60))
    waiter.start()
    wait_until(lambda: offers(store) >= 1)
    pool.withdraw(1, withdraw_id="damaged")
    link: Any = store._link  # noqa: SLF001  # looks behind the store
    free = link.free

    def struck(*arguments: Any, **named: Any) -> None:  # noqa: ANN401  # passed on
        free(*arguments, **named)
        raise Struck

    link.free = struck
    with pytest.raises(Struck):
        first.confirm()
    link.free = free
    waiter.join(SOON)
    assert not waiter.is_alive()
    assert first.answer.holder_id in messages()


def test_a_confirm_succeeds_although_its_message_cannot_be_sent(store: RedisStore) -> None:
    pool = Pool(store, SKU)
    pool.open(stock=2, segments=1)
    first = pool.grant("a", timeout=0)
    assert isinstance(first, Grant)
    waiter = threading.Thread(target=lambda: pool.grant("b", timeout=60))
    waiter.start()
    wait_until(lambda: offers(store) >= 1)
    pool.withdraw(1, withdraw_id="damaged")
    link: Any = store._link  # noqa: SLF001  # looks behind the store
    publish, refused = link.publish, []

    def busy(*_: Any, **__: Any) -> None:  # noqa: ANN401  # whatever it is
        refused.append(1)
        raise StoreUnavailable("all connections were in use")

    link.publish = busy
    first.confirm()
    link.publish = publish
    waiter.join(SOON)
    assert refused == [1]
    assert pool.state().confirmed == 1


def _line(store: RedisStore) -> list[str]:
    found: Any = store.client.zrange(shard_keys(SKU).line, 0, -1)
    return [one.decode() if isinstance(one, bytes) else str(one) for one in found]


def test_a_worker_whose_message_has_an_order_with_units_leaves_no_place_in_the_line(store: RedisStore) -> None:
    pool = Pool(store, SKU, outbox=Outbox(None, "at acceptance"))
    pool.open(stock=9, segments=1)
    first = pool.grant("a", timeout=0)
    assert isinstance(first, Grant)
    pool.submit("b")
    store.execute(op.QueueOrders(SKU, (Order("c", 1),), 600_000))
    assert not pool.grant("d", timeout=0.2)  # from here on the messages reach this process
    wait_until(lambda: store.wakeups.is_waited_for(FREED, or_heard=True))
    report = take_envelope(pool, ["b", "c"], step=lambda _: None)
    assert report.counts() == {"settled": 1, "put_off": 1}
    assert _line(store) == []


def test_a_worker_whose_order_was_cancelled_behind_others_leaves_no_place(store: RedisStore) -> None:
    pool = Pool(store, SKU)
    pool.open(stock=9, segments=1)
    store.execute(op.QueueOrders(SKU, (Order("b", 1),), 600_000))
    first = pool.grant("a", timeout=0)
    assert isinstance(first, Grant)
    ahead = op.Grant(SKU, Order("x", 1), "h-x", 60_000, 60_000, keep_refusal=False, party="other")
    assert isinstance(store.execute(ahead), Busy)
    found: list[Any] = []
    worker = threading.Thread(target=lambda: found.append(take_envelope(pool, ["b"], step=lambda _: None)))
    worker.start()
    wait_until(lambda: len(_line(store)) == 2 and offers(store) == 1)
    pool.cancel("b")
    store.client.publish(FREED, "looks again")
    worker.join(SOON)
    assert found[0].counts() == {"settled": 1}
    assert _line(store) == ["other"]


def test_a_worker_that_waits_has_a_place_in_the_line_of_processes(store: RedisStore) -> None:
    pool = Pool(store, SKU)
    pool.open(stock=9, segments=1)
    store.execute(op.QueueOrders(SKU, (Order("b", 1), Order("c", 1)), 600_000))
    first = pool.grant("a", timeout=0)
    assert isinstance(first, Grant)

    def take(order_id: str, party: str) -> Any:  # noqa: ANN401  # an answer of any kind
        return store.execute(op.TakeOrders(SKU, (order_id,), f"h-{order_id}", *3 * (60_000,), 5, party=party))

    assert [take("b", "first").ahead, take("c", "second").ahead] == [0, 1]
    first.confirm()
    begun = take("b", "first")
    assert [type(one) for one in begun.orders] == [BegunOrder]
    assert take("c", "second").ahead == 0
