"""A run counts only if it was long enough, or its generator in time; what was shed is said."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

from bench.engine.cell import Cell
from bench.engine.sale import FAILED_MAX, Sale
from bench.engine.session import broken
from bench.engine.summary import noted, too_short, unsold, voided
from bench.strategies.base import GaveUp, Sold
from tests.support.bench.records import checker, run

if TYPE_CHECKING:
    from bench.engine.cell import RunAssignment
    from bench.engine.measurement import Measurement
    from bench.strategies.base import Answer, Strategy

CELL = Cell(strategy="global-lock", section="none", loop="open", offered_per_s=100, buyers=8)


def sale_of(*, late: float, service: float, answer: Answer, orders: int = 100) -> Sale:
    """One order each hundredth of a second from second 1 on."""
    sale = Sale(CELL, cast("Strategy", SimpleNamespace()), order_count=orders)
    for number in range(orders):
        intended = 1.0 + number / 100
        asked = intended + late
        sale.recorder.note(
            0, number, [answer], intended=intended, asked=asked, done=asked + service, quantity=CELL.quantity
        )
    return sale


def measurement(*, shed: int = 0, begin: float = 1.0) -> Measurement:
    """No Measurement itself: its module imports Locust, which patches the process."""
    return cast("Measurement", SimpleNamespace(window_begin=begin, window_end=2.0, planned=1_000, shed=shed))


def test_a_closed_run_must_have_measured_a_third_of_its_seconds() -> None:
    too_soon = ("sold out too soon: 0.499 s were measured, and it takes 0.500 s",)
    for window_s, stock, said in ((0.5, None, ()), (0.499, None, too_soon), (0.001, 40, ())):
        cell = Cell(strategy="global-lock", section="none", buyers=8, stock=stock)
        assignment = cast("RunAssignment", SimpleNamespace(cell=cell, seconds=1.5))
        assert too_short(assignment, cast("Measurement", SimpleNamespace(window_s=window_s))) == said


def test_a_run_in_which_nothing_was_sold_has_no_rate() -> None:
    assert (unsold(1), unsold(0)) == ((), ("no order was sold in the measured window",))


def test_a_late_generator_voids_the_run() -> None:
    assert voided(sale_of(late=0.002, service=0.01, answer=Sold(1.0)), measurement()) == (
        "the generator was late: p99 of the lateness is 2.000 ms, more than 10% of the response's 12.000 ms",
    )


def test_a_sale_that_was_given_up_and_orders_that_never_ended_void_the_run() -> None:
    sale = sale_of(late=0.0, service=0.01, answer=GaveUp("no lock in time"))
    sale.order_count += 3
    assert voided(sale, measurement()) == (
        f"given up after {FAILED_MAX} orders without an answer: no lock in time",
        "orders that had not ended when the run did: 3",
    )


def test_more_shed_than_one_in_a_thousand_is_beyond_saturation() -> None:
    sale = sale_of(late=0.0, service=0.01, answer=Sold(1.0))
    assert noted(sale, measurement(shed=1)) == ()
    assert noted(sale, measurement(shed=25)) == (
        "beyond saturation: 25 of 1000 orders (2.5%) found all 8 buyers busy, were never sent, and count as failures",
    )


def test_a_run_that_was_sold_out_too_soon_still_tells_how_long_a_stock_lasts() -> None:
    """A first calibration in a slow moment would else leave every run of its cell too short."""
    short = run(orders_per_s=1_000.0, window_s=0.2, void=("sold out too soon",))
    assert (short.orders_per_s, short.pace) == (None, 1_000.0)
    assert short.model_copy(update={"counts": short.counts.model_copy(update={"sold": 0})}).pace is None


def test_only_what_a_strategy_promises_can_be_broken() -> None:
    wrong = run(checker=checker(oversold=3, refused_wrongly=2))
    promises: dict[str, str | bool] = {"never_oversells": True, "sold_out_is_exact": False}
    assert broken(run()) == ()
    assert broken(wrong.model_copy(update={"guarantees": {}})) == ()
    assert broken(wrong.model_copy(update={"guarantees": promises})) == ("oversold",)
    assert broken(wrong.model_copy(update={"guarantees": promises, "is_control": True})) == ()
    stranded = run(checker=checker(stranded=1, sold_in_sql=7), guarantees={"sold_out_is_exact": True})
    assert broken(stranded) == ("stranded", "the order database says otherwise")
