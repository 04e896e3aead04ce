"""The figures as SVG: their marks have names, and their colours can be read on light and dark pages, and on paper."""

from __future__ import annotations

import re
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Final
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from matplotlib.container import ErrorbarContainer

from bench.engine.cell import Cell
from bench.readme_chart import PALETTES
from bench.report.colours import BLACK, DARK, GRID, LIGHT, PAPER
from bench.report.drawing import FIGURES
from bench.report.drawn import Drawn
from bench.report.facts import Facts
from bench.report.page import page
from bench.report.style import house_style
from bench.report.svg import MARKS, as_svg
from bench.report.tables import every_row
from bench.report.unfavourable import unfavourable_figure
from bench.source_map.picture import BANDS, BOXES
from tests.support.bench.report_session import ROUNDS, run, session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matplotlib.artist import Artist

pytestmark = [pytest.mark.timeout(240)]

SVG: Final = "{http://www.w3.org/2000/svg}"
RULE: Final = re.compile(r'\[style\*="(\w+): (#\w{6})"\],\[\1="\2"\]\{\1:(#\w{6})!important\}')
ON_SCREEN: Final = "@media screen and (prefers-color-scheme:dark){"
SCHEMES: Final = ("light", "dark")
TEXT_MIN: Final = 4.5
LINE_MIN: Final = 3.0
"""Contrasts of WCAG 2.2, 1.4.3 and 1.4.11."""
BESIDE_THE_INTERVALS: Final = {"F3": 7, "F4": 25, "F11": 20, "F14": 8}
"""Marks that have no bar for an interval: residuals, percentiles, fields, waits."""
NAMES: Final = {
    "F1": 28,
    "S": 20,
    "F2": 16,
    "F3": 14,
    "F4": 25,
    "F9": 20,
    "F10": 44,
    "F11": 20,
    "F12": 8,
    "F13": 8,
    "F14": 8,
    "F15": 12,
    "U": 3,
}


@dataclass(frozen=True)
class Made:
    facts: Facts
    figures: dict[str, Drawn]
    svgs: dict[str, str]
    """By number."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("session")
    facts = Facts(session(folder), folder)
    with house_style():
        outcomes = [draw(facts) for draw in FIGURES]
        figures = {one.number: one for one in outcomes if isinstance(one, Drawn)}
        return Made(facts, figures, {number: as_svg(one.figure, one.name) for number, one in figures.items()})


def parsed(svg: str) -> ET.Element:
    return ET.fromstring(svg)  # noqa: S314  # drawn here


def names(svg: str) -> list[str]:
    """Return the names of a figure's marks."""
    found = parsed(svg).iterfind(f".//{SVG}g[@class='mark']/{SVG}title")
    return [one.text or "" for one in found]


def ids(one: Drawn) -> list[str]:
    """Return the gids of all that was drawn."""
    artists: list[Artist] = one.figure.findobj()
    return [artist.get_gid() or "" for artist in artists]


def test_every_figure_can_be_laid_out_and_its_text_is_text(made: Made) -> None:
    assert list(made.svgs) == ["F1", "S", *(f"F{one}" for one in range(2, 17)), "U"]
    for number, svg in made.svgs.items():
        assert svg.count("<text") > 5, number
        assert f"{number}  " in svg, number


def test_every_drawn_point_bar_and_cross_has_one_name_in_its_figure(made: Made) -> None:
    for number, one in made.figures.items():
        parts = [part for axes in one.figure.axes for part in axes.containers]
        intervals = sum(isinstance(part, ErrorbarContainer) for part in parts)
        crosses = [line for axes in one.figure.axes for line in axes.get_lines() if line.get_marker() == "x"]
        voids = sum(np.size(line.get_xdata()) == 1 for line in crosses) if number != "F16" else 0
        assert len(names(made.svgs[number])) == intervals + voids + BESIDE_THE_INTERVALS.get(number, 0), number
    assert {number: len(found) for number, svg in made.svgs.items() if (found := names(svg))} == NAMES


def test_a_name_says_the_value_and_the_runs_that_the_table_of_the_page_has(made: Made) -> None:
    cells = list(zip(made.facts.spots, every_row(made.facts), strict=True))
    rates = {f"{spot.cell.cell_id}: {row.rate} orders/s, runs: {row.runs}" for spot, row in cells if not row.is_void}
    voids = {f"{spot.cell.cell_id}: void runs have no value, runs: {row.runs}" for spot, row in cells if row.is_void}
    for number in ("F1", "S", "U"):
        assert set(names(made.svgs[number])) <= rates | voids, number
        assert set(names(made.svgs[number])) & rates, number
    assert set(names(made.svgs["F1"])) & voids
    works = {f"{spot.cell.cell_id}: lock requests an order = {row.attempts}" for spot, row in cells}
    said = [one for one in names(made.svgs["F10"]) if "lock requests" in one]
    assert {re.split(r" \[|, runs", one)[0] for one in said} <= works
    tails = {f"{spot.cell.cell_id}: {row.p99} ms at p99, runs: {row.runs}" for spot, row in cells}
    shed = {f"{spot.cell.cell_id}: p99 is of an order that was shed, runs: {row.runs}" for spot, row in cells}
    assert {one for one in names(made.svgs["F4"]) if "p99 " in one or "p99," in one} <= tails | shed
    html = page(made.facts, [made.figures["F1"]], {"f01-throughput": made.svgs["F1"]}, findings=[], why_no_table=None)
    assert html.count("<title>") == 1 + len(names(made.svgs["F1"]))
    table = html.partition('id="cells"')[2].partition("<h2")[0]
    for one in set(names(made.svgs["F1"])) & rates:
        rate, runs = one.rpartition(": ")[0].rpartition(" orders/s")[0].rpartition(": ")[2], one.rpartition(": ")[2]
        assert re.search(rf'<td class="n">{runs}</td>\s*<td class="n">{re.escape(rate)}</td>', table), one


class Tags(HTMLParser):
    """Finds ids and links inside the page."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.targets: set[str] = set()

    def handle_starttag(self, _: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id":
                self.ids.append(str(value))
            elif name in {"href", "xlink:href"} and str(value).startswith("#"):
                self.targets.add(str(value).removeprefix("#"))
            self.targets |= set(re.findall(r"url\(#([^)]+)\)", str(value)))


def test_links_of_a_page_with_every_figure_lead_somewhere_and_no_id_is_there_twice(made: Made) -> None:
    svgs = {one.name: made.svgs[number] for number, one in made.figures.items()}
    tags = Tags()
    tags.feed(page(made.facts, list(made.figures.values()), svgs, findings=[], why_no_table=None))
    assert tags.targets - set(tags.ids) == set()
    assert len(tags.ids) == len(set(tags.ids))


def test_names_and_dark_colours_are_less_than_a_quarter_of_the_figures(made: Made) -> None:
    added = sum(len(one) + len('<title></title> class="mark"') for svg in made.svgs.values() for one in names(svg))
    added += sum(len(styled(svg)) for svg in made.svgs.values())
    assert added < 0.25 * sum(map(len, made.svgs.values()))


def styled(svg: str) -> str:
    """Return the style for dark pages."""
    return parsed(svg).findtext(f"{SVG}style") or ""


def test_only_a_screen_shows_dark_figures_so_paper_stays_white(made: Made) -> None:
    for number, svg in made.svgs.items():
        rules = styled(svg)
        assert rules.startswith(ON_SCREEN), number
        assert RULE.sub("", rules) == f"{ON_SCREEN}}}", number
        first = parsed(svg).find(f"{SVG}g/{SVG}g/{SVG}path")
        assert first is not None
        assert first.get("style") == f"fill: {PAPER}", number


@dataclass(frozen=True)
class Paint:
    """A colour of an element as it is shown."""

    tag: str
    colour: str
    """As it was drawn."""
    shown: str
    opacity: float


def paints(svg: str, scheme: str) -> Iterator[Paint]:
    """Yield the colours that a figure shows, by the style that is written in it."""
    exchanged = {(what, light): dark for what, light, dark in RULE.findall(styled(svg))} if scheme == "dark" else {}
    for element in parsed(svg).iter():
        style = dict(part.split(": ", 1) for part in element.get("style", "").split("; ") if ": " in part)
        default = {"fill": "#000000"} if element.tag == f"{SVG}text" else {}
        for what in ("fill", "stroke"):
            colour = {**default, **style}.get(what) or element.get(what) or ""
            if colour.startswith("#"):
                opacity = float(style.get(f"{what}-opacity", style.get("opacity", "1")))
                tag = element.tag.removeprefix(SVG)
                yield Paint(tag, colour, exchanged.get((what, colour), colour), opacity)


def luminance(colour: str) -> float:
    """Return the relative luminance of WCAG 2.2."""
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(share * part for share, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours, from 1 to 21."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def over(colour: str, opacity: float, below: str) -> str:
    """Return the colour that is seen if one lies over another."""
    pairs = [(int(colour[place : place + 2], 16), int(below[place : place + 2], 16)) for place in (1, 3, 5)]
    return "#" + "".join(f"{round(opacity * above + (1 - opacity) * under):02x}" for above, under in pairs)


def papers(scheme: str, *colours: str) -> dict[str, str]:
    """Return how colours are shown: those given, or else those that lines and text are drawn on."""
    return {colour: DARK[colour] if scheme == "dark" else colour for colour in colours or (PAPER, LIGHT, GRID)}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_text_and_lines_can_be_read_on_light_and_on_dark_pages(made: Made, scheme: str) -> None:
    behind, ink = papers(scheme), papers(scheme, BLACK)[BLACK]
    unreadable = set()
    for number, svg in made.svgs.items():
        for paint in paints(svg, scheme):
            if paint.colour in behind:
                assert paint.shown == behind[paint.colour], number
            elif paint.opacity < 1:
                assert number in {"F10", "F11", "F13"}, number
                assert contrast(ink, over(paint.shown, paint.opacity, behind[PAPER])) >= LINE_MIN, (number, paint)
            else:
                assert paint.colour in DARK, (number, paint)
                least = TEXT_MIN if paint.tag == "text" else LINE_MIN
                found = min(contrast(paint.shown, behind[PAPER]), contrast(paint.shown, behind[LIGHT]))
                unreadable |= {(number, paint.colour, round(found, 2))} if found < least else set()
    assert unreadable == set()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_each_ratio_in_f11_can_be_read_in_its_box_on_its_field(made: Made, scheme: str) -> None:
    paper, ink = papers(scheme, PAPER, BLACK).values()
    fields = [over(one.shown, one.opacity, paper) for one in paints(made.svgs["F11"], scheme) if one.colour not in DARK]
    assert len(fields) == BESIDE_THE_INTERVALS["F11"]
    assert min(contrast(ink, over(paper, 0.85, field)) for field in fields) >= TEXT_MIN


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_charts_of_the_pages_can_be_read_on_light_and_on_dark_pages(scheme: str) -> None:
    palette, paper = PALETTES[scheme], {"light": "#ffffff", "dark": "#0d1117"}[scheme]
    texts = [
        contrast(one, below) for one in (palette.text, palette.faint) for below in (paper, BOXES[scheme], BANDS[scheme])
    ]
    assert min(texts) >= TEXT_MIN
    assert min(contrast(one, paper) for one in (palette.bar, palette.best)) >= LINE_MIN


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


def test_a_group_without_a_name_is_no_mark(made: Made) -> None:
    kinds = {one.partition(":")[0] for figure in made.figures.values() for one in ids(figure) if one}
    assert kinds - set(MARKS) >= {"shed", "noise", "across", "outcome"}
    total = sum(one.partition(":")[0] in MARKS for figure in made.figures.values() for one in ids(figure))
    assert sum(svg.count('class="mark"') for svg in made.svgs.values()) == total
    assert not [number for number, svg in made.svgs.items() if re.search(r"<g[^>]* id=", svg)]
