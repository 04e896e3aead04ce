"""What is seen of a session: lines in a pipe, a bar on a terminal, and promises that were broken."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from rich.console import Console

from bench.engine.grid import grid_of
from bench.engine.schedule import lost_run, turns_of
from bench.engine.view import BarView, LineView, broken, result_of, view_on
from tests.support.bench.plans import small_plan

if TYPE_CHECKING:
    from pathlib import Path

    from bench.engine.record import Run
    from bench.engine.schedule import Turn


def turn_and_run(folder: Path) -> tuple[Turn, Run]:
    turn = next(one for one in turns_of(grid_of(small_plan(folder), only=("k",))) if one.planned.cell.segments == 4)
    return turn, lost_run(turn, turn.planned.cell, ValueError("it died"), started_at="now")


def test_a_pipe_gets_a_line_a_run_and_what_is_left_out(tmp_path: Path) -> None:
    written = io.StringIO()
    view = view_on(Console(file=written, width=40))
    assert type(view) is LineView
    turn, run = turn_and_run(tmp_path)
    view.begun(grid_of(small_plan(tmp_path), is_quick=True), done=1, left=75.4)
    with view.run(turn, None) as told:
        told("sale", 1, 2)
    view.finished(turn, run, 130.0)
    kept = run.model_copy(update={"void": (), "orders_per_s": 1_234.56, "saturated": ("generator",)})
    view.finished(turn, kept, 0)
    place = f"round {turn.round}: segment-locks K=4 N=8 B=1 5ms"
    assert written.getvalue().splitlines() == [
        "1 cell, 1 round, 1 run; by the plan 75 s",
        "No run is started that would not end within 60 s.",
        "Left out: sweeps that are not measured: hold, load, a-a.",
        "Left out: of the others, all but 1 cell.",
        "Left out: 1 round of 0.4 s a run, instead of 2 of 0.5 s.",
        "Left out: so few and so short runs give no interval that is worth publishing.",
        "1 run is done already and kept.",
        f"run {turn.number} of 1, {place}: void: the run ended without a record: it died; about 2 min left",
        f"run {turn.number} of 1, {place}: 1,234.6 orders/s, limited by generator",
    ]


def test_a_terminal_gets_a_bar_with_the_time_left(tmp_path: Path) -> None:
    written = io.StringIO()
    view = view_on(Console(file=written, width=120, force_terminal=True, color_system=None))
    assert type(view) is BarView
    turn, run = turn_and_run(tmp_path)
    view.begun(grid_of(small_plan(tmp_path), only=("k",)), done=1, left=10)
    with view.run(turn, None):
        pass
    with view.run(turn, 125.0) as told:
        told("sale", 30, 100)
    view.finished(turn, run, 0)
    shown = written.getvalue()
    assert "1/4 time left: known after the first run; segment-locks K=4 N=8 B=1 5ms: starting" in shown
    assert "1/4 about 2 min left; segment-locks K=4 N=8 B=1 5ms: sale 30 %" in shown


def test_only_what_a_strategy_promises_can_be_broken(tmp_path: Path) -> None:
    _, run = turn_and_run(tmp_path)
    assert broken(run) == ()
    oversold = run.model_copy(update={"checker": run.checker.model_copy(update={"oversold": 3, "refused_wrongly": 2})})
    promises = {"never_oversells": True, "sold_out_is_exact": False}
    assert broken(oversold.model_copy(update={"guarantees": promises})) == ("oversold",)
    assert broken(oversold) == ()
    assert broken(oversold.model_copy(update={"guarantees": promises, "is_control": True})) == ()
    stranded = run.model_copy(update={"checker": run.checker.model_copy(update={"stranded": 1, "sold_in_sql": 7})})
    exact = stranded.model_copy(update={"guarantees": {"sold_out_is_exact": True}})
    assert broken(exact) == ("stranded", "the order database says otherwise")
    assert result_of(run) == "void: the run ended without a record: it died"
