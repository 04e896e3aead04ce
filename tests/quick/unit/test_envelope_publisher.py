"""The publisher over forks, at its limits and at the end; handles and what they are told."""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING

import pytest

from segmented import Busy, MemoryStore, Order, Pool, protocol as op
from segmented.clock import ManualClock
from segmented.errors import InvalidInput, OrderUnknown
from segmented.models.submitted import Dead
from segmented.stock import EnvelopePublisher, Outbox
from segmented.stock.order_handle import OrderHandle
from segmented.stock.outbox import SweepTerms, sweep

if TYPE_CHECKING:
    from collections.abc import Sequence


def test_a_forked_child_publishes_what_is_submitted_there_and_nothing_of_its_parents() -> None:
    reading, writing = os.pipe()

    def send(_: str, order_ids: Sequence[str]) -> None:
        os.write(writing, f"{os.getpid()} {','.join(order_ids)}\n".encode())

    with os.fdopen(reading) as lines, EnvelopePublisher(send) as publisher:
        publisher.put("mug", ["of the parent"])
        assert lines.readline() == f"{os.getpid()} of the parent\n"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of a fork beside threads
            child = os.fork()
        if child == 0:
            publisher.put("mug", ["of the child"])
            publisher.close()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert lines.readline() == f"{child} of the child\n"
        publisher.put("mug", ["of the parent again"])
        assert lines.readline() == f"{os.getpid()} of the parent again\n"
    os.close(writing)


def test_without_a_thread_orders_are_left_to_the_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> None:
        message = "can't start new thread"
        raise RuntimeError(message)

    sent: list[str] = []
    with EnvelopePublisher(lambda _, order_ids: sent.extend(order_ids)) as publisher:
        with monkeypatch.context() as patched:
            patched.setattr("threading.Thread.start", refuse)
            publisher.put("mug", ["a", "b"])
        assert publisher.dropped_count == 2
        publisher.put("mug", ["c"])
    assert sent == ["c"]


def test_a_sweep_keeps_to_the_publishers_envelopes() -> None:
    sizes: list[int] = []
    store = MemoryStore()
    pool = Pool(store, "mug", outbox=Outbox(publish_after=0.001))
    pool.open(stock=25, segments=1)
    pool.submit_many(Order(f"o{index}", 1) for index in range(25))
    while store.execute(op.ReadOutbox("mug")).due < 25:
        pass
    publisher = EnvelopePublisher(lambda _, order_ids: sizes.append(len(order_ids)), envelope_max=10)
    sweep(store.execute, "mug", publisher, terms=SweepTerms())
    assert sizes == [10, 10, 5]


def test_a_handle_of_an_order_that_nobody_knows_says_so() -> None:
    pool = Pool(MemoryStore(), "mug", outbox=Outbox())
    pool.open(stock=5, segments=1)
    with pytest.raises(OrderUnknown, match="'nobody' is not known"):
        pool.handle("nobody").wait(10)


@pytest.mark.parametrize("timeout", [-1, float("nan"), "5"])
def test_a_wait_has_a_sensible_end(timeout: float) -> None:
    pool = Pool(MemoryStore(), "mug", outbox=Outbox())
    pool.open(stock=5, segments=1)
    with pytest.raises(InvalidInput, match=r"not a waiting time|a number of seconds"):
        pool.submit("a").wait(timeout)


def test_an_order_that_is_to_be_submitted_again_is_not_called_reserved() -> None:
    handle = OrderHandle(MemoryStore(), "mug", "a", Busy("a", 3, 0))
    assert (handle.state, handle.outcome) == ("refused", Busy("a", 3, 0))


def test_a_dead_order_that_was_replayed_is_waited_for_again() -> None:
    store = MemoryStore()
    pool = Pool(store, "mug", outbox=Outbox(decides="in the worker"))
    pool.open(stock=5, segments=1)
    handle = pool.submit("a")
    store.execute(op.TakeOrders("mug", ("a",), "h", 60_000, 60_000, 60_000, 1))
    store.execute(op.PutOff("mug", ("a",), "h", 1, counts=True, begun_max=1, reason="bad", hold_ms=60_000))
    assert isinstance(handle.wait(0), Dead)
    store.execute(op.ReplayDead("mug", ("a",)))
    pool.confirm("a")
    assert getattr(handle.wait(0), "state", None) == "confirmed"


def test_the_units_of_an_order_in_the_outbox_do_not_lapse() -> None:
    clock = ManualClock()
    pool = Pool(MemoryStore(clock=clock), "mug", ttl=1, hold=5, outbox=Outbox(publish_after=5))
    pool.open(stock=5, segments=1)
    pool.submit("a")
    pool.reserve("b")
    clock.advance(1_000_000)
    assert [settled.order_id for settled in pool.expire()] == ["b"]
    assert pool.state().reserved == 1
