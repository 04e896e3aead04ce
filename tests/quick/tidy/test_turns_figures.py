"""The published figures of turns between processes are those that the command wrote; processes have equal shares."""

from __future__ import annotations

import json
from typing import Any, Final

from bench.micro.locks.turns import SUBJECTS, table
from tests.support.paths import ROOT

PAGE: Final = ROOT / "docs" / "explanation" / "waiting.md"
OTHERS: Final = {"write", "multi"}
"""Subjects that the page has no row of."""
RESULTS: Final[dict[str, Any]] = json.loads(
    (ROOT / "bench" / "micro" / "locks" / "turns.json").read_text(encoding="utf-8")
)


def test_the_page_has_the_figures_of_the_kept_results() -> None:
    assert table(RESULTS) in PAGE.read_text(encoding="utf-8")


def test_sixteen_processes_with_one_waiter_each_have_equal_shares_of_every_kind() -> None:
    assert {name: RESULTS["options"][name] for name in ("processes", "threads", "segments")} == {
        "processes": 16,
        "threads": 1,
        "segments": 1,
    }
    assert set(RESULTS["figures"]) == set(SUBJECTS) - OTHERS
    assert min(one["jain"] for one in RESULTS["figures"].values()) >= 0.9
