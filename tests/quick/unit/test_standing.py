"""What a confirm that changed nothing means, in order of precedence."""

from __future__ import annotations

from typing import Final

import pytest

from segmented.errors import OrderMismatch
from segmented.models import Order
from segmented.orders.answers import (
    AlreadyConfirmed,
    ConfirmAnswer,
    Confirmed,
    EpochChanged,
    Missing,
    SoldOut,
    Superseded,
    Voided,
)
from segmented.orders.standing import Claim, Standing, classify, fate

CLAIM: Final = Claim(Order("o-1", 2, "ann"), "mug", 0, epoch=3, fence=7)
NO_ROW: Final = (None, None, None)


@pytest.mark.parametrize(
    ("standing", "answer"),
    [
        (Standing("confirmed", 2, "ann", None, None, 0, 0), Confirmed(replay=True)),
        (Standing("confirmed", 2, None, 9, 9, 0, 0), Confirmed(replay=True)),
        (Standing("void", 2, None, 3, 7, 9, 0), Voided(replay=True)),
        (Standing(*NO_ROW, None, None, 0, 0), Missing()),
        (Standing(*NO_ROW, None, None, 9, 0), Missing()),
        (Standing(*NO_ROW, 4, 9, 9, 9), EpochChanged(4)),
        (Standing(*NO_ROW, 2, 9, 9, 9), EpochChanged(2)),
        (Standing(*NO_ROW, 3, 8, 9, 9), Superseded(8)),
        (Standing(*NO_ROW, 3, 7, 9, 8), SoldOut(9, 8)),
        (Standing(*NO_ROW, 3, 7, 9, 7), None),
    ],
)
def test_the_answers_come_in_order_of_precedence(standing: Standing, answer: ConfirmAnswer | None) -> None:
    assert classify(CLAIM, standing) == answer


def test_without_a_fence_no_fence_is_too_new() -> None:
    claim = Claim(Order("o-1", 2), "mug", 0, epoch=3, fence=None)
    assert classify(claim, Standing(*NO_ROW, 3, 2**62, 9, 7)) is None


def test_a_customer_is_compared_where_both_sides_name_one() -> None:
    named = Standing("confirmed", 2, "bob", 3, 7, 9, 2)
    assert classify(Claim(Order("o-1", 2), "mug", 0, 3, 7), named) == Confirmed(replay=True)
    with pytest.raises(OrderMismatch, match="another customer is stored, ann was given"):
        classify(CLAIM, named)
    more = Standing("confirmed", 5, "bob", 3, 7, 9, 2)
    with pytest.raises(
        OrderMismatch, match="quantity 5 is stored, 2 was given; another customer is stored, ann was given"
    ):
        classify(CLAIM, more)


def test_the_fate_of_an_order_that_has_a_row_is_that_row() -> None:
    assert fate(CLAIM.order, Standing("void", 2, None, 3, 7, 9, 2)) == Voided(replay=True)
    assert fate(CLAIM.order, Standing("confirmed", 2, "ann", 3, 7, 9, 2)) == AlreadyConfirmed()
    with pytest.raises(OrderMismatch, match="quantity 3 is stored, 2 was given"):
        fate(CLAIM.order, Standing("void", 3, None, 3, 7, 9, 2))
