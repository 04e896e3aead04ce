from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from segmented.errors import (
    AcquireTimeout,
    GrantSuperseded,
    InvalidInput,
    LeaseLost,
    NotGranted,
    OrderMismatch,
    OrderUnknown,
    PoolMissing,
    SegmentedError,
    StoreUnavailable,
)
from segmented.models import ORDER_ID_BYTES_MAX, QUANTITY_MAX, Busy, Decided, Order, SoldOut


@pytest.mark.parametrize("order_id", ["a", "a" * ORDER_ID_BYTES_MAX, "ü票 {}"])
def test_an_order_id_has_1_to_256_bytes_of_any_text(order_id: str) -> None:
    assert Order(order_id, 1).order_id == order_id


@pytest.mark.parametrize("order_id", ["", "a" * (ORDER_ID_BYTES_MAX + 1)])
def test_an_order_id_that_is_empty_or_too_long_is_refused(order_id: str) -> None:
    with pytest.raises(InvalidInput, match=r"^order id .* must have 1 to 256 bytes of UTF-8$"):
        Order(order_id, 1)


@pytest.mark.parametrize("customer_id", ["", "a" * (ORDER_ID_BYTES_MAX + 1)])
def test_a_customer_id_that_is_empty_or_too_long_is_refused(customer_id: str) -> None:
    with pytest.raises(InvalidInput, match=r"^customer id .* must have 1 to 256 bytes of UTF-8$"):
        Order("a", 1, customer_id)


@pytest.mark.parametrize("quantity", [1, QUANTITY_MAX])
def test_a_quantity_is_1_to_a_milliard(quantity: int) -> None:
    assert Order("a", quantity).quantity == quantity


@pytest.mark.parametrize("quantity", [0, -1, QUANTITY_MAX + 1])
def test_a_quantity_outside_of_that_is_refused(quantity: int) -> None:
    with pytest.raises(InvalidInput, match=rf"^quantity {quantity} of order 'a' must be between 1 and 1,000,000,000$"):
        Order("a", quantity)


@pytest.mark.parametrize("quantity", [1.0, 1.5, True, False, "1", None, float("nan")])
def test_a_quantity_that_is_no_whole_number_is_refused(quantity: Any) -> None:  # noqa: ANN401  # what a caller may get wrong
    with pytest.raises(InvalidInput, match=r"^quantity .* of order 'a' is not a whole number$"):
        Order("a", quantity)


def test_what_crosses_a_boundary_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Order("a", 1).quantity = 2  # type: ignore[misc]  # that is the point


REFUSALS = [
    (SoldOut("a", 3, available=2, reserved=5, sequence=9), "sold out (2 units free, 5 on hold, 3 asked for)"),
    (Busy("a", 9, 100), "no segment was free before the deadline"),
    (Busy("a", 9, 100, is_in_hand=True), "another holder works on it"),
    (Decided("a", "confirmed", 3, 0, None, 9, replay=True), "already confirmed"),
]


@pytest.mark.parametrize(("refusal", "words"), REFUSALS, ids=[words for _, words in REFUSALS])
def test_a_refusal_in_a_with_statement_raises_instead_of_running_the_body(
    refusal: SoldOut | Busy | Decided, words: str
) -> None:
    with pytest.raises(NotGranted) as caught, refusal:
        pytest.fail("the body ran")
    assert caught.value.refusal is refusal
    assert str(caught.value) == f"order 'a' was not granted: {words}"


ERRORS = [
    (
        PoolMissing("x"),
        (
            "pool 'x' is not open: it was never opened here, or its keys vanished; if they are gone for good, "
            "'segmented pool reopen x --database URL' opens it with what an order database has not sold"
        ),
    ),
    (OrderMismatch("a"), "order 'a' exists with other content"),
    (OrderMismatch("a", "quantity 2, not 3"), "order 'a' exists with other content: quantity 2, not 3"),
    (OrderUnknown("a"), "order 'a' is not known to the pool"),
    (LeaseLost("x", "secret"), "lease on 'x' is lost: it lapsed or was taken away"),
    (LeaseLost("x", "secret", is_released=True), "lease on 'x' was released, so it protects nothing any more"),
    (AcquireTimeout("x", 1.5), "lock 'x' was not free within 1.5 s"),
    (GrantSuperseded("a", 7), "grant for order 'a' is superseded by fencing token 7"),
    (StoreUnavailable(), "The store cannot be reached; whether the operation ran is unknown."),
]


@pytest.mark.parametrize(("error", "sentence"), ERRORS, ids=[sentence for _, sentence in ERRORS])
def test_an_error_is_one_sentence_under_one_root(error: SegmentedError, sentence: str) -> None:
    assert isinstance(error, SegmentedError)
    assert str(error) == sentence


def test_an_order_without_a_quantity_asks_for_one_unit() -> None:
    assert Order("order-5") == Order("order-5", 1)
