"""A pool that was opened again, with a gate or without one, while a worker thinks that it is what it was."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from segmented import Order, Pool, RedisStore, Settled, protocol as op
from segmented.errors import InvalidInput
from segmented.models import UNITS_MAX
from segmented.orders import restock_gated
from segmented.orders.envelopes import take_envelope
from segmented.orders.opening import open_gated, reopen_gated
from segmented.orders.sale import take_order
from segmented.stock.outbox import Outbox
from tests.support.workers.envelope_till import BOTH

if TYPE_CHECKING:
    from collections.abc import Callable

    from segmented.models.submitted import Deciding
    from segmented.orders import Gate

WITHOUT = "the pool is gated, and this worker has no order database"
ANY_MORE = "the pool has no gate any more"


@pytest.fixture
def flush(store: RedisStore) -> Callable[[], object]:
    """Forget everything, as a server without persistence does when it starts again."""
    flush: Callable[[], object] = store.client.flushall
    return flush


@pytest.mark.parametrize("has_step", [False, True], ids=["without a step", "with a step"])
@pytest.mark.parametrize("decides", BOTH)
def test_a_worker_learns_that_the_pool_has_a_gate_now(
    store: RedisStore, gate: Gate, flush: Callable[[], object], decides: Deciding, *, has_step: bool
) -> None:
    pool = Pool(store, "mug", outbox=Outbox(decides=decides))
    pool.open(stock=10, segments=2)
    assert not pool.is_gated()
    flush()
    open_gated(Pool(store, "mug"), gate, stock=10, segments=2, epoch=2)
    pool.submit_many([Order("a", 1), Order("b", 2)])
    ran: list[object] = []
    report = take_envelope(pool, ["a", "b"], step=ran.append if has_step else None)
    assert report.put_off == {"a": WITHOUT, "b": WITHOUT}
    assert (ran, pool.state().confirmed, gate.totals("mug").sold) == ([], 0, 0)
    assert pool.is_gated()


def test_a_worker_learns_that_the_pool_has_no_gate_any_more(
    store: RedisStore, gate: Gate, flush: Callable[[], object]
) -> None:
    pool = Pool(store, "mug", outbox=Outbox())
    open_gated(pool, gate, stock=10, segments=2)
    assert pool.is_gated()
    flush()
    Pool(store, "mug").open(stock=10, segments=2, epoch=2)
    pool.submit("a")
    assert take_envelope(pool, ["a"], gate=gate).put_off == {"a": ANY_MORE}
    assert (gate.totals("mug").sold, pool.is_gated()) == (0, False)


def test_an_order_is_taken_from_a_pool_that_was_not_gated_when_the_process_began(
    store: RedisStore, gate: Gate, flush: Callable[[], object]
) -> None:
    pool = Pool(store, "mug")
    pool.open(stock=10, segments=2)
    assert not pool.is_gated()
    flush()
    open_gated(Pool(store, "mug"), gate, stock=10, segments=2, epoch=2)
    settled = take_order(pool, gate, Order("a", 1), timeout=0)
    assert isinstance(settled, Settled)
    assert (settled.state, gate.totals("mug").sold) == ("confirmed", 1)


def test_a_worker_does_not_refuse_an_order_that_an_earlier_epoch_sold(
    store: RedisStore, gate: Gate, flush: Callable[[], object]
) -> None:
    pool = Pool(store, "mug", outbox=Outbox(decides="in the worker"))
    open_gated(pool, gate, stock=3, segments=1)
    assert getattr(take_order(pool, gate, Order("a", 2), timeout=0), "state", None) == "confirmed"
    flush()
    reopen_gated(pool, gate, segments=1, epoch=2)
    pool.submit_many([Order("a", 2), Order("b", 2)])
    for replay in (False, True):
        settled = take_envelope(pool, ["a", "b"], gate=gate).settled
        assert [(one.order_id, one.state, one.quantity) for one in settled] == [
            ("a", "confirmed", 2),
            ("b", "refused", 2),
        ], replay
    assert (pool.state().available, gate.totals("mug").sold, pool.audit().is_clean) == (1, 2, True)


def test_a_restock_that_the_pool_cannot_count_is_taken_back_in_the_database(store: RedisStore, gate: Gate) -> None:
    pool = Pool(store, "mug")
    open_gated(pool, gate, stock=10, segments=2)
    store.execute(op.Restock("mug", "flood", UNITS_MAX - 20))
    with pytest.raises(InvalidInput, match=r"10 more are possible$"):
        restock_gated(pool, gate, 11, restock_id="monday")
    assert (gate.totals("mug").quota, gate.unfinished_changes("mug")) == (10, ())
    restock_gated(pool, gate, 10, restock_id="tuesday")
    assert gate.totals("mug").quota == 20
