"""The lint on the published session as somebody would make it look better."""

from __future__ import annotations

from functools import cache
from typing import Final

import pytest

from bench.granularity.record import ResultFile, read_results
from bench.lint import check
from bench.lint.planned import as_planned
from bench.lint.subject import Subject
from tests.bench.sabotage import SABOTAGES
from tests.support.paths import ROOT

PUBLISHED: Final = ROOT / "docs" / "results" / "2026-11-22"
HISTORIES: Final = "R19"
"""The histories are not in the repository."""
MISSED: Final = {
    "more lanes for one lock",
    "fewer commands",
    "less CPU of the server",
    "a smaller share of the recorder",
    "a quicker median by bins",
}
"""Figures of a whole cell that nothing else in the file states."""


@cache
def _results() -> ResultFile:
    return read_results(PUBLISHED / "results.jsonl")


def test_the_plan_of_the_published_session_gives_each_of_its_runs() -> None:
    assert as_planned(Subject(_results(), PUBLISHED)).evidence == (
        "850 runs are those of the plan; its commit is older than they are"
    )


@pytest.mark.parametrize(
    ("name", "evidence"),
    [
        ("rounds the other way round", "another cell, round, arm, seed, sweep, load or warm-up than planned: run 1 ("),
        ("the same by two per cent", "stock or arrivals do not follow from seed, "),
        ("hypotheses rewritten in the session line", "the plan in the first line is not that of plan.toml"),
        ("a rival's cell dropped", "the last line does not say that 850 runs were planned and 840 done"),
        ("another commit of the plan", "git does not know 000000000000"),
        ("a run at another time", "began before the session, or lasted beyond the next run's beginning: run "),
    ],
)
def test_a_run_that_is_not_the_planned_one_is_named(name: str, evidence: str) -> None:
    found = as_planned(Subject(SABOTAGES[name](_results()), PUBLISHED))
    assert found.outcome == "broken"
    assert found.evidence.startswith(evidence)


@pytest.mark.full
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", SABOTAGES)
def test_a_sabotage_of_the_published_file_breaks_a_rule_or_is_one_of_five(name: str) -> None:
    changed = SABOTAGES[name](_results())
    assert changed != _results()
    broken = {one.rule for one in check(changed, PUBLISHED) if one.outcome == "broken"} - {HISTORIES}
    assert bool(broken) == (name not in MISSED), broken


def test_there_are_a_hundred_sabotages_and_five_are_missed() -> None:
    assert (len(SABOTAGES), len(SABOTAGES.keys() & MISSED)) == (100, 5)
