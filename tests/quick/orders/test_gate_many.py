"""An envelope of orders in one transaction: what each of them alone would have got, on PostgreSQL and SQLite."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from segmented.orders import Claim, Gate
from segmented.orders.answers import SegmentRow
from tests.support.pools.gating import NEW, hundred, one_by_one, stored


@pytest.fixture
def gate(every_database: str, open_gate: Callable[..., Gate]) -> Gate:
    return open_gate(every_database)


def shown(answers: Sequence[object]) -> list[object]:
    """Return the answers, and an error as its text."""
    return [str(answer) if isinstance(answer, Exception) else answer for answer in answers]


def check_as_if_alone(gate: Gate, claims: list[Claim], quotas: list[int]) -> list[object]:
    """Confirm the claims together and, of another sku, one by one; both get the same and leave the same rows."""
    alone = [replace(claim, sku="cup") for claim in claims]
    for sku in ("mug", "cup"):
        gate.open(sku, quotas)
    together = shown(gate.confirm_many(claims))
    assert together == shown(one_by_one(gate, alone))
    assert stored(gate, "mug") == stored(gate, "cup")
    assert gate.totals("mug").sold == gate.confirmed_units("mug")
    return together


def test_a_hundred_orders_together_are_a_hundred_orders_alone(gate: Gate) -> None:
    answers = check_as_if_alone(gate, hundred(), [60, 60, 60, 60])
    assert answers == [NEW] * 100
    assert gate.totals("mug").segments == (
        SegmentRow(0, 60, 49, 0, 1),
        SegmentRow(1, 60, 50, 97, 1),
        SegmentRow(2, 60, 51, 0, 1),
        SegmentRow(3, 60, 49, 99, 1),
    )
    row = gate.orders("mug", ["o-7"])["o-7"]
    assert (row.state, row.quantity, row.segment, row.fence, row.epoch) == ("confirmed", 2, 3, 7, 1)
    assert (row.customer_id, gate.orders("mug", ["o-10"])["o-10"].customer_id) == ("ann", None)
