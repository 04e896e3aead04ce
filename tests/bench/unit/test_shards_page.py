"""The page, the charts and the tables of the benchmark `shards` are drawn from its results file."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest

from bench.micro.shards.chart import alt, cells_table, chart, costs_table, curves_of, read_figures
from bench.micro.shards.measure import CROWDS, ERROR_MAX, MODELLED
from bench.readme_chart import PALETTES
from segmented.errors import InvalidInput
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path

RESULTS: Final = ROOT / "bench" / "micro" / "shards" / "results.json"
PAGE: Final = ROOT / "docs" / "explanation" / "units-between-shards.md"


@pytest.mark.parametrize("name", PALETTES)
def test_each_chart_of_the_shards_is_drawn_again_from_the_results_to_the_last_character(name: str) -> None:
    drawn = chart(read_figures(RESULTS), PALETTES[name])
    assert (ROOT / "docs" / "charts" / f"shards-{name}.svg").read_text("utf-8") == drawn


def test_the_page_has_both_tables_and_says_the_chart_in_a_sentence() -> None:
    figures, page = read_figures(RESULTS), PAGE.read_text("utf-8")
    assert costs_table(figures) in page
    assert cells_table(figures) in page
    assert f'alt="{alt(figures)}"' in page


def test_the_page_says_whether_the_model_kept_its_bound_and_under_which_load() -> None:
    figures, page = read_figures(RESULTS), " ".join(PAGE.read_text("utf-8").split())
    largest, others = (
        figures[name]["value"] for name in ("largest error of a held-out cell", "cores that others used meanwhile")
    )
    kept = "kept" if largest <= ERROR_MAX else "not kept"
    assert f"The largest error is {largest:.1%}, so the bound of 10 % is {kept}" in page
    assert f"other programs used {others:.2f} of its 2 cores" in page


def test_the_page_quotes_the_ends_of_the_curve_and_its_costs() -> None:
    written, page = json.loads(RESULTS.read_text("utf-8")), " ".join(PAGE.read_text("utf-8").split())
    for workers, points in curves_of(read_figures(RESULTS)).items():
        rates = dict(points)
        assert f"| {workers:,} | {' | '.join(f'{rates[masters]:,.0f}' for masters in (1, 4, 16, 64))} |" in page
    assert any("an assumed round trip of 0.5 ms" in remark for remark in written["remarks"])


def test_there_is_a_curve_for_each_crowd_and_no_end_is_lower_than_the_beginning() -> None:
    curves = curves_of(read_figures(RESULTS))
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
        read_figures(file)
    assert f"{file} {sentence}" in str(refused.value)
