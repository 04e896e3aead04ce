"""A body whose outcome is unknown: the units stay reserved, the segment is free, and the error goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from segmented.errors import InvalidInput
from tests.support.contract.bodies import fail_after
from tests.support.contract.shards.sharding import sharded

if TYPE_CHECKING:
    from tests.fixtures.stores import Side


class PaymentTimeoutError(Exception):
    """The provider did not answer."""


class LateTimeoutError(PaymentTimeoutError):
    """It did not answer for long."""


@pytest.fixture(params=[False, True], ids=["in one slot", "in shards"])
def pool(side: Side, request: pytest.FixtureRequest) -> Any:  # noqa: ANN401  # a Pool or a ShardedPool
    """Eight units in as few segments as there can be."""
    make: Any = sharded if request.param else type(side).pool
    pool = make(side, side.name())
    pool.open(stock=8, segments=1 + request.param, **({"shards": 2} if request.param else {}))
    return pool


def totals(pool: Any) -> tuple[int, int, int]:  # noqa: ANN401  # as above
    state = pool.state()
    return state.available, state.reserved, state.confirmed


def raise_timeout() -> None:
    raise LateTimeoutError


def test_a_body_with_an_unknown_outcome_keeps_its_units_and_frees_its_segment(pool: Any) -> None:  # noqa: ANN401  # as above
    grant = pool.grant("a", quantity=3, timeout=0, keep_on=(KeyError, PaymentTimeoutError))
    with pytest.raises(LateTimeoutError), grant:
        raise_timeout()
    assert totals(pool) == (5, 3, 0)
    again = pool.grant("a", quantity=3, timeout=0)  # the segment is free, and the units are the order's
    assert (again.replay, again.quantity) == (True, 3)
    assert again.fencing_token > grant.fencing_token
    again.confirm()
    assert totals(pool) == (5, 0, 3)


def test_kept_units_are_confirmed_or_cancelled_later(pool: Any) -> None:  # noqa: ANN401  # as above
    for order_id in ("paid", "unpaid"):
        with pytest.raises(LateTimeoutError), pool.grant(order_id, timeout=0, keep_on=PaymentTimeoutError):
            raise_timeout()
    assert (pool.confirm("paid").state, pool.cancel("unpaid").state) == ("confirmed", "cancelled")
    assert totals(pool) == (7, 0, 1)


def test_any_other_error_gives_the_units_back(pool: Any) -> None:  # noqa: ANN401  # as above
    with pytest.raises(ZeroDivisionError), pool.grant("a", timeout=0, keep_on=(PaymentTimeoutError,)):
        fail_after(lambda: None)
    assert totals(pool) == (8, 0, 0)


def test_what_is_no_exception_type_is_refused_before_anything_is_sent(pool: Any) -> None:  # noqa: ANN401  # as above
    bad_ones: list[Any] = ["PaymentTimeout", (KeyError, "x"), [KeyError], int, KeyError(), None]
    for bad in bad_ones:
        with pytest.raises(InvalidInput, match=r"^keep_on=.* is not an exception type or a tuple of them$"):
            pool.grant("a", timeout=0, keep_on=bad)
    assert totals(pool) == (8, 0, 0)
