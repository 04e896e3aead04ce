"""Shorthand of the gate's tests."""

from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any, Final

import pytest
from sqlalchemy import event
from sqlalchemy.engine import ExceptionContext

from segmented.errors import SegmentedError
from segmented.models import Order
from segmented.orders import Claim, Gate
from segmented.orders.answers import ConfirmAnswer, Confirmed, OrderRow, SegmentTotals
from tests.support.pools.engines import engine_of

NEW: Final = Confirmed(replay=False)
REPLAY: Final = Confirmed(replay=True)
REAL: Final = [pytest.param(kind, marks=pytest.mark.real) for kind in ("postgresql", "mariadb")]
each_database: Final = pytest.mark.parametrize("order_database", ["postgresql", "sqlite", "mariadb"], indirect=True)
"""Runs a test of `order_database` on MariaDB, too."""
on_mariadb_too: Final = pytest.mark.parametrize("every_database", ["sqlite", *REAL], indirect=True)
"""Runs a test of `every_database` on three of them: one for each way in which their statements differ."""


def claim(order_id: str) -> dict[str, Any]:
    """One mug from segment 0 in epoch 1."""
    return {"order_id": order_id, "sku": "mug", "segment": 0, "quantity": 1, "epoch": 1}


def confirm(gate: Gate, order_id: str, **changed: Any) -> ConfirmAnswer:  # noqa: ANN401  # any of confirm's arguments
    return gate.confirm(**(claim(order_id) | changed))


def sold(gate: Gate) -> dict[int, int]:
    """Units sold a segment."""
    return {row.segment: row.sold for row in gate.totals("mug").segments}


def watch_errors(gate: Gate) -> list[str]:
    """Return a list that every error of the driver is added to."""
    errors: list[str] = []

    @event.listens_for(engine_of(gate), "handle_error")  # a second attempt would hide them from the caller
    def _note(context: ExceptionContext) -> None:
        errors.append(repr(context.original_exception))

    return errors


def one_by_one(gate: Gate, claims: Iterable[Claim]) -> list[ConfirmAnswer | SegmentedError]:
    """Confirm each alone, as `confirm_many` is to do it; an error stands in its place."""
    answers: list[ConfirmAnswer | SegmentedError] = []
    for one in claims:
        try:
            answers.append(gate.confirm_claim(one))
        except SegmentedError as error:
            answers.append(error)
    return answers


def hundred() -> list[Claim]:
    """Orders of 1 to 3 units in segments 0 to 3, half of them with a fence and some with a customer."""
    return [
        Claim(
            Order(f"o-{number}", number % 3 + 1, "ann" if number % 5 else None),
            "mug",
            number % 4,
            1,
            number if number % 2 else None,
        )
        for number in range(100)
    ]


def stored(gate: Gate, sku: str) -> tuple[SegmentTotals, Sequence[tuple[object, ...]]]:
    """All that the database has of a sku, but the times."""
    columns = [field.name for field in fields(OrderRow) if field.name not in {"sku", "created_at"}]
    return gate.totals(sku), [tuple(getattr(row, name) for name in columns) for row in gate.each_order(sku)]
