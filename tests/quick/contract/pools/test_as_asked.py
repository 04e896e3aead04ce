"""Confirm and cancel of an order that has ended: a repeat is an answer, and what was not done as asked raises."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from segmented.errors import AlreadySettled, GrantLost, GrantSuperseded, InvalidInput, LeaseError
from segmented.models import Order, Settled
from tests.support.contract.shards.sharding import sharded

if TYPE_CHECKING:
    from tests.fixtures.stores import Side

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


def test_an_order_whose_units_are_back_is_not_confirmed(pool: Any) -> None:  # noqa: ANN401  # as above
    for state in ("cancelled", "expired"):
        sentence = rf"^order '{state}' is already {state}: it cannot be confirmed$"
        with pytest.raises(AlreadySettled, match=sentence) as caught:
            pool.confirm(state)
        settled = caught.value.settled
        assert isinstance(settled, Settled)
        assert (caught.value.state, settled.order_id, settled.replay) == (state, state, True)
        again = pool.cancel(state)
        assert (again.state, again.replay) == (state, True)
    assert totals(pool) == (7, 1, 1)


def test_a_sold_order_is_not_cancelled(pool: Any) -> None:  # noqa: ANN401  # as above
    with pytest.raises(AlreadySettled, match=r"^order 'sold' is already confirmed: its units are not given back$"):
        pool.cancel("sold")
    assert totals(pool) == (7, 1, 1)


def test_in_a_batch_the_error_takes_the_answers_place(pool: Any) -> None:  # noqa: ANN401  # as above
    ids = ["sold", "cancelled", "expired", "open"]
    ends = [[(type(one), one.state) for one in end(ids)] for end in (pool.confirm_many, pool.cancel_many)]
    states = ["confirmed", "cancelled", "expired", "confirmed"]
    kinds = [[Settled, AlreadySettled, AlreadySettled, Settled], [AlreadySettled, Settled, Settled, AlreadySettled]]
    assert ends == [list(zip(kind, states, strict=True)) for kind in kinds]
    assert totals(pool) == (7, 0, 2)


def test_a_cancel_by_the_wrong_holder_changes_nothing(pool: Any) -> None:  # noqa: ANN401  # as above
    grant = pool.grant("a", timeout=0)
    sentence = rf"^grant for order 'a' is superseded by fencing token {grant.fencing_token}$"
    with pytest.raises(GrantSuperseded, match=sentence):
        pool.cancel("a", holder_id="another")
    assert totals(pool) == (6, 2, 1)


def test_an_order_cancelled_behind_the_bodys_back_is_not_reported_as_sold(pool: Any) -> None:  # noqa: ANN401  # as above
    sentence = "^order 'a' is not sold: it was cancelled while the body ran, and its units went back$"
    with pytest.raises(GrantLost, match=sentence) as caught, pool.grant("a", timeout=0):
        pool.cancel("a")
    assert (caught.value.order_id, caught.value.state) == ("a", "cancelled")
    assert totals(pool) == (7, 1, 1)


def test_a_hold_that_ends_while_the_body_runs_loses_the_grant(side: Side) -> None:
    pool = side.pool(side.name(), ttl=BRIEF, hold=BRIEF)
    pool.open(stock=8, segments=2)
    grant: Any = pool.grant("a", quantity=3, timeout=0)
    sentence = "^order 'a' is not sold: its hold ended while the body ran, and its units went back$"
    with pytest.raises(GrantLost, match=sentence) as caught, grant:
        let_hold_end(pool, side)
    assert isinstance(caught.value, LeaseError)
    assert isinstance(caught.value.__cause__, AlreadySettled)
    assert totals(pool) == (8, 0, 0)


@pytest.mark.parametrize("end", ["confirm", "cancel"])
def test_a_grant_runs_one_body_and_none_after_its_end(side: Side, end: str) -> None:
    pool = side.pool(side.name())
    pool.open(stock=8, segments=2)
    grant: Any = pool.grant("a", timeout=0)
    getattr(grant, end)()
    sentence = r"^the grant of order 'a' has ended: ask for the order again"
    with pytest.raises(InvalidInput, match=sentence), grant:
        pytest.fail("the body ran")
