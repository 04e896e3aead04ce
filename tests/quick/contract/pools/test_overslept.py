"""A holder that slept through its lease, and goes on as if it had not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from segmented import protocol as op
from segmented.errors import InvalidInput, PoolMissing
from segmented.models import Busy, Granted, Order, Refusal, Reserved, Settled

if TYPE_CHECKING:
    from tests.fixtures.stores import Side

ORDER = Order("a", 1)


def granted(side: Side, sku: str, order: Order, holder_id: str, *, ttl_ms: int) -> Granted:
    answer = side.execute(op.Grant(sku, order, holder_id, ttl_ms, 60_000, keep_refusal=False))
    assert isinstance(answer, Granted)
    return answer


def test_its_confirm_does_not_free_its_successors_segment(side: Side) -> None:
    sku = side.name()
    side.execute(op.OpenPool(sku, 5, 1, gated=False))
    granted(side, sku, ORDER, "old", ttl_ms=50)
    side.pass_time(0.1)
    granted(side, sku, ORDER, "new", ttl_ms=60_000)
    settled = side.execute(op.Confirm(sku, "a", "old"))
    assert (settled.state, settled.replay) == ("confirmed", False)
    assert isinstance(side.execute(op.Grant(sku, Order("b", 1), "b", 1_000, 1_000, keep_refusal=False)), Busy)
    settled = side.execute(op.Confirm(sku, "a", "new"))
    assert (settled.state, settled.replay) == ("confirmed", True)
    granted(side, sku, Order("b", 1), "b", ttl_ms=60_000)


def test_a_holder_id_that_is_used_for_two_orders_counts_for_each_alone(side: Side) -> None:
    sku = side.name()
    pool, brief = side.pool(sku), side.pool(sku, ttl=0.05)
    pool.open(stock=5, segments=1)
    first = brief.grant("a", holder_id="worker", timeout=0)
    side.pass_time(0.1)
    second = pool.grant("b", holder_id="worker", timeout=0)
    assert isinstance(pool.grant("a", holder_id="worker", timeout=0), Busy)
    assert not isinstance(first, Refusal)
    assert not isinstance(second, Refusal)
    assert second.fencing_token > first.fencing_token


def test_a_repeated_reservation_is_held_anew(side: Side) -> None:
    sku = side.name()
    side.execute(op.OpenPool(sku, 1, 1, gated=False))
    side.execute(op.Reserve(sku, ORDER, 50))
    side.pass_time(0.1)
    again = side.execute(op.Reserve(sku, ORDER, 60_000))
    assert isinstance(again, Reserved)
    assert again.replay
    assert not isinstance(side.execute(op.Reserve(sku, Order("b", 1), 60_000)), Reserved)
    settled = side.execute(op.Confirm(sku, "a"))
    assert isinstance(settled, Settled)
    assert settled.state == "confirmed"


@pytest.mark.parametrize("options", [{"stock": 2.5}, {"stock": True}, {"stock": "5"}, {"epoch": 0}, {"epoch": 2**21}])
def test_what_no_pool_can_be_is_refused_before_anything_is_sent(side: Side, options: dict[str, Any]) -> None:
    pool = side.pool(side.name())
    with pytest.raises(InvalidInput):
        pool.open(stock=options.get("stock", 5), segments=1, epoch=options.get("epoch", 1))
    with pytest.raises(PoolMissing):
        pool.state()
