"""Two sessions beside each other: which difference counts, and which is noise."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from bench.analysis.compare import compare, differences
from bench.analysis.measured import broken_promises, cells_of
from tests.support.bench.records import CELL, checker, file_of, rounds, run
from tests.support.bench.session import AA, CONTROL, GLOBAL, whole_session

if TYPE_CHECKING:
    from bench.engine.cell import Cell
    from bench.engine.record import ResultFile, Run


def test_a_difference_counts_only_above_the_floor_of_either_file() -> None:
    def beside(factor: float, **seed: int) -> str:
        rows = compare(whole_session(), whole_session(factor=factor, **seed)).rows
        return next(row.verdict for row in rows if row.cell_id == AA.cell_id)

    assert beside(1.0, seed=2) == "no difference"
    assert beside(1.05, seed=2) == "faster"
    assert beside(0.95, seed=2) == "slower"
    quiet, loud = (rounds(CELL, rates) + rounds(CELL, again, arm="B") for rates, again in (
        ([100.0] * 4, [100.0] * 4),
        ([110.0] * 4, [88.0] * 4),
    ))  # fmt: skip
    found = compare(file_of(quiet), file_of(loud))
    assert found.floors == {"20ms": pytest.approx(0.25)}
    why = "10.0% is below the noise floor of 25.0%"
    assert [(row.verdict, row.why) for row in found.rows] == [("no difference", why)]


def test_the_floor_of_a_cell_is_that_of_its_slow_step_or_else_the_largest() -> None:
    loud = CELL.model_copy(update={"section": "none", "hold_ms": 0})
    other = CELL.model_copy(update={"section": "cpu", "hold_ms": 1})

    def measured(factor: float) -> ResultFile:
        pairs = ((CELL, 100.0, 102.0), (loud, 110.0, 88.0))
        again = [one for cell, rate, twice in pairs for one in _twice(cell, factor * rate, factor * twice)]
        return file_of([*again, *rounds(other, [factor * 100.0] * 4)])

    found = compare(measured(1.0), measured(0.9))
    assert found.floors == {"20ms": pytest.approx(0.02), "none": pytest.approx(0.25)}
    assert {row.cell_id: row.verdict for row in found.rows} == {
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
        row = compare(file_of(rounds(CELL, [100.0] * runs)), file_of(rounds(CELL, [rate] * runs))).rows[0]
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


def test_who_says_that_sold_out_is_not_exact_breaks_no_promise_by_refusing_wrongly() -> None:
    wrong = checker(refused_wrongly=2, stranded=7)
    assert broken_promises(run(CELL, checker=wrong)) == ("refused wrongly", "stranded")
    promised = run(CELL).guarantees | {"sold_out_is_exact": False}
    assert broken_promises(run(CELL, checker=wrong, guarantees=promised)) == ()
    assert broken_promises(run(CELL, checker=checker(oversold=1, lost=1, sold_in_sql=999))) == (
        "oversold",
        "lost",
        "the order database says otherwise",
    )


def test_differences_are_shown_before_the_figures() -> None:
    console = Console(force_terminal=True, width=160, color_system=None)
    after = file_of(whole_session(factor=1.5, rounds=3).runs, environment={"cores": 3})
    with console.capture() as capture:
        compare(whole_session(rounds=3), after).show(console)
    shown = capture.get()
    assert shown.index("Not the same") < shown.index("Noise floor") < shown.index(AA.cell_id)
    assert "B broke a promise" not in shown
    assert f"{sum(one.cell.loop == 'closed' for one in cells_of(after).values())} closed-loop cells in both: " in shown
