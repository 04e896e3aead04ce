"""The lint on the published session as somebody would make it look better."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

import pytest

from bench.engine.record import ResultFile, read_results
from bench.lint import check
from bench.lint.planned import as_planned
from bench.lint.subject import Subject
from tests.support.bench.sabotage import SABOTAGES, WRONGLY
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path

PUBLISHED: Final = ROOT / "docs" / "results" / "2026-11-28"
HISTORIES: Final = "R19"
"""Only one history is beside the results here: to replay all of them takes seconds for each sabotage."""
MISSED: Final = {
    "more lanes for one lock",
    "fewer commands",
    "less CPU of the server",
    "a smaller share of the recorder",
    "a quicker median by bins",
}
"""Figures of a whole cell that nothing else in the file states."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the published session with the history of the run that refused orders wrongly."""
    to = tmp_path_factory.mktemp("published")
    (shown,) = [one.history for one in _results().runs if one.cell_id == WRONGLY and one.round == 1]
    assert shown is not None
    (to / shown).parent.mkdir()
    for name in (shown, *(file.name for file in PUBLISHED.iterdir() if file.is_file())):
        (to / name).symlink_to(PUBLISHED / name)
    return to


@cache
def _results() -> ResultFile:
    return read_results(PUBLISHED / "results.jsonl")


def test_the_plan_of_the_published_session_gives_each_of_its_runs() -> None:
    assert as_planned(Subject(_results(), PUBLISHED)).evidence == (
        "990 runs are those of the plan; its commit is older than they are"
    )


@pytest.mark.parametrize(
    ("name", "evidence"),
    [
        ("rounds the other way round", "another cell, round, arm, seed, sweep, load or warm-up than planned: run 1 ("),
        ("the same by two per cent", "stock or arrivals do not follow from seed, "),
        ("hypotheses rewritten in the session line", "the plan in the first line is not that of plan.toml"),
        ("a rival's cell dropped", "the last line does not say that 990 runs were planned and 980 done"),
        ("another commit of the plan", "git does not know 000000000000"),
        ("a run at another time", "began before the session, or lasted beyond the next run's beginning: run "),
    ],
)
def test_a_run_that_is_not_the_planned_one_is_named(name: str, evidence: str) -> None:
    found = as_planned(Subject(SABOTAGES[name](_results()), PUBLISHED))
    assert found.outcome == "broken"
    assert found.evidence.startswith(evidence)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", SABOTAGES)
def test_a_sabotage_of_the_published_file_breaks_a_rule_or_is_one_of_five(name: str, folder: Path) -> None:
    changed = SABOTAGES[name](_results())
    assert changed != _results()
    broken = {one.rule for one in check(changed, folder) if one.outcome == "broken"} - {HISTORIES}
    assert bool(broken) == (name not in MISSED), broken


def test_there_are_a_hundred_sabotages_and_five_are_missed() -> None:
    assert (len(SABOTAGES), len(SABOTAGES.keys() & MISSED)) == (100, 5)
