"""The page, the charts and the tables of the benchmark `shards` are drawn from its results file."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pytest

from bench.micro.shards.chart import chart, read_results
from bench.micro.shards.page import HEADING, section, write_section
from bench.readme_chart import PALETTES
from segmented.errors import InvalidInput
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path

RESULTS: Final = ROOT / "bench" / "micro" / "shards" / "results.json"
PAGE: Final = ROOT / "docs" / "explanation" / "units-between-shards.md"


@pytest.mark.parametrize("name", PALETTES)
def test_each_chart_of_the_shards_is_drawn_again_exactly_from_the_results(name: str) -> None:
    drawn = chart(read_results(RESULTS).figures, PALETTES[name])
    assert (ROOT / "docs" / "charts" / f"shards-{name}.svg").read_text("utf-8") == drawn


def test_the_page_is_what_the_kept_results_render_to() -> None:
    assert PAGE.read_text("utf-8").endswith("\n\n" + section(read_results(RESULTS)))


def test_only_the_section_of_the_page_is_written(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# Units\n\nKept.\n\n{HEADING}\nAn older result.\n", encoding="utf-8")
    write_section(page, read_results(RESULTS))
    assert page.read_text("utf-8") == f"# Units\n\nKept.\n\n{section(read_results(RESULTS))}"


def test_the_section_says_whether_and_in_how_many_rounds_the_model_kept_its_bound() -> None:
    """It also names the load."""
    kept = "7.1 %, so the bound of 10 % is kept", "was quiet: other programs used 0.02 of its 2", "medians of 6 rounds"
    broken = "26.5 %, so the bound of 10 % is not kept", "was busy: other programs used 1.82 of its 2", "of one round"
    found = read_results(RESULTS)
    for largest, others, rounds, sentences in ((0.2649, 1.824, 1, broken), (0.0712, 0.021, 6, kept)):
        errors = {name: one | {"value": largest} for name, one in found.figures.items() if "largest error" in name}
        changed = replace(found, figures=found.figures | errors, others=others, rounds=rounds)
        said = " ".join(section(changed).split())
        assert [sentence in said for sentence in sentences] == [True] * 3


def test_other_files_are_refused_in_a_sentence(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    for content, sentence in (
        ({"benchmark": "stock"}, "has results of 'stock'; give a file of `segmented bench shards --json`"),
        ([], "cannot be read as results of `segmented bench shards --json`: list indices must be integers"),
    ):
        file.write_text(json.dumps(content))
        with pytest.raises(InvalidInput) as refused:
            read_results(file)
        assert f"{file} {sentence}" in str(refused.value)
