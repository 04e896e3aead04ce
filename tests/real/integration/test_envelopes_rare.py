"""Envelopes in rare moments: what must not count against an order, spoil its envelope, or be worked on by two."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NoReturn

import pytest
from sqlalchemy import text

from segmented import MemoryStore, Order, protocol as op
from segmented.clock import ManualClock
from segmented.errors import DatabaseUnavailable
from segmented.models.submitted import BegunOrder
from segmented.orders import Gate
from segmented.orders.envelopes import TryLater, WorkTerms, take_envelope
from tests.support.contract.parking import wait_until
from tests.support.pools.engines import engine_of
from tests.support.workers.failing_store import SKU, Failing, known, opened

WORK = 0.1
"""Seconds that work lasts, of a clock that the test moves; it is renewed three times in as many seconds of ours."""
SECONDS = 60.0


def test_no_step_is_begun_with_an_order_that_may_be_another_workers_by_now() -> None:
    clock = ManualClock()
    store = Failing(clock)
    pool, terms, begun = opened(store), WorkTerms(ttl=WORK, work=WORK), []
    pool.submit_many([Order("a", 1), Order("b", 1)])

    def slow(order: BegunOrder) -> None:
        begun.append(order.order.order_id)
        store.away = (op.RenewWork,)
        assert store.refused.wait(SECONDS)
        clock.advance(2 * WORK)
        other = store.execute(op.TakeOrders(SKU, ("b",), "another", 60_000, 600_000, 60_000, 5))
        assert not getattr(other.orders[0], "is_in_hand", False)

    report = take_envelope(pool, ["a", "b"], step=slow, terms=terms)
    assert (begun, report.in_hand) == (["a"], ["b"])
    assert [one.order_id for one in report.settled] == ["a"]
    store.away = ()
    assert known(pool, "b").begun == 2


def test_an_order_whose_step_failed_is_no_other_workers_before_it_is_put_off() -> None:
    clock = ManualClock()
    store = Failing(clock)
    pool, taken, shut = opened(store), [], TryLater("the bank is shut")
    pool.submit_many([Order("a", 1), Order("b", 1)])

    def step(order: BegunOrder) -> None:
        if order.order.order_id == "a":
            raise shut
        for _ in range(5):  # in all much longer than the work, and meanwhile another message of "a" arrives
            clock.advance(0.7 * WORK)
            before = store.renewals
            wait_until(lambda: store.renewals >= before + 2, seconds=SECONDS)  # noqa: B023  # called here
            taken.append(store.execute(op.TakeOrders(SKU, ("a",), "another", 60_000, 600_000, 60_000, 5)).orders[0])

    report = take_envelope(pool, ["a", "b"], step=step, terms=WorkTerms(ttl=WORK, work=WORK))
    assert [one.order_id for one in report.settled] == ["b"]
    assert [getattr(one, "is_in_hand", False) for one in taken] == [True] * 5
    assert (known(pool, "a").begun, known(pool, "a").reason) == (0, "the bank is shut")


def test_a_renewal_that_reaches_the_server_late_still_finds_which_orders_are_left() -> None:
    clock = ManualClock()
    store = Failing(clock)
    pool, begun = opened(store), []
    pool.submit_many([Order("a", 1), Order("b", 1)])

    def step(order: BegunOrder) -> None:
        begun.append(order.order.order_id)
        if order.order.order_id == "a":
            store.away = (op.RenewWork,)
            assert store.refused.wait(SECONDS)
            clock.advance(2 * WORK)
            store.away = ()

    report = take_envelope(pool, ["a", "b"], step=step, terms=WorkTerms(ttl=WORK, work=WORK))
    assert (begun, len(report.settled), report.in_hand) == (["a", "b"], 2, [])


def test_a_database_slower_than_the_work_counts_against_no_order(
    sqlite_url: str, open_gate: Callable[..., Gate], monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, ended = open_gate(sqlite_url), threading.Event()
    gate.open(SKU, [3, 3])

    def slow(_: object, *, store_with: object) -> NoReturn:  # noqa: ARG001  # as the gate is called
        ended.wait(SECONDS)
        raise DatabaseUnavailable("the order database did not answer")

    monkeypatch.setattr(gate, "confirm_many", slow)
    clock = ManualClock()
    store = Failing(clock)
    pool, terms = opened(store, gated=True), WorkTerms(ttl=WORK, work=WORK)
    pool.submit("a")
    with ThreadPoolExecutor(1) as threads:
        taking = threads.submit(take_envelope, pool, ["a"], gate=gate, terms=terms)
        wait_until(lambda: known(pool, "a").begun > 0, seconds=SECONDS)
        for _ in range(4):  # in all longer than the work; a sweep would publish what is due, and another worker take it
            clock.advance(0.7 * WORK)
            assert store.execute(op.ReadOutbox(SKU)).due == 0
            before = store.renewals
            wait_until(lambda: store.renewals >= before + 2, seconds=SECONDS)  # noqa: B023  # called here
        ended.set()
        assert taking.result().settled == []
    assert known(pool, "a").begun == 0
    assert "did not answer" in known(pool, "a").reason


@pytest.mark.parametrize("is_new_connection", [True, False])
def test_a_database_that_only_reads_for_now_counts_against_no_order(
    postgres_database: str, open_gate: Callable[..., Gate], *, is_new_connection: bool
) -> None:
    gate = open_gate(postgres_database)
    gate.open(SKU, [3, 3])
    pool = opened(MemoryStore(), gated=True)
    pool.submit("a")
    with engine_of(gate).connect() as connection:  # to make it what a standby is
        name = connection.execute(text("SELECT current_database()")).scalar_one()
        setting = "default_transaction_read_only = on"
        connection.execute(text(f"ALTER DATABASE {name} SET {setting}" if is_new_connection else f"SET {setting}"))
    if is_new_connection:
        engine_of(gate).dispose()  # the connections that were open before do not know it
    report = take_envelope(pool, ["a"], gate=gate)
    assert ("is read-only, as a standby is" if is_new_connection else "be written to now") in report.put_off["a"]
    assert known(pool, "a").begun == 0
