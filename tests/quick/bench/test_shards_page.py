"""The page, the charts and the tables of the benchmark `shards` are drawn from its results file."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pytest

from bench.micro.shards.chart import chart, curves_of, read_results
from bench.micro.shards.measure import CROWDS, MODELLED, work_of
from bench.micro.shards.page import HEADING, section, write_section
from bench.readme_chart import PALETTES
from segmented.errors import InvalidInput
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path

RESULTS: Final = ROOT / "bench" / "micro" / "shards" / "results.json"
PAGE: Final = ROOT / "docs" / "explanation" / "units-between-shards.md"


@pytest.mark.parametrize("name", PALETTES)
def test_each_chart_of_the_shards_is_drawn_again_from_the_results_to_the_last_character(name: str) -> None:
    drawn = chart(read_results(RESULTS).figures, PALETTES[name])
    assert (ROOT / "docs" / "charts" / f"shards-{name}.svg").read_text("utf-8") == drawn


def test_the_page_is_what_the_kept_results_render_to() -> None:
    assert PAGE.read_text("utf-8").endswith("\n\n" + section(read_results(RESULTS)))


def test_only_the_section_of_the_page_is_written(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# Units\n\nKept.\n\n{HEADING}\nAn older result.\n", encoding="utf-8")
    write_section(page, read_results(RESULTS))
    assert page.read_text("utf-8") == f"# Units\n\nKept.\n\n{section(read_results(RESULTS))}"


@pytest.mark.parametrize(
    ("largest", "others", "rounds", "sentences"),
    [
        (0.2649, 1.824, 1, ("26.5 %, so the bound of 10 % is not kept", "was busy: other programs used 1.82 of its 2")),
        (0.0712, 0.021, 6, ("7.1 %, so the bound of 10 % is kept", "was quiet: other programs used 0.02 of its 2")),
    ],
)
def test_the_section_says_whether_the_model_kept_its_bound_under_which_load_and_in_how_many_rounds(
    largest: float, others: float, rounds: int, sentences: tuple[str, str]
) -> None:
    found = read_results(RESULTS)
    errors = {name: figure | {"value": largest} for name, figure in found.figures.items() if "largest error" in name}
    figures = found.figures | errors
    said = " ".join(section(replace(found, figures=figures, others=others, rounds=rounds)).split())
    assert all(sentence in said for sentence in sentences)
    assert ("medians of 6 rounds" in said, "of one round" in said) == (rounds == 6, rounds == 1)


def test_the_section_has_the_ends_of_the_curve_and_the_costs_that_the_curve_is_from() -> None:
    found = read_results(RESULTS)
    written, said = json.loads(RESULTS.read_text("utf-8")), " ".join(section(found).split())
    for workers, points in curves_of(found.figures).items():
        rates = dict(points)
        assert f"| {workers:,} | {' | '.join(f'{rates[masters]:,.0f}' for masters in (1, 4, 16, 64))} |" in said
    work = work_of(found.figures)
    client, one, each = (round(part * 1e6) for part in (work.client, work.one_master, work.each_further))
    modelled = (
        f"Modelled with {client} us of client CPU and {one} us of server CPU an order, {each} us for each further"
    )
    assert any(remark.startswith(modelled) for remark in written["remarks"])
    assert f"{client} us of client CPU and {one} us of server CPU an order, {each} us more for each further" in said


def test_there_is_a_curve_for_each_crowd_and_no_end_is_lower_than_the_beginning() -> None:
    curves = curves_of(read_results(RESULTS).figures)
    assert {workers: [masters for masters, _ in points] for workers, points in curves.items()} == {
        workers: list(MODELLED) for workers in CROWDS
    }
    assert all(points[0][1] < points[-1][1] for points in curves.values())


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ({"benchmark": "stock"}, "has results of 'stock'; give a file of `segmented bench shards --json`"),
        ({}, "cannot be read as results of `segmented bench shards --json`: 'benchmark'"),
        ([], "cannot be read as results of `segmented bench shards --json`: list indices must be integers"),
    ],
)
def test_other_files_are_refused_in_a_sentence(tmp_path: Path, content: Any, sentence: str) -> None:  # noqa: ANN401  # whatever a file has
    file = tmp_path / "results.json"
    file.write_text(json.dumps(content))
    with pytest.raises(InvalidInput) as refused:
        read_results(file)
    assert f"{file} {sentence}" in str(refused.value)
