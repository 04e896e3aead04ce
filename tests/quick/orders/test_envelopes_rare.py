"""Envelopes in rare moments: what must not count against an order or spoil its envelope."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from segmented import MemoryStore, Order, Pool, RedisStore, protocol as op
from segmented.errors import AssignedElsewhere, InvalidInput
from segmented.models import Assignment
from segmented.models.submitted import BegunOrder, Deciding
from segmented.orders import Gate
from segmented.orders.envelopes import TryLater, WorkTerms, take_envelope
from segmented.stock import Outbox
from tests.support.workers.failing_store import SKU, Failing, known, opened


@pytest.mark.parametrize("decides", ["at acceptance", "in the worker"])
def test_an_order_that_the_database_has_with_other_content_is_cancelled(gate: Gate, decides: Deciding) -> None:
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


def test_a_store_that_is_away_for_the_confirmation_alone_counts_against_no_order() -> None:
    store = Failing()
    pool = opened(store, decides="in the worker")
    pool.submit_many([Order("a", 1), Order("b", 1)])

    def step(_: BegunOrder) -> None:
        store.away = (op.SettleMany,)

    report = take_envelope(pool, ["a", "b"], step=step)
    assert set(report.put_off) == {"a", "b"}
    assert [known(pool, one).begun for one in "ab"] == [0, 0]


def test_a_worker_without_the_gate_writes_nothing_to_a_gated_pool_of_other_workers(
    store: RedisStore, gate: Gate
) -> None:
    ids = [f"o{number}" for number in range(20)]
    gate.open(SKU, [500])
    pool = Pool(store, SKU, outbox=Outbox(decides="in the worker", publish_after=600))
    pool.open(stock=500, segments=1, gated=True)
    pool.submit_many(Order(order_id, 1) for order_id in ids)
    pool.assign(queue="concerts", step=None)
    before = {key: store.client.dump(key) for key in store.client.scan_iter()}
    with pytest.raises(AssignedElsewhere):
        take_envelope(pool, ids, terms=WorkTerms(assignment=Assignment("mugs")))
    assert {key: store.client.dump(key) for key in store.client.scan_iter()} == before
    report = take_envelope(pool, ids, terms=WorkTerms(ttl=600, work=600, assignment=Assignment("concerts")))
    assert len(report.put_off) == 20
