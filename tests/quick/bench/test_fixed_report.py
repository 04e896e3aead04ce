"""The report folder of a benchmark with fixed options: what is in it, and which places are refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import pytest

from bench.figures import Figure, FigureResults
from bench.fixed_report import check_folder, write_report
from segmented.errors import InvalidInput
from tests.support.command_line import ran

if TYPE_CHECKING:
    from pathlib import Path

FIGURES: Final = (
    Figure("a cycle <b> | ours / theirs", 0.75, "", low=0.7, high=0.8, at_most=0.85),
    Figure("round trips a cycle", 3, "", at_most=2, is_promise=True),
)
CONDITIONS: Final = {"versions": {"python": "3.11.7"}, "cores": 2, "cpu_model": "a processor", "commit": None}
FOUND: Final = FigureResults("locks", FIGURES, CONDITIONS, ("Everything ran.",))


def test_the_folder_has_the_results_a_page_and_a_table(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "report"
    check_folder(folder)
    write_report(FOUND, folder, summary="locks beside others", left_out="the 10,000 leases")
    assert sorted(one.name for one in folder.iterdir()) == ["report.html", "results.json", "table.md"]
    assert json.loads((folder / "results.json").read_text(encoding="utf-8")) == json.loads(json.dumps(FOUND.as_json()))
    assert (folder / "table.md").read_text(encoding="utf-8") == (
        "| figure | value | 95 % interval | bound | kept |\n"
        "| --- | --: | --: | --: | --: |\n"
        "| a cycle <b> \\| ours / theirs | 0.75 | 0.7 to 0.8 | goal <= 0.85 | yes |\n"
        "| round trips a cycle | 3 |  | <= 2 | no |\n"
    )
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "a cycle &lt;b&gt; | ours / theirs" in page
    assert "<strong>A promise was broken.</strong>" in page
    assert "Left out: the 10,000 leases." in page
    assert "<td>versions.python</td><td>3.11.7</td>" in page
    assert "<li>Everything ran.</li>" in page
    assert "http" not in page


def test_a_used_folder_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("notes", encoding="utf-8")
    refused = ran("bench", "locks", "--quick", "--report", str(tmp_path), url=None)
    assert refused.returncode == 2
    why = "is not an empty folder: name a new one"
    assert refused.stderr == f"segmented: --report {tmp_path} {why}\n"
    assert [one.name for one in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize("place", ["mine", "mine/below"])
def test_a_file_is_no_place_for_a_report(place: str, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("notes", encoding="utf-8")
    with pytest.raises(
        InvalidInput, match=r"^--report \S+ (is not an empty folder|cannot be made: \S+ is not a folder)"
    ):
        check_folder(tmp_path / place)
    assert (tmp_path / "mine").read_text(encoding="utf-8") == "notes"
