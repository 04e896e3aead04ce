"""The measured power of `segmented bench ab`: the page shows what the results file gives."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from bench.ab.measure import ROUNDS
from bench.ab.power import power_of, rounds_of, same_build_rounds, slowed, summary, table
from bench.ab.statistics import Observed, compare
from tests.quick.bench.test_ab import session
from tests.support.paths import ROOT

RESULTS: Final = ROOT / "bench" / "ab" / "power.json"
PAGE: Final = ROOT / "docs" / "how-to" / "guard-against-regressions.md"


@pytest.fixture(scope="module", name="results")
def read_results() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8"))
    return found


def test_the_page_has_the_table_of_the_results(results: dict[str, Any]) -> None:
    assert "\n".join(table(results)) in PAGE.read_text(encoding="utf-8")


def test_the_figures_follow_from_the_runs_of_the_results(results: dict[str, Any]) -> None:
    assert [summary(rounds_of(cell)) for cell in results["cells"]] == [cell["power"] for cell in results["cells"]]


def test_the_rounds_of_one_build_are_four_of_its_runs_in_their_order() -> None:
    made = session(lambda name, number, _: Observed(name, 10.0 * number + (name == "B"), 1.0, 0.0), rounds=5)
    found = same_build_rounds(made)
    assert [[run.build for run in one] for one in found] == [["A", "B", "B", "A"]] * 4
    assert [[run.rate for run in one] for one in found] == [
        [0, 0, 10, 10],
        [20, 20, 30, 30],
        [1, 1, 11, 11],
        [21, 21, 31, 31],
    ]


def test_a_build_at_half_the_rate_is_found_in_every_try_and_the_same_code_in_none() -> None:
    made = session(
        lambda name, _, place: Observed(name, 100.0 / (1 + (name == "B")) + place % 3, 1.0, 0.0), rounds=4 * ROUNDS
    )
    slower = power_of(made, verdicts=frozenset({"slower"}), cells=1)
    assert (slower.stretches, slower.different, slower.drawn_share) == (4, 4, 1.0)
    same = power_of(same_build_rounds(made), verdicts=frozenset({"slower", "faster"}), cells=1)
    assert (same.stretches, same.different) == (4, 0)


def test_a_slowed_series_has_exactly_the_asked_difference() -> None:
    made = session(lambda name, _, place: Observed(name, 100.0 / (1 + (name == "B")) + place % 3, 1.0, 0.0))
    assert compare(slowed(made, 0.15)).plain == pytest.approx(0.85)
    assert [run.rate for one in slowed(made, 0.15) for run in one if run.build == "A"] == [
        run.rate for one in made for run in one if run.build == "A"
    ]
