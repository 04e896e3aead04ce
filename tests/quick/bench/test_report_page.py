"""The report of a made-up session: what is drawn, what the axes say, what is refused, and that it is the same twice."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from bench.analysis.calibration import Calibration, calibrate
from bench.engine.cell import Cell
from bench.engine.record import ResultFile, as_line
from bench.lint import Finding
from bench.report.drawing import redraw
from bench.report.facts import OURS, Drawn, Facts
from bench.report.figures.crossover import crossover
from bench.report.figures.load import latency_by_load
from bench.report.figures.segments import throughput
from bench.report.markdown import table
from bench.report.style import BLACK, DARK, GRID, LIGHT, PAPER, as_svg, house_style
from bench.report.tables import every_row, sold_share, strategy_rows
from bench.report.unfavourable import unfavourable_figure
from tests.support.bench.report_session import RANDOM, ROUNDS, run, session

if TYPE_CHECKING:
    from pathlib import Path

    from bench.report.drawing import Report
    from bench.report.facts import Outcome

DRAWN: Final = {"F1": throughput, "F4": latency_by_load, "F11": crossover}
"""The others are drawn in tests/real/bench."""
FEW: Final = (unfavourable_figure,)
ONLY_IF_PUBLISHED: Final = ("table.md", "verdicts.md")
SVG: Final = "{http://www.w3.org/2000/svg}"
RULE: Final = re.compile(r'\[style\*="(\w+): (#\w{6})"\],\[\1="\2"\]\{\1:(#\w{6})!important\}')
ON_SCREEN: Final = "@media screen and (prefers-color-scheme:dark){"


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
    facts = Facts(results[0])
    with house_style():
        return {number: draw(facts) for number, draw in DRAWN.items()}


@pytest.fixture(scope="module")
def svgs(outcomes: dict[str, Outcome]) -> dict[str, str]:
    with house_style():
        return {one.number: as_svg(one.figure, one.name) for one in outcomes.values() if isinstance(one, Drawn)}


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


def test_every_axis_has_a_label_and_a_log_axis_says_so(outcomes: dict[str, Outcome]) -> None:
    for number in DRAWN:
        one = drawn(outcomes, number)
        assert "loop" in f"{one.figure.get_suptitle()} {one.caption}"
        for axes in one.figure.axes:
            if axes.get_visible() and axes.get_label() != "<colorbar>":
                labels = [
                    " ".join(found.get_xlabel() for found in axes.get_shared_x_axes().get_siblings(axes)),
                    " ".join(found.get_ylabel() for found in axes.get_shared_y_axes().get_siblings(axes)),
                ]
                scales = [axes.get_xscale(), axes.get_yscale()]
                assert all(label.strip() for label in labels), number
                assert [("log scale" in label) for label in labels] == [scale == "log" for scale in scales], number


def test_rates_begin_at_zero_and_carry_their_unit(outcomes: dict[str, Outcome]) -> None:
    rates, latencies = (drawn(outcomes, number).figure.axes[0] for number in ("F1", "F4"))
    assert (rates.get_ylabel(), rates.get_ylim()[0]) == ("orders/s", 0)
    assert (latencies.get_xlabel(), latencies.get_ylabel()) == ("offered load, % of capacity", "latency, ms, log scale")


def test_a_saturated_point_is_hollow_and_a_void_cell_is_a_cross_without_a_point(outcomes: dict[str, Outcome]) -> None:
    one = drawn(outcomes, "F1")
    void = f"{RANDOM} K=64 N=64 B=1 20ms"
    assert void in marks(one, "void")
    assert void not in marks(one, "point") | marks(one, "hollow")
    assert len(marks(one, "hollow")) == 11
    assert {"segment-locks K=64 N=64 B=1 5ms", "lock-free K=1 N=64 B=1 5ms"} <= marks(one, "hollow")


def test_the_ideal_is_that_of_the_hold_in_the_caption_beside_the_s_of_the_models(
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


def test_shed_arrivals_are_shaded_and_where_no_lock_wins_is_hatched(outcomes: dict[str, Outcome]) -> None:
    shed = [patch.get_gid() for patch in drawn(outcomes, "F4").figure.axes[0].patches]
    assert shed.count("shed") == 1
    axes = drawn(outcomes, "F11").figure.axes[0]
    ratios = [float(text.get_text()) for text in axes.texts if (text.get_gid() or "").startswith(("point:", "hollow:"))]
    assert len(ratios) == 16
    assert len([patch for patch in axes.patches if patch.get_hatch()]) == sum(ratio < 1 for ratio in ratios)


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
    assert (framed.count("svg"), made.html.count("<svg")) == (1, 1)
    assert framed.count("table") == made.html.count("<table") > 8
    assert ".wide { overflow-x: auto; }" in made.html


def test_the_page_has_every_void_run_and_every_cell(made: Made, results: tuple[ResultFile, Path]) -> None:
    void = [one for one in results[0].runs if one.void]
    assert made.html.count("oversold by 7 units") == sum("oversold by 7 units" in one.void for one in void)
    section = made.html.partition('id="cells"')[2].partition("<h2")[0]
    assert section.count("<tr") - 1 == len({one.cell_id for one in results[0].runs})
    assert "A quick session." in made.html


def test_no_table_is_written_while_the_lint_refuses_and_an_old_one_goes(made: Made) -> None:
    assert made.report.why_no_table is not None
    assert "plan (" in made.report.why_no_table
    assert [name for name in ONLY_IF_PUBLISHED if (made.folder / name).exists()] == []
    assert "No table for a README" in made.html


def test_a_table_is_written_once_the_lint_allows_it(
    results: tuple[ResultFile, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = tuple(one for one in results[0].runs if one.cell.strategy == "global-lock" and one.cell.loop == "closed")
    (tmp_path / "results.jsonl").write_text(as_line(results[0].session) + "".join(map(as_line, runs)), encoding="utf-8")
    monkeypatch.setattr(
        "bench.report.drawing.check", lambda _, __: [Finding("plan", "one", holds=True, evidence="it does")]
    )
    monkeypatch.setattr("bench.report.drawing.FIGURES", (unfavourable_figure,))
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "u-unfavourable.svg").touch()
    report = redraw(tmp_path, nothing)
    assert report.why_no_table is None
    assert (tmp_path / "table.md").read_text(encoding="utf-8").startswith("| strategy | K | orders/s [95 %] |")
    assert (tmp_path / "verdicts.md").read_text(encoding="utf-8").splitlines()[2:5] == [
        "| H1 | 16 locks sell more than one | undecided | no machine can check it: read the figures of its sweep |",
        "",
        "No cell checks the model.",
    ]
    assert not (tmp_path / "figures" / "u-unfavourable.svg").exists()


def test_the_table_has_rates_intervals_and_guarantees_and_no_rate_for_a_void_run(
    results: tuple[ResultFile, Path],
) -> None:
    facts = Facts(results[0])
    rows = {(row.strategy, row.segments): row for row in strategy_rows(facts)}
    assert rows["no-lock", 1].rate == "void"
    assert rows[RANDOM, 64].rate == "void"
    assert re.fullmatch(r"[\d,.]+ \[[\d,.]+, [\d,.]+\]", rows["segment-locks", 16].rate)
    assert rows["segment-locks", 16].guarantees == ("yes", "yes", "yes", "one a segment", "yes", "memory")
    assert rows["segment-locks", 16].sold_share == "100"
    assert table(facts).count("| void |") == 2


def test_a_unit_that_was_not_sold_is_never_rounded_away() -> None:
    cell = Cell(strategy="segment-locks", segments=4, section="sleep", hold_ms=20)
    found = run(cell, 0, 0)
    checker = found.checker.model_copy(update={"stock": 1_000_000, "sold": 999_999})
    counts = found.counts.model_copy(update={"sold": 999_999, "sold_out": 10})
    assert sold_share([found.model_copy(update={"checker": checker, "counts": counts})]) == "not quite 100"


def parsed(svg: str) -> ET.Element:
    return ET.fromstring(svg)  # noqa: S314  # drawn here


def names(svg: str) -> list[str]:
    """Return the names of a figure's marks."""
    found = parsed(svg).iterfind(f".//{SVG}g[@class='mark']/{SVG}title")
    return [one.text or "" for one in found]


def styled(svg: str) -> str:
    """Return the style for dark pages."""
    return parsed(svg).findtext(f"{SVG}style") or ""


def test_a_name_says_the_value_and_the_runs_that_the_table_of_the_page_has(
    results: tuple[ResultFile, Path], svgs: dict[str, str]
) -> None:
    facts = Facts(results[0])
    cells = list(zip(facts.spots, every_row(facts), strict=True))
    rates = {f"{spot.cell.cell_id}: {row.rate} orders/s, runs: {row.runs}" for spot, row in cells if not row.is_void}
    voids = {f"{spot.cell.cell_id}: void runs have no value, runs: {row.runs}" for spot, row in cells if row.is_void}
    assert set(names(svgs["F1"])) <= rates | voids
    assert (len(names(svgs["F1"])), len(set(names(svgs["F1"])) & voids)) == (28, 1)
    tails = {f"{spot.cell.cell_id}: {row.p99} ms at p99, runs: {row.runs}" for spot, row in cells}
    shed = {f"{spot.cell.cell_id}: p99 is of an order that was shed, runs: {row.runs}" for spot, row in cells}
    assert {one for one in names(svgs["F4"]) if "p99 " in one or "p99," in one} <= tails | shed


def test_links_of_a_page_lead_somewhere_and_no_id_is_there_twice(made: Made) -> None:
    ids = re.findall(r'\sid="([^"]*)"', made.html)
    targets = {one for pair in re.findall(r'href="#([^"]*)"|url\(#([^)]+)\)', made.html) for one in pair if one}
    assert targets - set(ids) == set()
    assert len(ids) == len(set(ids))


def test_only_a_screen_shows_dark_figures_so_paper_stays_white(svgs: dict[str, str]) -> None:
    for number, svg in svgs.items():
        rules = styled(svg)
        assert rules.startswith(ON_SCREEN), number
        assert RULE.sub("", rules) == f"{ON_SCREEN}}}", number
        first = parsed(svg).find(f"{SVG}g/{SVG}g/{SVG}path")
        assert first is not None
        assert first.get("style") == f"fill: {PAPER}", number


def luminance(colour: str) -> float:
    """Return the relative luminance of WCAG 2.2."""
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(share * part for share, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours, from 1 to 21."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_text_and_lines_can_be_read_on_light_and_on_dark_pages(svgs: dict[str, str]) -> None:
    """The contrasts of WCAG 2.2, 1.4.3 and 1.4.11: 4.5 for text, 3 for lines."""
    behind = {PAPER, LIGHT, GRID}
    lines = {colour: dark for colour, dark in DARK.items() if colour not in behind}
    for papers, shown in ((PAPER, LIGHT), lines.keys()), ((DARK[PAPER], DARK[LIGHT]), lines.values()):
        assert min(contrast(colour, paper) for paper in papers for colour in shown) >= 3
    assert min(contrast(BLACK, PAPER), contrast(DARK[BLACK], DARK[PAPER])) >= 4.5
    exchanged = {(light, dark) for svg in svgs.values() for _, light, dark in RULE.findall(styled(svg))}
    assert exchanged <= set(DARK.items())
    assert len(exchanged) >= 8


@pytest.mark.filterwarnings("ignore:Glyph")
def test_markup_and_control_characters_of_a_strategy_stay_text_in_a_figure() -> None:
    foreign = '</title><script>alert("1")</script>\x1b]0;\ufffe'
    cell = Cell(strategy=foreign, section="sleep", hold_ms=20.0, stock=1, case="one-unit")
    runs = tuple(run(cell, number, number) for number in range(ROUNDS))
    found = unfavourable_figure(Facts(session().model_copy(update={"runs": runs})))
    assert isinstance(found, Drawn)
    with house_style():
        svg = as_svg(found.figure, found.name)
    assert "<script" not in svg
    assert "\x1b" not in svg
    assert names(svg)[0].startswith('</title><script>alert("1")</script>\\x1b]0;\N{REPLACEMENT CHARACTER} K=1 N=64')
