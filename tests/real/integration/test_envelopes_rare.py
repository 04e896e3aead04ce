"""Envelopes in rare moments: what must not count against an order, spoil its envelope, or be worked on by two."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import text

from segmented import MemoryStore, Order, Pool, protocol as op
from segmented.clock import ManualClock
from segmented.errors import InvalidInput, StoreUnavailable
from segmented.orders.envelopes import take_envelope
from segmented.orders.work_terms import TryLater, WorkTerms
from segmented.stock import Outbox
from tests.support.contract.parking import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from segmented.clock import Clock
    from segmented.models.submitted import BegunOrder, Deciding, Submitted
    from segmented.orders import Gate

SKU = "mug"


WORK = 0.1
"""Seconds that work lasts, of a clock that the test moves; it is renewed three times in as many seconds of ours."""
SECONDS = 60.0


class Failing(MemoryStore):
    """A store that is away for some operations."""

    def __init__(self, clock: Clock | None = None) -> None:
        super().__init__(clock=clock)
        self.is_deaf = False
        """Is an answer lost, once?"""
        self.away: tuple[type[op.Operation[Any]], ...] = ()
        self.refused = threading.Event()
        self.renewals = 0
        """How often work was renewed."""

    def execute(self, operation: op.Operation[Any], *, deadline: float = inf) -> Any:  # noqa: ANN401  # any operation's answer
        if isinstance(operation, self.away):
            self.refused.set()
            raise StoreUnavailable
        answer = super().execute(operation, deadline=deadline)
        self.renewals += isinstance(operation, op.RenewWork)
        if self.is_deaf:
            self.is_deaf = False
            raise StoreUnavailable
        return answer


def opened(store: MemoryStore, *, gated: bool = False, decides: Deciding = "at acceptance") -> Pool:
    pool = Pool(store, SKU, outbox=Outbox(decides=decides, publish_after=0.001))
    pool.open(stock=6, segments=2, gated=gated)
    return pool


def known(pool: Pool, order_id: str) -> Submitted:
    return pool.store.execute(op.ReadSubmitted(pool.sku, (order_id,)))[0]


@pytest.mark.parametrize("decides", ["at acceptance", "in the worker"])
def test_an_order_that_the_database_has_with_other_content_is_cancelled_and_the_others_are_confirmed(
    gate: Gate, decides: Deciding
) -> None:
    gate.open(SKU, [3, 3])
    gate.confirm(order_id="a", sku=SKU, segment=0, quantity=2, epoch=1)
    pool = opened(MemoryStore(), gated=True, decides=decides)
    pool.submit_many([Order("a", 1), Order("b", 1)])
    report = take_envelope(pool, ["a", "b"], gate=gate)
    assert {one.order_id: one.state for one in report.settled} == {"a": "cancelled", "b": "confirmed"}
    assert (pool.state().available, pool.state().confirmed, known(pool, "a").is_in_outbox) == (5, 1, False)


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("no file \udcff\x1b[2J"), "ValueError: no file ??[2J"),
        (Mute(), "Mute"),
        (TryLater("the bank \x00 is shut"), "the bank ? is shut"),
    ],
)
def test_a_failure_that_cannot_be_stored_or_told_as_it_is_spoils_no_other_order(error: Exception, reason: str) -> None:
    pool = opened(MemoryStore())
    pool.submit_many([Order("a", 1), Order("b", 1)])

    def step(order: BegunOrder) -> None:
        if order.order.order_id == "a":
            raise error

    report = take_envelope(pool, ["a", "b"], step=step)
    assert [one.order_id for one in report.settled] == ["b"]
    assert report.put_off == {"a": reason}
    assert known(pool, "a").reason == reason


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf")])
def test_later_is_a_time(seconds: float) -> None:
    with pytest.raises(InvalidInput, match="seconds"):
        TryLater("the bank is shut", seconds=seconds)


def test_a_hold_shorter_than_the_work_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"hold=4 s is shorter than ttl=5 s or work=5 s"):
        WorkTerms(hold=4)
    with pytest.raises(InvalidInput, match="not a waiting time"):
        WorkTerms(segment_timeout=-1)


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


async def _coroutine(_: BegunOrder) -> None: ...


def _generator(_: BegunOrder) -> Iterator[None]:
    yield


@pytest.mark.parametrize(
    ("step", "shape"),
    [
        (_coroutine, "coroutine function"),
        (partial(_coroutine), "coroutine function"),
        (_generator, "generator function"),
    ],
)
def test_a_step_whose_call_would_run_nothing_is_refused(step: Callable[[BegunOrder], Any], shape: str) -> None:
    pool = opened(MemoryStore())
    pool.submit("a")
    with pytest.raises(InvalidInput, match=f"is a {shape}, and calling it would run nothing"):
        take_envelope(pool, ["a"], step=step)
    assert (known(pool, "a").state, known(pool, "a").begun) == ("reserved", 0)


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
    sqlite_url: str, tmp_path: Path, open_gate: Callable[..., Gate]
) -> None:
    gate = open_gate(sqlite_url, timeout=4.0)
    gate.open(SKU, [3, 3])
    clock = ManualClock()
    store = Failing(clock)
    pool = opened(store, gated=True)
    pool.submit("a")
    due: list[int] = []
    with closing(sqlite3.connect(tmp_path / "orders.sqlite", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        terms = WorkTerms(ttl=WORK, work=WORK)
        first = threading.Thread(target=take_envelope, args=(pool, ["a"]), kwargs={"gate": gate, "terms": terms})
        first.start()
        while not known(pool, "a").begun:
            pass
        while first.is_alive():  # a sweep would publish what is due, and another worker take it
            clock.advance(0.7 * WORK)
            due.append(pool.store.execute(op.ReadOutbox(SKU)).due)
            before = store.renewals
            wait_until(lambda: store.renewals >= before + 2 or not first.is_alive(), seconds=SECONDS)  # noqa: B023  # called here
        first.join()
    assert set(due) == {0}
    assert len(due) > 2  # so in all it took longer than the work
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
    with gate._engine.connect() as connection:  # noqa: SLF001  # to make it what a standby is
        name = connection.execute(text("SELECT current_database()")).scalar_one()
        setting = "default_transaction_read_only = on"
        connection.execute(text(f"ALTER DATABASE {name} SET {setting}" if is_new_connection else f"SET {setting}"))
    if is_new_connection:
        gate._engine.dispose()  # noqa: SLF001  # the connections that were open before do not know it
    report = take_envelope(pool, ["a"], gate=gate)
    assert ("is read-only, as a standby is" if is_new_connection else "be written to now") in report.put_off["a"]
    assert known(pool, "a").begun == 0


def test_a_store_that_is_away_for_the_confirmation_alone_counts_against_no_order() -> None:
    store = Failing()
    pool = opened(store, decides="in the worker")
    pool.submit_many([Order("a", 1), Order("b", 1)])

    def step(_: BegunOrder) -> None:
        store.away = (op.SettleMany,)

    report = take_envelope(pool, ["a", "b"], step=step)
    assert set(report.put_off) == {"a", "b"}
    assert [known(pool, one).begun for one in "ab"] == [0, 0]


@pytest.mark.parametrize("decides", ["at acceptance", "in the worker"])
def test_a_lost_answer_counts_against_no_order(decides: Deciding) -> None:
    store = Failing()
    pool = opened(store, decides=decides)
    pool.submit("a")
    pool.is_gated()
    for _ in range(6):
        store.is_deaf = True
        report = take_envelope(pool, ["a"], step=lambda _: None)
        assert (set(report.put_off), known(pool, "a").begun) == ({"a"}, 0)
    assert [one.state for one in take_envelope(pool, ["a"], step=lambda _: None).settled] == ["confirmed"]


def test_a_store_that_stays_away_is_told() -> None:
    store = Failing()
    pool = opened(store)
    pool.submit("a")
    pool.is_gated()
    store.away = (op.TakeOrders, op.PutOff)
    with pytest.raises(StoreUnavailable):
        take_envelope(pool, ["a"], step=lambda _: None)
    assert known(pool, "a").is_in_outbox
