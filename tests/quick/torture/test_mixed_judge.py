"""The judge of `torture orders --mix` finds each kind of wrong order."""

import pytest

from tests.torture.orders.mixed import MUST_BE_ZERO, judge_order
from tests.torture.orders.mixed_buyer import kept_units, kind_of, units_of

PAID, CHANGED, RETURNED, SUBMITTED, DECLINED = 3, 6, 8, 1, 21


@pytest.mark.parametrize(
    ("number", "answer", "row", "back", "invoices", "wrong"),
    [
        (PAID, "sold", ("confirmed", kept_units(PAID)), 0, 1, []),
        (PAID, "sold", None, 0, 0, ["lost"]),
        (PAID, "sold", ("void", 1), 0, 1, ["lost", "invoiced_unsold"]),
        (PAID, "sold", ("confirmed", kept_units(PAID)), 0, 2, ["invoices"]),
        (PAID, "sold", ("confirmed", kept_units(PAID)), 0, 0, ["invoices"]),
        (PAID, "refunded", ("void", 1), 0, 0, []),
        (PAID, "refunded", ("confirmed", kept_units(PAID)), 0, 1, ["wrongly_sold"]),
        (PAID, "refunded", ("void", 1), 0, 1, ["invoiced_unsold"]),
        (PAID, "refused", None, 0, 0, []),
        (PAID, "nothing", ("confirmed", kept_units(PAID)), 0, 1, ["wrongly_sold"]),
        (CHANGED, "sold", ("confirmed", kept_units(CHANGED)), 0, 1, []),
        (CHANGED, "sold", ("confirmed", units_of(CHANGED)), 0, 1, ["units"]),
        (RETURNED, "sold", ("confirmed", kept_units(RETURNED)), 1, 1, []),
        (RETURNED, "sold", ("confirmed", kept_units(RETURNED)), 0, 1, ["units"]),
        (RETURNED, "sold", ("confirmed", kept_units(RETURNED)), 2, 1, ["units"]),
        (SUBMITTED, "accepted", ("confirmed", kept_units(SUBMITTED)), 0, 0, []),
        (SUBMITTED, "accepted", ("void", 1), 0, 0, ["lost"]),
        (DECLINED, "accepted", ("void", 1), 0, 0, []),
        (DECLINED, "accepted", ("confirmed", kept_units(DECLINED)), 0, 0, ["wrongly_sold"]),
    ],
)
def test_what_is_wrong_with_an_order_is_counted(
    number: int, answer: str, row: tuple[str, int] | None, back: int, invoices: int, wrong: list[str]
) -> None:
    found: dict[str, list[str]] = {name: [] for name in MUST_BE_ZERO}
    judge_order(found, ("a", f"o-{number}"), answer, row, back=back, invoices=invoices)
    assert [name for name, wrongs in found.items() if wrongs] == wrong


def test_of_ten_orders_three_are_submitted_and_three_are_paid() -> None:
    kinds = [kind_of(number) for number in range(10)]
    assert [kinds.count(kind) for kind in ("submitted", "paid", "changed", "returned", "late", "abandoned")] == [
        3,
        3,
        1,
        1,
        1,
        1,
    ]
