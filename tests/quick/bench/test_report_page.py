"""The report of a made-up session: what is drawn, what the axes say, what is refused, and that it is the same twice."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pytest

from bench.analysis.calibration import Calibration, calibrate
from bench.engine.cell import Cell
from bench.engine.record import ResultFile, as_line, read_results
from bench.lint import RuleFinding, check
from bench.report.colours import PAPER
from bench.report.drawing import FIGURES, redraw, redraw as draw_report
from bench.report.drawn import Drawn, NotDrawn
from bench.report.facts import OURS, Facts, Spot
from bench.report.figures.crossover import crossover
from bench.report.figures.load import latency_by_load
from bench.report.figures.over_time import outcomes as outcomes_of_orders, segment_map
from bench.report.markdown import table
from bench.report.page import page
from bench.report.style import as_png, house_style
from bench.report.svg import as_svg
from bench.report.tables import cell_row, sold_share, strategy_rows
from bench.report.unfavourable import unfavourable_figure
from segmented.errors import InvalidInput
from tests.support.bench.report_session import RANDOM, run, session

if TYPE_CHECKING:
    from pathlib import Path

    from bench.report.drawing import Report
    from bench.report.drawn import Outcome

pytestmark = [pytest.mark.timeout(240)]

FEW = (segment_map, outcomes_of_orders, unfavourable_figure)
"""Those that are drawn twice: to draw all of them twice takes too long for every day."""
ONLY_IF_PUBLISHED = ("table.md", "verdicts.md")
NUMBERS = ["F1", "S", *(f"F{one}" for one in range(2, 17)), "U"]


def nothing(_: str, __: int, ___: int) -> None:
    """Look away."""


@dataclass(frozen=True)
class Made:
    folder: Path
    report: Report
    html: str


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> tuple[ResultFile, Path]:
    folder = tmp_path_factory.mktemp("session")
    return session(folder), folder


@pytest.fixture(scope="module")
def outcomes(results: tuple[ResultFile, Path]) -> dict[str, Outcome]:
    facts = Facts(*results)
    with house_style():
        return {one.number: one for one in (draw(facts) for draw in FIGURES)}


@pytest.fixture(scope="module")
def made(results: tuple[ResultFile, Path]) -> Made:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bench.report.drawing.FIGURES", FEW)
        for name in ONLY_IF_PUBLISHED:
            (results[1] / name).write_text("of an earlier drawing", encoding="utf-8")
        report = redraw(results[1], nothing)
    return Made(results[1], report, (results[1] / "report.html").read_text(encoding="utf-8"))


def drawn(outcomes: dict[str, Outcome], number: str) -> Drawn:
    found = outcomes[number]
    assert isinstance(found, Drawn)
    return found


def marks(figure: Drawn, kind: str) -> set[str]:
    """Return the cells whose marker is of a kind."""
    ids = [line.get_gid() or "" for axes in figure.figure.axes for line in axes.get_lines()]
    return {one.partition(":")[2].partition(": ")[0] for one in ids if one.partition(":")[0] == kind}


def test_every_figure_is_drawn_where_the_session_has_its_data(outcomes: dict[str, Outcome]) -> None:
    assert list(outcomes) == NUMBERS
    assert [one.number for one in outcomes.values() if isinstance(one, NotDrawn)] == []


def test_every_title_or_caption_names_the_loop_and_every_caption_the_runs(outcomes: dict[str, Outcome]) -> None:
    for number in NUMBERS:
        one = drawn(outcomes, number)
        told = f"{one.figure.get_suptitle()} {one.caption}"
        assert "loop" in told, number
        assert re.search(r"\bn = |\brun|samples|rounds", one.caption), number


def test_every_axis_has_a_label_and_a_log_axis_says_so(outcomes: dict[str, Outcome]) -> None:
    for number in NUMBERS:
        for axes in drawn(outcomes, number).figure.axes:
            if not axes.get_visible():
                continue
            across = axes.get_shared_x_axes().get_siblings(axes)
            beside = axes.get_shared_y_axes().get_siblings(axes)
            x_label = " ".join(sorted({one.get_xlabel() for one in across}))
            y_label = " ".join(sorted({one.get_ylabel() for one in beside}))
            is_by_name = any(re.search("[a-z]{4}", text.get_text()) for one in beside for text in one.get_yticklabels())
            assert x_label.strip() or axes.get_label() == "<colorbar>", number
            assert y_label.strip() or is_by_name, number
            assert axes.get_xscale() != "log" or "log scale" in x_label, number
            assert axes.get_yscale() != "log" or "log scale" in y_label, number


def test_rates_begin_at_zero_and_carry_their_unit(outcomes: dict[str, Outcome]) -> None:
    for number in ("F1", "F3"):
        axes = drawn(outcomes, number).figure.axes[0]
        assert axes.get_ylabel() == "orders/s"
        assert axes.get_ylim()[0] == 0
    assert drawn(outcomes, "F4").figure.axes[0].get_ylabel() == "latency, ms, log scale"
    assert drawn(outcomes, "F4").figure.axes[0].get_xlabel() == "offered load, % of capacity"


def test_a_saturated_point_is_hollow_and_a_void_cell_is_a_cross_without_a_point(outcomes: dict[str, Outcome]) -> None:
    one = drawn(outcomes, "F1")
    void = f"{RANDOM} K=64 N=64 B=1 20ms"
    assert void in marks(one, "void")
    assert void not in marks(one, "point") | marks(one, "hollow")
    assert marks(one, "hollow") == {
        "segment-locks K=1 N=64 B=1 none",
        "segment-locks K=4 N=64 B=1 none",
        "segment-locks K=16 N=64 B=1 none",
        "segment-locks K=64 N=64 B=1 none",
        "segment-locks K=16 N=64 B=1 1ms",
        "segment-locks K=64 N=64 B=1 1ms",
        "segment-locks K=64 N=64 B=1 5ms",
        "lock-free K=1 N=64 B=1 none",
        "lock-free K=1 N=64 B=1 1ms",
        "lock-free K=1 N=64 B=1 5ms",
        "global-lock K=1 N=64 B=1 none",
    }
    faces = {
        str(line.get_markerfacecolor())
        for axes in one.figure.axes
        for line in axes.get_lines()
        if (line.get_gid() or "").startswith("hollow:")
    }
    assert faces == {PAPER}


def test_the_ideal_and_the_model_stand_beside_the_points(outcomes: dict[str, Outcome]) -> None:
    labels = drawn(outcomes, "F1").figure.axes[0].get_legend_handles_labels()[1]
    assert {"ideal min(K, N)/hold", "model: any free lane"} <= set(labels)


def test_the_ideal_is_that_of_the_hold_which_the_caption_names_beside_the_s_of_the_models(
    results: tuple[ResultFile, Path], outcomes: dict[str, Outcome]
) -> None:
    one = drawn(outcomes, "F1")
    assert one.figure.axes[0].get_title(loc="left") == "hold 20 ms, 64 buyers"
    for axes in one.figure.axes[:4]:
        if not axes.get_title(loc="left").startswith("hold "):
            continue
        hold = float(axes.get_title(loc="left").split()[1])
        (ideal,) = (line for line in axes.get_lines() if line.get_label() == "ideal min(K, N)/hold")
        asked = 1_000 * np.minimum(np.asarray(ideal.get_xdata()), 64) / hold
        assert np.asarray(ideal.get_ydata()) == pytest.approx(asked)
    cells = Facts(results[0]).measured
    ours, drawn_lane = (calibrate(Cell(strategy=name, section="sleep", hold_ms=20), cells) for name in (OURS, RANDOM))
    assert isinstance(ours, Calibration)
    assert isinstance(drawn_lane, Calibration)
    assert f"hold = 20 ms (configured), S = {ours.service:.3g} ms (any free lane), " in one.caption
    assert f", S = {drawn_lane.service:.3g} ms (random lane)" in one.caption
    alone = calibrate(Cell(strategy=OURS, section="none"), cells)
    assert isinstance(alone, Calibration)
    assert f"no slow step, 64 buyers: hold = {alone.hold:.3g} ms (measured), S = " in one.caption


def test_the_figure_of_units_left_names_cells_of_several_skus_as_left_out(results: tuple[ResultFile, Path]) -> None:
    one = next(one for one in results[0].runs if one.series.left)
    cell = one.cell.model_copy(update={"skus": 4})
    unread = one.series.model_copy(update={"left": [], "left_at": []})
    several = one.model_copy(update={"run": 10_000, "cell": cell, "cell_id": cell.cell_id, "series": unread})
    why = "cells of several skus, whose units are not read during the sale"
    alone = segment_map(Facts(results[0].model_copy(update={"runs": (several,)})))
    assert isinstance(alone, NotDrawn)
    assert alone.why == f"no run with readings of units by segment; {why}"
    with house_style():
        beside = segment_map(Facts(results[0].model_copy(update={"runs": (one, several)})))
    assert isinstance(beside, Drawn)
    assert beside.caption.endswith(f" Not shown: {why}.")


def test_the_region_of_shed_arrivals_is_shaded(outcomes: dict[str, Outcome]) -> None:
    patches = [patch.get_gid() for patch in drawn(outcomes, "F4").figure.axes[0].patches]
    assert patches.count("shed") == 1


def test_where_no_lock_wins_is_hatched(outcomes: dict[str, Outcome]) -> None:
    axes = drawn(outcomes, "F11").figure.axes[0]
    ratios = [float(text.get_text()) for text in axes.texts if (text.get_gid() or "").startswith(("point:", "hollow:"))]
    hatched = [patch for patch in axes.patches if patch.get_hatch()]
    assert len(ratios) == 16
    assert len(hatched) == sum(ratio < 1 for ratio in ratios)


def test_a_figure_without_data_says_what_it_lacks(results: tuple[ResultFile, Path]) -> None:
    closed = [one for one in results[0].runs if one.cell.strategy == "global-lock" and one.cell.loop == "closed"]
    facts = Facts(results[0].model_copy(update={"runs": tuple(closed)}))
    assert latency_by_load(facts) == NotDrawn(
        "F4",
        "f04-latency-by-load",
        "Latency by offered load",
        "no open sweep over three offered loads with Poisson arrivals",
    )
    assert isinstance(crossover(facts), NotDrawn)


def test_every_figure_survives_a_session_of_a_single_void_run(results: tuple[ResultFile, Path]) -> None:
    cell = Cell(strategy="no-lock", section="sleep", hold_ms=20)
    one = run(cell, 0, 0, void=("oversold by 7 units",))
    facts = Facts(results[0].model_copy(update={"runs": (one,)}))
    with house_style():
        assert {"F1", "F15"} <= {one.number for one in (draw(facts) for draw in FIGURES) if isinstance(one, NotDrawn)}


def test_the_page_needs_nothing_from_outside(made: Made) -> None:
    assert not re.findall(r"""(?:src|href)\s*=\s*["'](?!#|data:image/png)[^"']*["']""", made.html)
    assert not re.findall(r"url\(\s*['\"]?(?!#)", made.html)
    assert "@import" not in made.html
    assert re.findall(r"<script[^>]*>", made.html) == ["<script>"]
    script = made.html.partition("<script>")[2].partition("</script>")[0]
    assert not re.findall(r"fetch|import|XMLHttp|http|eval|innerHTML", script)
    assert "<!DOCTYPE svg" not in made.html


def test_every_table_and_figure_scrolls_inside_its_frame(made: Made) -> None:
    framed = re.findall(r'<div class="wide"><(table|svg)', made.html)
    assert (framed.count("svg"), made.html.count("<svg")) == (3, 3)
    assert framed.count("table") == made.html.count("<table") > 8
    assert ".wide { overflow-x: auto; }" in made.html


def test_the_command_ends_with_the_sentence_that_the_page_begins_with(made: Made) -> None:
    assert made.report.sentences()[-1] == made.report.answer
    assert made.report.answer in made.html


def test_the_page_has_every_void_run_every_cell_and_every_practice(
    made: Made, results: tuple[ResultFile, Path]
) -> None:
    void = [one for one in results[0].runs if one.void]
    assert made.html.count("oversold by 7 units") == sum("oversold by 7 units" in one.void for one in void)
    section = made.html.partition('id="cells"')[2].partition("<h2")[0]
    assert section.count("<tr") - 1 == len({one.cell_id for one in results[0].runs})
    assert made.html.partition('id="practices"')[2].partition("<h2")[0].count("<tr") - 1 == 20
    assert "A quick session." in made.html


def test_the_same_results_give_the_same_bytes(made: Made) -> None:
    facts = Facts(read_results(made.folder / "results.jsonl"), made.folder)
    with house_style():
        found = [one for one in (draw(facts) for draw in FEW) if isinstance(one, Drawn)]
        again = {one.name: as_svg(one.figure, one.name) for one in found}
        pngs = {one.name: as_png(one.figure) for one in found}
    figures = made.folder / "figures"
    assert {file.name: file.read_text(encoding="utf-8") for file in figures.glob("*.svg")} == {
        f"{name}.svg": svg for name, svg in again.items()
    }
    assert {file.stem: file.read_bytes() for file in figures.glob("*.png")} == pngs
    refused = made.report.why_no_table
    html = page(facts, found, again, findings=check(facts.results, made.folder), why_no_table=refused)
    assert html == made.html


def test_no_table_is_written_while_the_lint_refuses_and_an_old_one_goes(made: Made) -> None:
    assert made.report.why_no_table is not None
    assert "R7" in made.report.why_no_table
    assert [name for name in ONLY_IF_PUBLISHED if (made.folder / name).exists()] == []
    assert "No table for a README" in made.html


def test_nothing_is_drawn_without_the_histories_that_were_there_before(
    results: tuple[ResultFile, Path], tmp_path: Path
) -> None:
    lines = as_line(results[0].session) + "".join(map(as_line, results[0].runs))
    (tmp_path / "results.jsonl").write_text(lines, encoding="utf-8")
    (tmp_path / "table.md").write_text("as it was", encoding="utf-8")
    (tmp_path / "SHA256SUMS").write_text("aa  figures/f01.png\nbb  histories/r1.gz\ncc  histories/r2.gz\n", "utf-8")
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    with pytest.raises(InvalidInput) as refused:
        draw_report(tmp_path, nothing)
    assert str(refused.value) == (
        f"{tmp_path}: 2 histories that SHA256SUMS names are not there, the first is histories/r1.gz; what is drawn "
        "from them would be lost, so nothing is drawn"
    )
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_a_table_is_written_once_the_lint_allows_it(
    results: tuple[ResultFile, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = tuple(one for one in results[0].runs if one.cell.strategy == "global-lock" and one.cell.loop == "closed")
    (tmp_path / "results.jsonl").write_text(as_line(results[0].session) + "".join(map(as_line, runs)), encoding="utf-8")
    monkeypatch.setattr("bench.report.drawing.check", lambda _, __: [RuleFinding("R1", "one loop", "holds", "it does")])
    monkeypatch.setattr("bench.report.drawing.FIGURES", FIGURES[-1:])
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "u-unfavourable.svg").touch()
    report = draw_report(tmp_path, nothing)
    assert report.why_no_table is None
    assert (tmp_path / "table.md").read_text(encoding="utf-8").startswith("| strategy | K | orders/s [95 %] |")
    assert (tmp_path / "verdicts.md").read_text(encoding="utf-8").splitlines()[2:5] == [
        "| H1 | 16 locks sell more than one | undecided | no machine can check it: read the figures of its sweep |",
        "",
        "No cell checks the model.",
    ]
    assert not (tmp_path / "figures" / "u-unfavourable.svg").exists()


def test_the_table_has_absolute_rates_intervals_and_guarantees_and_no_rate_for_what_is_void(
    results: tuple[ResultFile, Path],
) -> None:
    facts = Facts(*results)
    rows = {(row.strategy, row.segments): row for row in strategy_rows(facts)}
    assert rows["no-lock", 1].rate == "void"
    assert rows[RANDOM, 64].rate == "void"
    assert re.fullmatch(r"[\d,.]+ \[[\d,.]+, [\d,.]+\]", rows["segment-locks", 16].rate)
    assert rows["segment-locks", 16].guarantees == ("yes", "yes", "yes", "one a segment", "yes", "memory")
    assert rows["segment-locks", 16].sold_share == "100"
    assert table(facts).count("| void |") == 2


def test_what_a_database_sells_alone_is_not_said_to_cost_nothing() -> None:
    """Redis has nothing to do with it, so its counts are left out."""
    alone = Cell(strategy="pg-hot-row", section="commit")
    row = cell_row(Spot(alone, "A", (run(alone, 1, 1),)))
    assert (row.attempts, row.commands, row.server_us) == ("-", "-", "-")


def test_a_unit_that_was_not_sold_is_never_rounded_away() -> None:
    cell = Cell(strategy="segment-locks", segments=4, section="sleep", hold_ms=20)
    found = run(cell, 0, 0)
    checker = found.checker.model_copy(update={"stock": 1_000_000, "sold": 999_999})
    counts = found.counts.model_copy(update={"sold": 999_999, "sold_out": 10})
    assert sold_share([found.model_copy(update={"checker": checker, "counts": counts})]) == "not quite 100"


def test_results_without_a_run_are_refused_in_a_sentence(results: tuple[ResultFile, Path], tmp_path: Path) -> None:
    (tmp_path / "results.jsonl").write_text(as_line(results[0].session), encoding="utf-8")
    with pytest.raises(InvalidInput, match=r"results\.jsonl has no finished run, so there is nothing to draw"):
        redraw(tmp_path, nothing)
    assert [file.name for file in tmp_path.iterdir()] == ["results.jsonl"]


def test_the_command_line_starts_without_matplotlib() -> None:
    code = "import sys, bench.report; sys.exit(bool({'matplotlib', 'scipy', 'jinja2'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=200).returncode == 0
