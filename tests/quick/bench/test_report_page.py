"""The page of a report, and the lint that refuses it."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from io import StringIO
from itertools import islice
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from rich.console import Console

from bench.analysis.model_error import Calibration, calibrate
from bench.engine.cell import Cell
from bench.engine.record import ResultFile, Run, as_line, read_results
from bench.lint import CHECKS, Finding, Subject, lint_file, may_publish, verdict
from bench.report.crossover import crossover
from bench.report.drawing import Report, redraw
from bench.report.facts import OURS, Drawn, Facts, Outcome
from bench.report.load import latency_by_load, throughput
from bench.report.strategies import unfavourable_figure
from bench.report.style import BLACK, DARK, GRID, LIGHT, PAPER, as_svg, house_style
from bench.report.tables import every_row, strategy_rows
from segmented.errors import InvalidInput
from tests.support.bench.report_session import RANDOM, session
from tests.support.paths import ROOT

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


def test_the_page_needs_nothing_from_outside(made: Made) -> None:
    assert not re.findall(r"""(?:src|href)\s*=\s*["'](?!#|data:image/png)[^"']*["']""", made.html)
    assert not re.findall(r"url\(\s*['\"]?(?!#)", made.html)
    assert "@import" not in made.html
    assert re.findall(r"<script[^>]*>", made.html) == ["<script>"]
    script = made.html.partition("<script>")[2].partition("</script>")[0]
    assert not re.findall(r"fetch|import|XMLHttp|http|eval|innerHTML", script)
    assert "<!DOCTYPE svg" not in made.html


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


PUBLISHED: Final = ROOT / "docs" / "results" / "2026-11-28"


@pytest.fixture(scope="module")
def published() -> ResultFile:
    return read_results(PUBLISHED / "results.jsonl")


def part(run: Run, name: str, **values: Any) -> Run:  # noqa: ANN401  # any field of any part
    """Return a run with some fields of a part changed."""
    return run.model_copy(update={name: getattr(run, name).model_copy(update=values)})


def changed(run: Run, **values: Any) -> Run:  # noqa: ANN401  # any field of a run
    return run.model_copy(update=values)


def honest(run: Run) -> Run:
    """Return a run that refused wrongly as if it had not."""
    assert run.fairness is not None
    clean = run.checker.model_copy(update={"refused_wrongly": 0, "stranded": 0})
    rate = round(sum(run.fairness.by_buyer) / run.window_s, 3)
    return run.model_copy(update={"checker": clean, "void": (), "orders_per_s": rate})


SOLD: Final = "the rate is not that of the orders sold in the window"
SABOTAGES: Final[tuple[tuple[str, str, Callable[[Run], Run], str], ...]] = (
    ("records", "closed", lambda run: changed(run, orders_per_s=2 * (run.orders_per_s or 0)), SOLD),
    ("records", "closed", lambda run: changed(run, window_s=run.window_s - 1), "the window of the series is not the"),
    ("records", "closed", lambda run: part(run, "counts", sold=run.counts.sold + 1), "sold + sold out + failed, or"),
    ("records", "closed", lambda run: part(run, "fairness", jain=0.5), "Jain's index does not follow from the buyers'"),
    (
        "records",
        "open",
        lambda run: part(run, "times", response=None),
        "response times and lateness are those of an open",
    ),
    (
        "records",
        "closed",
        lambda run: part(run, "times", service=run.times.service.model_copy(update={"p99": 1.0})),
        "the histogram of service gives another p99 than is stated",
    ),
    (
        "records",
        "closed",
        lambda run: part(run, "times", service=run.times.service.model_copy(update={"p9999": 3.0})),
        "the histogram of service gives another p9999 than is stated",
    ),
    ("books", "closed", lambda run: part(run, "checker", oversold=1), "the reasons for which the run is void do not"),
    ("books", "closed", lambda run: changed(run, void=("a whim",)), "a void run has a throughput, or another has none"),
    ("books", "closed", lambda run: part(run, "checker", sold=1), "the units sold are not those of the sold orders"),
    ("histories", "closed", lambda run: changed(run, history_sha256="0" * 64), "the history is not the one that was"),
    ("histories", "refused", honest, "the history gives another number of refusals while units were free"),
    ("conditions", "closed", lambda run: changed(run, saturated=("redis",)), "what is marked as saturated does not"),
    ("conditions", "closed", lambda run: changed(run, server={"version": "1"}), "version of the server is another"),
    ("conditions", "closed", lambda run: changed(run, guarantees={}), "the guarantees are not those of the strategy"),
    ("conditions", "closed", lambda run: part(run, "work", commands=0), "CPU time, or what an order cost, is not"),
)


@pytest.mark.parametrize(("check", "of", "change", "sentence"), SABOTAGES)
def test_a_changed_run_is_named_with_what_does_not_follow(
    published: ResultFile, check: str, of: str, change: Callable[[Run], Run], sentence: str
) -> None:
    first = [one for one in published.runs if one.round == 1 and one.cell.segments > 1]
    kinds = {
        "closed": (one for one in first if one.cell.loop == "closed" and one.orders_per_s and not one.saturated),
        "open": (one for one in first if one.cell.loop == "open"),
        "refused": (one for one in first if one.checker.refused_wrongly),
    }
    run = next(kinds[of])
    whole, broken = (
        verdict(check, Subject(published.model_copy(update={"runs": (one,)}), PUBLISHED)) for one in (run, change(run))
    )
    assert whole.holds
    assert not broken.holds
    assert broken.evidence.startswith(sentence)
    assert broken.evidence.endswith(f": run {run.run} ({run.cell_id})")


def test_a_run_of_the_published_session_that_is_not_the_planned_one_is_named(published: ResultFile) -> None:
    first, *others = published.runs

    def said(*runs: Run) -> str:
        return verdict("plan", Subject(published.model_copy(update={"runs": runs}), PUBLISHED)).evidence

    assert said(*published.runs) == "990 runs are those of the plan; its commit is older than they are"
    assert said(changed(first, seed=1), *others) == (
        f"another cell, round, arm, seed, sweep, load or warm-up than planned: run 1 ({first.cell_id})"
    )
    assert said(part(first, "checker", stock=1), *others) == (
        f"stock or arrivals do not follow from seed, calibration and earlier runs: run 1 ({first.cell_id})"
    )
    assert said(*others) == "the last line does not say that 990 runs were planned and 989 done"


def test_fewer_than_ten_runs_or_no_second_arm_leave_the_noise_unknown(published: ResultFile) -> None:
    def said(runs: tuple[Run, ...]) -> str:
        return verdict("floor", Subject(published.model_copy(update={"runs": runs}), PUBLISHED)).evidence

    assert said(tuple(run for run in published.runs if run.round > 1)).startswith("fewer than 10 runs of ")
    alone = tuple(run for run in published.runs if run.arm == "A")
    assert said(alone) == "no cell was measured twice a round, as A and as B"


def test_the_command_prints_a_line_a_check_and_ends_with_1_when_one_is_broken(
    published: ResultFile, tmp_path: Path
) -> None:
    """The file has few runs, and is in a folder without plan and histories."""
    file, said = tmp_path / "results.jsonl", StringIO()
    with (PUBLISHED / "results.jsonl").open("rb") as whole:
        file.write_bytes(b"".join(islice(whole, 21)))
    assert lint_file(tmp_path, Console(file=said, width=300)) == 1
    lines = said.getvalue().splitlines()
    assert [line.partition(",")[0] for line in lines[:-1]] == list(CHECKS)
    assert [line.partition(",")[0] for line in lines if ": broken: " in line] == [
        *("plan", "histories", "books", "floor", "conditions")
    ]
    assert lines[-1] == "1 of 6 checks hold: a table of these results may not be published."
    assert not may_publish([verdict("plan", Subject(published.model_copy(update={"runs": ()}), tmp_path))])
    file.write_text('{"schema": "another/9"}\n')
    with pytest.raises(
        InvalidInput, match=r"results\.jsonl, line 1 is of schema 'another/9', and this reads 'segmented-"
    ):
        lint_file(file, Console(file=StringIO()))


def test_rates_begin_at_zero_and_carry_their_unit(outcomes: dict[str, Outcome]) -> None:
    rates, latencies = (drawn(outcomes, number).figure.axes[0] for number in ("F1", "F4"))
    assert (rates.get_ylabel(), rates.get_ylim()[0]) == ("orders/s", 0)
    assert (latencies.get_xlabel(), latencies.get_ylabel()) == ("offered load, % of capacity", "latency, ms, log scale")


def test_every_table_and_figure_scrolls_inside_its_frame(made: Made) -> None:
    framed = re.findall(r'<div class="wide"><(table|svg)', made.html)
    assert (framed.count("svg"), made.html.count("<svg")) == (1, 1)
    assert framed.count("table") == made.html.count("<table") > 8
    assert ".wide { overflow-x: auto; }" in made.html


def test_the_first_table_has_the_fastest_strategy_first_and_controls_last(published: ResultFile) -> None:
    rows = strategy_rows(Facts(published))
    rates = [0.0 if row.is_void else float(row.rate.split()[0].replace(",", "")) for row in rows if not row.is_control]
    assert rates == sorted(rates, reverse=True)
    assert [row.is_control for row in rows] == sorted(row.is_control for row in rows)


def test_every_section_can_be_folded_and_is_open_without_a_script(made: Made) -> None:
    sections = re.findall(r'<details open class="section" id="(\w+)">', made.html)
    assert sections == re.findall(r'<li><a href="#(\w+)">', made.html.partition("</nav>")[0])
    assert made.html.count("<h2") == len(sections) == 9
