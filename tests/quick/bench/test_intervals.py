"""Two sessions compared, and the gates of a run."""

from __future__ import annotations

import math
import re
from types import SimpleNamespace
from typing import TYPE_CHECKING, Final, cast

import numpy as np
import pytest
from rich.console import Console

from bench.analysis.compare import compare, differences
from bench.analysis.intervals import Estimate, paired_ratio, rate_of, unpaired_ratio
from bench.analysis.measured import broken_promises as broken, cells_of
from bench.engine.cell import Cell
from bench.engine.sale import FAILED_MAX, Sale
from bench.engine.summary import noted, too_short, voided
from bench.report.tables import ORDER, compared_page
from bench.strategies.base import GaveUp, Sold
from tests.support.bench.records import CELL, checker, file_of, rounds, run
from tests.support.bench.session import AA, CONTROL, GLOBAL, whole_session

if TYPE_CHECKING:
    from bench.engine.measurement import Measurement
    from bench.engine.record import ResultFile, Run
    from bench.strategies.base import Answer, Strategy

SPREAD: Final = 0.11
SLOW_SHARE: Final = 0.04
SLOW_BY: Final = 5.0
SESSIONS: Final = 10_000
TRUE: Final = math.exp(-SPREAD * SLOW_BY * SLOW_SHARE)


def test_a_difference_counts_only_above_the_floor_of_either_file() -> None:
    def beside(factor: float, **seed: int) -> str:
        rows = compare(whole_session(), whole_session(factor=factor, **seed)).cells
        return next(row.verdict for row in rows if row.cell_id == AA.cell_id)

    assert beside(1.0, seed=2) == "no difference"
    assert beside(1.05, seed=2) == "faster"
    assert beside(0.95, seed=2) == "slower"
    quiet, loud = (rounds(CELL, rates) + rounds(CELL, again, arm="B") for rates, again in (
        ([100.0] * 4, [100.0] * 4),
        ([110.0] * 4, [88.0] * 4),
    ))  # fmt: skip
    found = compare(file_of(quiet), file_of(loud))
    assert found.noise_floors == {"20ms": pytest.approx(0.25)}
    why = "10.0% is below the noise floor of 25.0%"
    assert [(row.verdict, row.why) for row in found.cells] == [("no difference", why)]


def test_the_floor_of_a_cell_is_that_of_its_slow_step_or_else_the_largest() -> None:
    loud = CELL.model_copy(update={"section": "none", "hold_ms": 0})
    other = CELL.model_copy(update={"section": "cpu", "hold_ms": 1})

    def measured(factor: float) -> ResultFile:
        pairs = ((CELL, 100.0, 102.0), (loud, 110.0, 88.0))
        again = [one for cell, rate, twice in pairs for one in _twice(cell, factor * rate, factor * twice)]
        return file_of([*again, *rounds(other, [factor * 100.0] * 4)])

    found = compare(measured(1.0), measured(0.9))
    assert found.noise_floors == {"20ms": pytest.approx(0.02), "none": pytest.approx(0.25)}
    assert {row.cell_id: row.verdict for row in found.cells} == {
        CELL.cell_id: "slower",
        loud.cell_id: "no difference",
        other.cell_id: "no difference",
    }
    assert found.is_worse
    assert not compare(measured(1.0), measured(1.1)).is_worse


def _twice(cell: Cell, rate: float, again: float) -> list[Run]:
    return [*rounds(cell, [rate] * 4), *rounds(cell, [again] * 4, arm="B")]


def test_without_an_aa_row_small_differences_are_not_judged() -> None:
    def verdict(rate: float, *, runs: int = 5) -> tuple[str, str]:
        row = compare(file_of(rounds(CELL, [100.0] * runs)), file_of(rounds(CELL, [rate] * runs))).cells[0]
        return row.verdict, row.why

    assert verdict(105.0) == ("not judged", "5.0%, and there is no A/A row for the noise")
    assert verdict(150.0) == ("faster", "by 50.0%")
    assert verdict(50.0) == ("slower", "by 50.0%")
    assert verdict(150.0, runs=2) == ("not judged", "2 runs give no interval: it takes 3")


def test_what_differs_and_what_only_one_has_is_named() -> None:
    before = file_of([run(CELL), run(CONTROL)])
    environment = {"cores": 4, "machine": {"load_before": 3.0, "kernel": "6"}}
    broken = run(GLOBAL, void=("oversold by 3 units",), checker=checker(oversold=3, stock=1_000, sold=1_003))
    after = file_of([run(CELL), broken], environment=environment, is_quick=True, plan_sha256="1" * 64)
    found = compare(before, after)
    assert found.differences[:3] == (
        "profile: published, quick",
        "plan: 000000000000, 111111111111",
        "commit: c0ffee, nothing",
    )
    assert {"machine: B alone has it", "versions: A alone has it"} < set(found.differences)
    newer = {"cores": 4, "machine": {"load_before": 9.0, "kernel": "7"}}
    grown = after.session.model_copy(update={"environment": newer})
    assert list(differences(after.session, grown)) == ["machine.kernel: 6, 7"]
    assert (found.only_in_a, found.only_in_b) == ((CONTROL.cell_id,), (GLOBAL.cell_id,))
    assert found.not_whole == {}
    cut = before.model_copy(update={"end": None})
    missing = "its last line is missing, as after a kill; 2 runs are there"
    assert compare(cut, after).as_json()["not_whole"] == {"A": missing}
    console = Console(width=200, color_system=None)
    with console.capture() as capture:
        compare(after, cut).show(console)
    assert capture.get().startswith(f"B is not a whole session: {missing}.\n")
    assert found.is_worse
    assert not compare(after, before).is_worse
    assert found.as_json()["broken_in_b"] == {GLOBAL.cell_id: "round 0, arm A: oversold"}


def test_differences_are_shown_before_the_figures() -> None:
    console = Console(force_terminal=True, width=160, color_system=None)
    after = file_of(whole_session(factor=1.5, rounds=3).runs, environment={"cores": 3})
    with console.capture() as capture:
        compare(whole_session(rounds=3), after).show(console)
    shown = capture.get()
    assert shown.index("Not the same") < shown.index("Noise floor") < shown.index(AA.cell_id)
    assert "B broke a promise" not in shown
    assert f"{sum(one.cell.loop == 'closed' for one in cells_of(after).values())} closed-loop cells in both: " in shown


GATED_CELL = Cell(strategy="global-lock", section="none", loop="open", offered_per_s=100, buyers=8)


def sale_of(*, late: float, service: float, answer: Answer, orders: int = 100) -> Sale:
    """One order each hundredth of a second from second 1 on."""
    sale = Sale(GATED_CELL, cast("Strategy", SimpleNamespace()), order_count=orders)
    for number in range(orders):
        intended = 1.0 + number / 100
        asked = intended + late
        sale.recorder.note(
            0, number, [answer], intended=intended, asked=asked, done=asked + service, quantity=GATED_CELL.quantity
        )
    return sale


def measurement(*, shed: int = 0, begin: float = 1.0) -> Measurement:
    """No Measurement itself: its module imports Locust, which patches the process."""
    return cast("Measurement", SimpleNamespace(window_begin=begin, window_end=2.0, planned=1_000, shed=shed))


def test_the_page_of_a_comparison_begins_with_what_got_worse() -> None:
    found = compare(whole_session(), whole_session(factor=0.8, seed=2))
    shown = compared_page(found, ("a/results.jsonl", "b/results.jsonl"))
    verdicts = re.findall(r'<td class="verdict [^"]+">([^<]+)</td>', shown)
    assert verdicts == sorted(verdicts, key=ORDER.index)
    assert verdicts[0] == "slower"
    assert len(verdicts) == len(found.cells)
    assert found.totals() in shown
    assert re.search(r'(?:src|href)="https?:', shown) is None


def test_a_closed_run_must_have_measured_a_third_of_its_seconds() -> None:
    too_soon = ("sold out too soon: 0.499 s were measured, and it takes 0.500 s",)
    for window_s, stock, said in ((0.5, None, ()), (0.499, None, too_soon), (0.001, 40, ())):
        cell = Cell(strategy="global-lock", section="none", buyers=8, stock=stock)
        assert too_short(cell, window_s, 1.5) == said


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
    assert noted(1, 1_000, 8) == ()
    assert noted(25, 1_000, 8) == (
        "beyond saturation: 25 of 1000 orders (2.5%) found all 8 buyers busy, were never sent, and count as failures",
    )


def test_only_what_a_strategy_promises_can_be_broken() -> None:
    wrong = run(checker=checker(oversold=3, refused_wrongly=2))
    promises: dict[str, str | bool] = {"never_oversells": True, "sold_out_is_exact": False}
    assert broken(run()) == ()
    assert broken(wrong.model_copy(update={"guarantees": promises})) == ("oversold",)
    assert broken(wrong.model_copy(update={"guarantees": promises, "is_control": True})) == ()
    stranded = run(checker=checker(stranded=1, sold_in_sql=7), guarantees={"sold_out_is_exact": True})
    assert broken(stranded) == ("stranded", "the order database says otherwise")


def test_pairs_take_out_what_slowed_a_whole_round() -> None:
    slow = {number: 100.0 * (1 + number) for number in range(5)}
    found = paired_ratio({number: rate * 2 for number, rate in slow.items()}, slow)
    assert found is not None
    assert (found.value, found.low, found.high) == pytest.approx((2, 2, 2))
    assert paired_ratio({1: 1.0}, {2: 1.0}) is None
    assert unpaired_ratio([], [1.0]) is None


def test_the_ratio_of_two_cells_is_that_of_their_rates_paired_or_not() -> None:
    above, below = [2.0, 8.0, 4.0], [1.0, 1.0, 8.0]
    paired = paired_ratio(dict(enumerate(above)), dict(enumerate(below)))
    unpaired = unpaired_ratio(above, below)
    assert paired is not None
    assert unpaired is not None
    assert paired.value == unpaired.value == pytest.approx(rate_of(above).value / rate_of(below).value) == 2


def _drawn(seed: int, runs: int) -> list[list[float]]:
    """Return the rates of one cell's runs in many sessions: lognormal, some slower by the measured outliers."""
    generator = np.random.default_rng(seed)
    is_slow = generator.random((SESSIONS, runs)) < SLOW_SHARE
    found: list[list[float]] = np.exp(
        SPREAD * (generator.standard_normal((SESSIONS, runs)) - SLOW_BY * is_slow)
    ).tolist()
    return found


def _share(found: list[bool]) -> float:
    return sum(found) / len(found)


def _holds(found: Estimate | None, true: float) -> bool:
    return found is not None and (found.low or 0) <= true <= (found.high or 0)


@pytest.mark.long
@pytest.mark.parametrize("runs", [5, 10])
def test_95_in_100_intervals_of_a_rate_hold_it(runs: int) -> None:
    assert 0.935 <= _share([_holds(rate_of(one), TRUE) for one in _drawn(20_261_128, runs)]) <= 0.965


@pytest.mark.long
def test_all_intervals_of_a_family_hold_their_values_together_in_95_of_100_sessions() -> None:
    cells, drawn = 20, _drawn(20_261_130, 10)
    sessions = [drawn[place : place + cells] for place in range(0, SESSIONS, cells)]

    def together(family: int) -> float:
        return _share([all(_holds(rate_of(one, family=family), TRUE) for one in session) for session in sessions])

    assert together(1) < 0.6
    assert together(cells) > 0.9
