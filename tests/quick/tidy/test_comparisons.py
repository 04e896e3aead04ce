"""The pages of comparisons have the kept results."""

import json
from typing import Any, Final

from bench.micro.locks.turns import SUBJECTS, table
from tests.conformance.beat import comparison as beat
from tests.conformance.beat.page import render as render_beats
from tests.conformance.dedup.page import render
from tests.conformance.dedup.registry import CONTENDERS, ROWS
from tests.support.paths import ROOT

PAGE: Final = ROOT / "docs" / "reference" / "celery-dedup-compared.md"
RESULTS: Final[dict[str, Any]] = json.loads(
    (ROOT / "tests" / "conformance" / "dedup" / "results.json").read_text(encoding="utf-8")
)


def test_the_page_is_what_the_kept_results_render_to() -> None:
    assert PAGE.read_text(encoding="utf-8") == render(RESULTS)


def test_the_page_of_schedulers_is_what_its_kept_results_render_to() -> None:
    kept = json.loads((beat.HERE / "results.json").read_text(encoding="utf-8"))
    assert (PAGE.parent / "celery-beat-compared.md").read_text(encoding="utf-8") == render_beats(kept)
    assert [row["id"] for row in kept["rows"]] == list(beat.CASES)


def test_the_rows_and_the_contenders_are_those_there_are() -> None:
    assert [(row["id"], row["must_hold"]) for row in RESULTS["rows"]] == [(row.row_id, row.must_hold) for row in ROWS]
    assert [one["name"] for one in RESULTS["contenders"]] == [contender.name for contender in CONTENDERS]


def test_every_case_was_run_on_every_other_library() -> None:
    rows = [row.row_id for row in ROWS]
    for contender, found in zip(CONTENDERS, RESULTS["contenders"], strict=True):
        if contender.environment is not None:
            assert list(found["results"]) == rows
            assert {result["outcome"] for result in found["results"].values()} <= {"passes", "fails", "not offered"}


def test_the_libraries_were_those_that_are_pinned() -> None:
    for contender, found in zip(CONTENDERS, RESULTS["contenders"], strict=True):
        if contender.environment is not None:
            pinned = contender.environment.requirements.read_text(encoding="utf-8").splitlines()
            versions = found["conditions"]["versions"]
            assert {f"{name}=={versions[name]}" for name in contender.packages} <= set(pinned)


TURNS_PAGE: Final = ROOT / "docs" / "explanation" / "waiting.md"
OTHERS: Final = {"write", "multi"}
"""Subjects that the page has no row of."""
TURNS_RESULTS: Final[dict[str, Any]] = json.loads(
    (ROOT / "bench" / "micro" / "locks" / "turns.json").read_text(encoding="utf-8")
)


def test_the_page_has_the_figures_of_the_kept_results() -> None:
    assert table(TURNS_RESULTS) in TURNS_PAGE.read_text(encoding="utf-8")


def test_sixteen_processes_with_one_waiter_each_have_equal_shares_of_every_kind() -> None:
    assert {name: TURNS_RESULTS["options"][name] for name in ("processes", "threads", "segments")} == {
        "processes": 16,
        "threads": 1,
        "segments": 1,
    }
    assert set(TURNS_RESULTS["figures"]) == set(SUBJECTS) - OTHERS
    assert min(one["jain"] for one in TURNS_RESULTS["figures"].values()) >= 0.9
