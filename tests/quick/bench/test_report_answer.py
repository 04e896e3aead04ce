"""The first screen of the report, from made-up sessions whose rates are known."""

from __future__ import annotations

import re
from math import exp, log
from statistics import fmean
from typing import TYPE_CHECKING

import pytest

from bench.report.answer import NO_PAIR, Answer, answer
from bench.report.facts import Facts
from bench.report.page import page
from tests.support.bench.report_session import ROUNDS, rate_of, session

if TYPE_CHECKING:
    from bench.engine.record import Run


@pytest.fixture(scope="module")
def facts() -> Facts:
    return Facts(session())


def without(facts: Facts, *strategies: str) -> Facts:
    kept = tuple(run for run in facts.results.runs if run.cell.strategy not in strategies)
    return Facts(facts.results.model_copy(update={"runs": kept}))


def _geometric(rates: list[float]) -> float:
    return exp(fmean(log(rate) for rate in rates))


def test_it_says_the_ratio_of_our_best_to_one_lock_with_both_rates(facts: Facts) -> None:
    cells = {
        (spot.cell.strategy, spot.cell.segments): spot.cell
        for spot in facts.usual
        if spot.cell.loop == "closed" and (spot.cell.section, spot.cell.hold_ms) == ("sleep", 20.0)
        if (spot.cell.buyers, spot.cell.batch, spot.cell.rtt_ms) == (64, 1, 0.0)
    }
    rates = {key: [rate_of(cell, each) for each in range(ROUNDS)] for key, cell in cells.items()}
    best, lock = rates["segment-locks", 64], rates["global-lock", 1]
    times = exp(fmean(log(over / under) for over, under in zip(best, lock, strict=True)))
    found = answer(facts)
    assert found.sentence.startswith(f"64 segments sold {times:.4g} times as much as one lock (95 % interval ")
    assert f"{_geometric(best):,.4g}".replace(",", "") in found.sentence.replace(",", "")
    assert f" against {_geometric(lock):.4g} orders/s." in found.sentence
    assert "Without a lock, lock-free sold" in found.sentence


def test_of_two_segment_counts_that_noise_cannot_tell_apart_it_names_the_smaller(facts: Facts) -> None:
    kept = [run for run in facts.results.runs if (run.cell.strategy, run.cell.segments) != ("segment-locks", 128)]
    twice = [
        run.model_copy(
            update={
                "cell": run.cell.model_copy(update={"segments": 128}),
                "cell_id": run.cell_id.replace("K=64 ", "K=128 "),
                "orders_per_s": (run.orders_per_s or 0.0) * 1.001,
                "run": run.run + 10_000,
            }
        )
        for run in kept
        if run.cell.strategy == "segment-locks" and run.cell.segments == 64
    ]
    found = answer(Facts(facts.results.model_copy(update={"runs": (*kept, *twice)})))
    assert found.sentence.startswith("64 segments sold ")
    assert "K = 128" in [bar.name for bar in found.bars]


def test_a_ratio_without_an_interval_says_why(facts: Facts) -> None:
    for rounds, why in (
        ({"segment-locks": {0, 1}, "global-lock": {0, 1}}, "(2 runs give no interval: it takes 3)"),
        ({"segment-locks": {0}, "global-lock": {1}}, "(no common round, so no interval)"),
    ):
        kept = tuple(run for run in facts.results.runs if run.round in rounds.get(run.cell.strategy, {run.round}))
        found = answer(Facts(facts.results.model_copy(update={"runs": kept})))
        assert re.fullmatch(r"64 segments sold [\d.]+ times as much as one lock", found.sentence.partition(" (")[0])
        assert why in found.sentence


def test_the_bars_are_sorted_and_measured_by_the_configured_hold(facts: Facts) -> None:
    found = answer(facts)
    assert [bar.length for bar in found.bars] == sorted(bar.length for bar in found.bars)
    bounds = {bar.name: bar.bound for bar in found.bars}
    longest = max(bound for bound in bounds.values() if bound is not None)
    shares = {name: None if bound is None else round(bound / longest, 3) for name, bound in bounds.items()}
    ideal = {"one lock": 1 / 64, "K = 1": 1 / 64, "K = 4": 4 / 64, "K = 16": 16 / 64, "K = 64": 1.0, "lock-free": None}
    assert {name: None if share is None else round(share, 3) for name, share in ideal.items()} == shares
    assert "the configured hold" in found.bound


def test_a_session_without_a_pair_to_compare_says_so_in_one_sentence(facts: Facts) -> None:
    assert answer(without(facts, "segment-locks")) == Answer(NO_PAIR, (), "", "")
    html = page(without(facts, "segment-locks"), [], {}, findings=[], why_no_table=None)
    assert html.index(NO_PAIR) < html.index("<nav")
    assert '<div class="bar' not in html


def of_four_skus(run: Run, number: int) -> Run:
    cell = run.cell.model_copy(update={"skus": 4})
    return run.model_copy(update={"cell": cell, "cell_id": cell.cell_id, "run": number})


def test_cells_of_several_skus_are_never_the_headline(facts: Facts) -> None:
    closed = [run for run in facts.results.runs if run.cell.loop == "closed"]
    several = [of_four_skus(run, len(facts.results.runs) + place) for place, run in enumerate(closed)]
    alone = Facts(facts.results.model_copy(update={"runs": tuple(several)}))
    assert answer(alone) == Answer(NO_PAIR, (), "", "")
    pair = [run for run in closed if run.cell.strategy in {"segment-locks", "global-lock"} and run.cell.batch == 1]
    pair = [run for run in pair if run.cell.section == "commit" or (run.cell.section, run.cell.hold_ms) == ("none", 0)]
    beside = Facts(facts.results.model_copy(update={"runs": (*several, *pair)}))
    assert answer(beside).conditions.startswith("closed loop, no slow step, 64 buyers; 3 runs a bar")


def test_the_page_begins_with_it(facts: Facts) -> None:
    found = answer(facts)
    assert found.conditions.startswith(
        "closed loop, hold 20 ms, 64 buyers; 3 runs a bar, with 95 % intervals over runs"
    )
    html = page(facts, [], {}, findings=[], why_no_table=None)
    assert html.index(found.sentence) < html.index('class="bar') < html.index("<nav")
    assert html.count('<div class="bar') == len(found.bars) + 1
