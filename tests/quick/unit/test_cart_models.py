"""A cart as a value: its lines summed and sorted, its home, its orders' id, and what no pool can hold."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from segmented.errors import InvalidInput
from segmented.models import (
    CART_SKUS_MAX,
    QUANTITY_MAX,
    Busy,
    Cart,
    CartRefused,
    Closed,
    Decided,
    LimitReached,
    LineRefusal,
    SoldOut,
    cart_of,
)
from segmented.models.ids import checked_id, is_unseen
from segmented.protocol.carts import _refusal, refusal_text

TEXTS = st.text(st.characters(codec="utf-8").filter(lambda one: not is_unseen(one)), min_size=1, max_size=20)
LINES = st.lists(st.tuples(st.sampled_from(["a", "b", "c", "ü", "Z", "{"]), st.integers(1, 1_000)), min_size=1)


@given(lines=LINES)
def test_27_lines_of_one_sku_are_summed_and_sorted(lines: list[tuple[str, int]]) -> None:
    cart = Cart("c", lines)
    assert cart.lines == tuple((sku, sum(n for other, n in lines if other == sku)) for sku in sorted(dict(lines)))
    assert cart.home == min(sku for sku, _ in lines)
    assert Cart("c", reversed(lines)) == cart


@pytest.mark.parametrize("lines", [5, None, 1.5, True])
def test_lines_that_cannot_be_looked_through_are_bad_input(lines: Any) -> None:  # noqa: ANN401  # what may be given
    with pytest.raises(InvalidInput, match=r"^lines .* of cart 'c' are not pairs of sku and quantity$"):
        Cart("c", lines)


@given(cart_id=TEXTS, lines=st.lists(st.tuples(TEXTS, st.integers(1, 9)), min_size=1), customer_id=st.none() | TEXTS)
def test_a_cart_is_made_again_from_what_is_kept_of_it(
    cart_id: str, lines: list[tuple[str, int]], customer_id: str | None
) -> None:
    cart = Cart(cart_id, lines, customer_id)
    assert cart_of(cart_id, cart.content) == cart
    checked_id(cart.content, "content", bytes_max=100_000)  # no newline, which would end it early in the record


@pytest.mark.parametrize(
    "other",
    [Cart("c", [("a", 2)]), Cart("c", [("a", 1), ("b", 1)]), Cart("c", [("a", 1)], "ann"), Cart("d", [("a", 1)])],
)
def test_other_content_and_another_id_are_other_orders(other: Cart) -> None:
    assert Cart("c", [("a", 1)]).order_id != other.order_id


def test_the_longest_cart_id_makes_an_order_id_that_a_pool_takes() -> None:
    checked_id(Cart("ü" * 120, [("a", 1)]).order_id, "order id")


@pytest.mark.parametrize(
    ("cart_id", "lines", "customer_id", "why"),
    [
        ("", [("a", 1)], None, "cart id"),
        ("x" * 241, [("a", 1)], None, "must have 1 to 240 bytes"),
        ("a\nb", [("a", 1)], None, "characters that cannot be printed"),
        (5, [("a", 1)], None, "is not text"),
        ("c", [], None, "has no lines"),
        ("c", [("a", 1, 2)], None, "is not a pair of sku and quantity"),
        ("c", [7], None, "is not a pair of sku and quantity"),
        ("c", [("", 1)], None, "sku in cart 'c'"),
        ("c", [("a\tb", 1)], None, "characters that cannot be printed"),
        ("c", [("x" * 129, 1)], None, "must have 1 to 128 bytes"),
        ("c", [("a", 0)], None, "quantity 0 of 'a' in cart 'c'"),
        ("c", [("a", 5), ("a", -1)], None, "quantity -1 of 'a'"),
        ("c", [("a", True)], None, "is not a whole number"),
        ("c", [("a", 1.0)], None, "is not a whole number"),
        ("c", [("a", QUANTITY_MAX), ("a", 1)], None, "1000000001 in all"),
        ("c", [(f"s{index}", 1) for index in range(CART_SKUS_MAX + 1)], None, "more than 100 skus"),
        ("c", [("a", 1)], "", "customer id"),
    ],
)
def test_what_no_pool_can_hold_is_refused_in_one_sentence(
    cart_id: Any,  # noqa: ANN401  # what a caller may get wrong
    lines: Any,  # noqa: ANN401  # as above
    customer_id: str | None,
    why: str,
) -> None:
    with pytest.raises(InvalidInput, match=why) as raised:
        Cart(cart_id, lines, customer_id)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "answer",
    [
        SoldOut("c~1", 3, 2, 1, 9_007_199_254_740_991),
        Busy("c~1", 4, None),
        Busy("c~1", 4, 7, is_in_hand=True),
        Decided("c~1", "cancelled", 3, -1, None, 5, replay=True),
        Decided("c~1", "confirmed", 3, 2, 2**40, 5, replay=True),
        Closed("c~1"),
        LimitReached("c~1", 3, "ann é", 2, 1),
    ],
    ids=str,
)
def test_every_refusal_is_kept_and_read_back_as_it_was(answer: Any) -> None:  # noqa: ANN401  # one of several kinds
    refusal = LineRefusal("sku\t%{}", answer)
    assert "\n" not in refusal_text(refusal)
    assert _refusal(refusal_text(refusal)) == refusal


def test_a_refused_cart_says_which_line_refused_it() -> None:
    refused = CartRefused("c", "shirt", SoldOut("c~1", 6, 5, 0, 3), replay=False)
    assert refused.describe() == "shirt: sold out (5 units free, 0 on hold, 6 asked for)"
