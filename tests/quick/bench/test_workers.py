"""The arithmetic of the workers' benchmark, which needs no server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from bench.figures import FigureResults
from bench.micro.workers.bursts import EMPTY_TASK, KINDS, Burst, Kind
from bench.micro.workers.measure import broken_figure, burst_figures, latency_figures, recovery_figures
from bench.micro.workers.processes import environment
from bench.registry import BENCHMARKS
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


def test_a_ratio_is_the_median_of_ratios_of_the_same_round_and_not_a_ratio_of_medians() -> None:
    found = by_name(burst_figures(bursts(empty=[1_000, 2_000, 4_000], one=[900, 1_200, 2_800]), {}))
    ratio = found["one order a task, decided at acceptance / empty task"]
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx((0.7, 0.6, 0.9))
    assert ratio.at_least is None
    cpu = found["one order a task, decided at acceptance / empty task, by CPU of the workers"]
    assert cpu.value == pytest.approx(0.7)
    assert cpu.at_least is None


def test_envelopes_are_compared_in_orders_a_second() -> None:
    found = by_name(burst_figures(bursts(one=[1_000] * 3, many=[21_000, 25_000, 30_000]), {}))
    ratio = found["envelopes of 100, decided at acceptance / one order a task, decided at acceptance"]
    assert ratio.value == pytest.approx(25)
    assert (ratio.at_least, ratio.is_within) == (20, True)
    rate = found["envelopes of 100, decided at acceptance"]
    assert rate.value == pytest.approx(25_000)
    assert rate.unit == "/s"
    assert found["envelopes of 100, decided at acceptance: CPU of the workers"].value == pytest.approx(20)


def test_bounds_are_those_that_were_asked_and_none_is_asked_of_orders_decided_in_the_worker() -> None:
    bounds = {figure.name: figure.at_least for figure in burst_figures(bursts(), {}) if figure.at_least is not None}
    assert bounds == {
        "one order a task, decided at acceptance / empty task of Celery's own consumer, by CPU of the workers": 0.85,
        "envelopes of 100, decided at acceptance / one order a task, decided at acceptance": 20,
        "envelopes of 100, decided at acceptance, PostgreSQL / one order a task, decided at acceptance, PostgreSQL": 10,
    }


def test_a_part_that_the_checker_found_fault_with_has_no_figures_and_breaks_the_promise() -> None:
    broken = {ONE.name: "999 of 1,000 orders were confirmed"}
    names = by_name(burst_figures(bursts(), broken))
    assert not any(ONE.name in name.split(" / ") or name.startswith(f"{ONE.name}:") for name in names)
    assert MANY.name in names
    promise = broken_figure(broken)
    assert (promise.value, promise.is_promise, promise.is_within) == (1, True, False)
    assert broken_figure({}).is_within
    assert not FigureResults("workers", (promise,), {}).is_kept


def test_latencies_are_percentiles_of_all_orders_in_milliseconds() -> None:
    seconds = [0.002] * 985 + [0.012] * 15
    p50, p99 = latency_figures({"at acceptance": seconds, "in the worker": []}, {})
    assert (p50.name, p50.unit) == ("idle latency, decided at acceptance: p50", "ms")
    assert (p50.value, p99.value) == pytest.approx((2, 12), 0.01)
    assert (p99.at_most, p99.is_within) == (10, False)
    assert latency_figures({"at acceptance": seconds}, {"idle latency, decided at acceptance": "one is missing"}) == []


def test_recovery_is_the_longest_of_the_kills() -> None:
    (figure,) = recovery_figures({"at acceptance": [5.5, 6.5, 4.5], "in the worker": []}, {})
    assert (figure.value, figure.low, figure.high, figure.at_most) == (6.5, 4.5, 6.5, 10)
    assert recovery_figures({"at acceptance": [5.5]}, {"recovery, decided at acceptance": "one is missing"}) == []


def test_rounds_that_cannot_be_are_refused() -> None:
    for name, rounds, bound in (
        ("workers", 0, "greater than or equal to 1"),
        ("celery", 1_001, "less than or equal to"),
    ):
        refused = ran("bench", name, "--rounds", str(rounds), url=None)
        sentence = f"segmented: Invalid value for '--rounds': '{rounds}' should be {bound}"
        assert (refused.returncode, refused.stderr.startswith(sentence)) == (2, True)


def test_four_benchmarks_have_rounds_as_an_option_and_every_quick_form_says_what_it_leaves_out() -> None:
    assert [name for name, benchmark in BENCHMARKS.items() if benchmark.has_rounds] == [
        "workers",
        "celery",
        "locust",
        "shards",
    ]
    assert all(benchmark.leaves_out for benchmark in BENCHMARKS.values())
    refused = ran("bench", "locks", "--rounds", "3", url=None)
    assert (refused.returncode, refused.stderr) == (2, "segmented: No such option: --rounds\n")


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
