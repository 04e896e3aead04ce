"""Confirm and cancel of an order that has ended: a repeat is an answer, and what was not done as asked raises."""

from typing import Any

import pytest

from segmented.errors import AlreadySettled
from segmented.models import Order
from tests.fixtures.stores import Side
from tests.support.contract.shards.sharding import sharded

BRIEF = 0.02


@pytest.fixture(params=[False, True], ids=["in one slot", "in shards"])
def pool(side: Side, request: pytest.FixtureRequest) -> Any:  # noqa: ANN401  # a Pool or a ShardedPool
    """Nine units, with one order for each way to end."""
    name = side.name()
    make: Any = sharded if request.param else type(side).pool
    pool = make(side, name)
    pool.open(stock=9, segments=4, **({"shards": 2} if request.param else {}))
    make(side, name, ttl=BRIEF, hold=BRIEF).reserve("expired")
    let_hold_end(pool, side)
    pool.reserve_many([Order("sold"), Order("cancelled"), Order("open")])
    pool.confirm("sold")
    pool.cancel("cancelled")
    return pool


def let_hold_end(pool: Any, side: Side) -> None:  # noqa: ANN401  # as above
    side.pass_time(2 * BRIEF)
    assert [one.state for one in pool.expire()] == ["expired"]


def totals(pool: Any) -> tuple[int, int, int]:  # noqa: ANN401  # as above
    state = pool.state()
    return state.available, state.reserved, state.confirmed


def test_a_repeat_of_a_confirm_is_an_answer(pool: Any) -> None:  # noqa: ANN401  # as above
    assert [pool.confirm("open").replay for _ in range(3)] == [False, True, True]
    assert pool.confirm("sold").state == "confirmed"
    assert totals(pool) == (7, 0, 2)


def test_a_sold_order_is_not_cancelled(pool: Any) -> None:  # noqa: ANN401  # as above
    with pytest.raises(AlreadySettled, match=r"^order 'sold' is already confirmed: its units are not given back$"):
        pool.cancel("sold")
    assert totals(pool) == (7, 1, 1)
