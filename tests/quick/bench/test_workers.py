"""The arithmetic of the workers' benchmark, which needs no server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from bench.figures import FigureResults
from bench.micro.workers.bursts import EMPTY_TASK, KINDS, Burst, Kind
from bench.micro.workers.context import environment
from bench.micro.workers.measure import broken_figure, burst_figures
from tests.support.command_line import ran

if TYPE_CHECKING:
    from bench.figures import Figure

ONE: Final = Kind("at acceptance")
MANY: Final = Kind("at acceptance", orders=100)


def bursts(**rates: list[float]) -> dict[Kind, list[Burst]]:
    """Make rounds in which every kind does 100 a second, but for the `empty` task, `one` order and `many` of them."""
    found = {kind: [Burst(100, 1.0, 0.5)] * 3 for kind in KINDS}
    for kind, name in ((EMPTY_TASK, "empty"), (ONE, "one"), (MANY, "many")):
        if name in rates:
            found[kind] = [Burst(1_000, 1_000 / rate, 500 / rate) for rate in rates[name]]
    return found


def by_name(figures: list[Figure]) -> dict[str, Figure]:
    return {figure.name: figure for figure in figures}


def test_a_ratio_is_the_median_of_ratios_within_rounds_and_not_a_ratio_of_medians() -> None:
    found = by_name(burst_figures(bursts(empty=[1_000, 2_000, 4_000], one=[900, 1_200, 2_800]), {}))
    ratio = found["one order a task, decided at acceptance / empty task"]
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx((0.7, 0.6, 0.9))
    assert ratio.at_least is None
    cpu = found["one order a task, decided at acceptance / empty task, by CPU of the workers"]
    assert cpu.value == pytest.approx(0.7)
    assert cpu.at_least is None


def test_bounds_are_those_asked_for_and_not_for_orders_decided_in_the_worker() -> None:
    bounds = {figure.name: figure.at_least for figure in burst_figures(bursts(), {}) if figure.at_least is not None}
    assert bounds == {
        "one order a task, decided at acceptance / empty task of Celery's own consumer, by CPU of the workers": 0.85,
        "envelopes of 100, decided at acceptance / one order a task, decided at acceptance": 20,
        "envelopes of 100, decided at acceptance, PostgreSQL / one order a task, decided at acceptance, PostgreSQL": 10,
    }


def test_a_part_that_the_checker_rejects_has_no_figures_and_breaks_the_promise() -> None:
    broken = {ONE.name: "999 of 1,000 orders were confirmed"}
    names = by_name(burst_figures(bursts(), broken))
    assert not any(ONE.name in name.split(" / ") or name.startswith(f"{ONE.name}:") for name in names)
    assert MANY.name in names
    promise = broken_figure(broken)
    assert (promise.value, promise.is_promise, promise.is_within) == (1, True, False)
    assert broken_figure({}).is_within
    assert not FigureResults("workers", (promise,), {}).is_kept


def test_rounds_that_cannot_be_are_refused() -> None:
    for name, rounds, bound in (
        ("workers", 0, "greater than or equal to 1"),
        ("celery", 1_001, "less than or equal to"),
    ):
        refused = ran("bench", name, "--rounds", str(rounds), url=None)
        sentence = f"segmented: Invalid value for '--rounds': '{rounds}' should be {bound}"
        assert (refused.returncode, refused.stderr.startswith(sentence)) == (2, True)


def test_workers_run_at_the_default_settings_whatever_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEGMENTED_PUBLISH_AFTER", "1")
    monkeypatch.setenv("ELSEWHERE", "kept")
    given = environment("unix:///a", "unix:///b", "sqlite:///c")
    assert given["ELSEWHERE"] == "kept"
    assert {name: value for name, value in given.items() if name.startswith("SEGMENTED_")} == {
        "SEGMENTED_URL": "unix:///a",
        "SEGMENTED_BROKER": "unix:///b",
        "SEGMENTED_DATABASE": "sqlite:///c",
        "SEGMENTED_POOL": "solo",
        "SEGMENTED_CONCURRENCY": "1",
    }
