"""The cases of the perverse page: what they do after a call, whom they refuse, and how refusals are judged then."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any, Final, cast

import pytest

from bench.engine.cases import case_of, is_cancelled, refuse_case
from bench.engine.cell import Cell
from bench.engine.checker import surely_wrong
from bench.engine.sale import Recorder, Refusal, whole_sale
from bench.strategies import STRATEGIES
from bench.strategies.base import Refused, Sold
from segmented.errors import InvalidInput, StoreUnavailable
from segmented.models import Order

if TYPE_CHECKING:
    from bench.strategies.base import Strategy

CELL: Final = Cell(strategy="segment-locks", segments=4, section="none")
SOLD: Final = Sold(1.0, 2.0)
SEED: Final = 5


class FakeStrategy:
    """Notes what a case asks for."""

    def __init__(self, error: Exception | None = None) -> None:
        self.said: list[str] = []
        self._error = error

    def cancel(self, order: Order) -> None:
        self._note(f"cancel {order.order_id}")

    def restock(self, units: int) -> None:
        self._note(f"restock {units}")

    def _note(self, said: str) -> None:
        if self._error is not None:
            raise self._error
        self.said.append(said)


def case_state(strategy: FakeStrategy, units: int, **values: Any) -> Any:  # noqa: ANN401  # the state of a case, with a fake strategy
    cell = Cell.model_validate(CELL.model_dump() | values)
    return case_of(cell, cast("Strategy", strategy), units, SEED)


def test_half_of_a_stock_comes_in_when_half_of_the_first_half_is_sold() -> None:
    strategy = FakeStrategy()
    one = case_state(strategy, 9, case="restock")
    orders = [Order(str(number), 1) for number in range(9)]
    assert (one.opened, one.later) == (5, 4)
    one.after(orders[:2], [SOLD, SOLD])
    assert strategy.said == []
    one.after(orders[2:4], [SOLD, Refused(4, 1)])
    one.after(orders[4:5], [SOLD])
    assert strategy.said == ["restock 4"]
    assert (one.restocked, one.broken(), len(one.came_in)) == (4, (), 1)


def test_a_restock_that_never_came_voids_the_run() -> None:
    one = case_state(FakeStrategy(), 9, case="restock")
    assert one.broken() == ("half of the units were not sold in time, so none came in",)
    refused = case_state(FakeStrategy(StoreUnavailable("away")), 2, case="restock")
    refused.after([Order("1", 1)], [SOLD])
    assert refused.broken() == ("1 unit did not come in: StoreUnavailable: away",)
    assert refused.restocked == 0


def test_a_cancel_storm_follows_its_seed_and_opens_with_half_of_a_stock_that_lasts() -> None:
    strategy = FakeStrategy()
    one = case_state(strategy, 100, case="cancel-storm")
    orders = [Order(str(number), 3) for number in range(40)]
    one.after(orders, [SOLD] * 40)
    chosen = [order.order_id for order in orders if is_cancelled(order.order_id, SEED)]
    assert one.opened == 50
    assert len(chosen) == 23
    assert strategy.said == [f"cancel {order_id}" for order_id in chosen]
    assert (one.cancelled, len(one.came_in)) == (69, 23)
    assert case_state(strategy, 100, case="cancel-storm", stock=100).opened == 100


REFUSED: Final[list[tuple[dict[str, Any], str]]] = [
    ({"case": "one-unit", "stock": 2}, "the case one-unit is of a stock of 1, not 2"),
    (
        {"case": "restock", "loop": "open", "offered_per_s": 5.0},
        "the case restock is of a closed loop, and of a stock with an order in each half",
    ),
    (
        {"case": "cancel-storm", "section": "commit"},
        "segment-locks with commits cannot take a sold order back: the order database has confirmed it",
    ),
    (
        {"case": "restock", "strategy": "no-lock", "segments": 1},
        "no-lock cannot take units in while it sells, so it has no restock",
    ),
]


def test_a_case_that_cannot_be_is_refused_in_a_sentence() -> None:
    for values, sentence in REFUSED:
        cell = Cell.model_validate(CELL.model_dump() | values)
        with pytest.raises(InvalidInput) as refused:
            refuse_case(cell, STRATEGIES[cell.strategy])
        assert str(refused.value) == sentence


def test_a_refusal_is_judged_by_what_had_come_in_before_it_was_asked() -> None:
    for asked, done, wrong in (
        (2.0, 3.0, 0),  # both units were taken by then
        (4.0, 4.5, 0),  # one came in at 5.0, which is later
        (4.0, 6.0, 0),  # it came in while the answer was made
        (5.5, 6.0, 1),  # it was there before the order was sent, and nobody else asked
        (5.5, 9.0, 0),  # somebody asked at 8.0, and may have taken it
    ):
        recorder = Recorder(
            asked=array("d", [0.0, 1.0, 8.0]),
            sold=array("i", [1, 1, 1]),
            failed=array("i", [0, 0, 0]),
            refusals=[Refusal(asked, done, 1)],
        )
        assert surely_wrong(recorder, 2, 1, came_in=[(5.0, 1)]) == wrong


def test_a_whole_sale_lasts_from_the_first_order_to_the_last_that_was_sold() -> None:
    recorder = Recorder(asked=array("d", [1.0, 0.5]), done=array("d", [2.0, 9.0]), sold=array("i", [1, 0]))
    assert whole_sale(recorder) == (0.5, 2.0)
    assert whole_sale(Recorder()) is None
