"""The end of a grant that its store does not answer is repeated, unless its caller ends it otherwise."""

from typing import Any, Final

import pytest

from segmented.errors import StoreUnavailable
from tests.fixtures.stores import Side
from tests.support.contract.parking import wait_until
from tests.support.proxy import Proxy


class BodyError(Exception):
    """The body's own error."""


def state_of(pool: Any) -> str:  # noqa: ANN401  # of either colour
    state: str = pool.order("a").state
    return state


ENDINGS: Final = [(None, StoreUnavailable, "confirmed"), (BodyError(), BodyError, "cancelled")]


@pytest.mark.parametrize(("error", "raised", "state"), ENDINGS, ids=["paid", "failed"])
def test_an_end_that_was_never_answered_is_repeated(
    far_side: Side, proxy: Proxy, error: Exception | None, raised: type[Exception], state: str
) -> None:
    pool: Any = far_side.pool(far_side.name())
    pool.open(stock=5, segments=1)

    def body() -> None:
        proxy.vanish()
        if error is not None:
            raise error

    with pytest.raises(raised), pool.grant("a"):
        body()
    proxy.come_back()
    wait_until(lambda: state_of(pool) == state)


def test_a_cancel_takes_the_place_of_a_confirm_that_was_never_answered(far_side: Side, proxy: Proxy) -> None:
    pool: Any = far_side.pool(far_side.name())
    pool.open(stock=5, segments=1)
    grant = pool.grant("a")
    proxy.vanish()
    with pytest.raises(StoreUnavailable):
        grant.confirm()
    proxy.come_back()
    assert (grant.cancel().state, state_of(pool), pool.state().available) == ("cancelled", "cancelled", 5)
