"""Each rule on a results file that keeps it, and on one that breaks it.

The file is made up, so it follows from no plan: R25 and R26 are tested on the published session and on a real one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from bench.engine.record import Cpu, Fairness, Percentiles, Work
from bench.lint import RULES, RuleFinding, check, may_publish
from bench.lint.rules import summary
from bench.lint.subject import Subject
from tests.support.bench.lint_results import (
    BASE,
    ENVIRONMENT,
    ONE_LOCK,
    SCRIPT,
    changed,
    honest,
    lay_out,
    place_of,
    with_run,
    without,
)
from tests.support.bench.records import times

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from bench.engine.record import ResultFile, Run

OPEN: Final = changed(BASE, loop="open", offered_per_s=900.0, buyers=1_000)
AT: Final = place_of(BASE)
AT_OPEN: Final = place_of(OPEN)
RUN: Final = honest().runs[AT]
OPEN_RUN: Final = honest().runs[AT_OPEN]
NAMED: Final = f"run {RUN.run} ({RUN.cell_id})"
NAMED_OPEN: Final = f"run {OPEN_RUN.run} ({OPEN_RUN.cell_id})"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("results")
    lay_out(found)
    return found


def part(run: Run, name: str, **values: Any) -> dict[str, Any]:  # noqa: ANN401  # any field of any part
    """Return a run's part with some fields changed, as what is to be changed of the run."""
    return {name: getattr(run, name).model_copy(update=values)}


def in_session(**values: Any) -> ResultFile:  # noqa: ANN401  # any field of the first line
    return honest().model_copy(update={"session": honest().session.model_copy(update=values)})


def each(change: Callable[[Run], dict[str, Any]]) -> ResultFile:
    """Change every run."""
    runs = tuple(run.model_copy(update=change(run)) for run in honest().runs)
    return honest().model_copy(update={"runs": runs})


def unread(told: Percentiles, **values: Any) -> Percentiles:  # noqa: ANN401  # any field of it
    return told.model_copy(update=values)


def under(path: str) -> dict[str, Any]:
    """Return the environment without one of its answers."""
    group, _, key = path.partition(".")
    return ENVIRONMENT | {group: {name: value for name, value in ENVIRONMENT[group].items() if name != key}}


BROKEN: Final[list[tuple[str, Callable[[], ResultFile], str]]] = [
    (
        "R1",
        lambda: with_run(AT, sweeps=("load",)),
        "closed and open loops are in one sweep: load",
    ),
    (
        "R1",
        lambda: with_run(AT, **part(RUN, "times", response=RUN.times.service)),
        f"a closed loop has no intended times, but response times are given for {NAMED}",
    ),
    (
        "R2",
        lambda: with_run(AT_OPEN, **part(OPEN_RUN, "times", response=None)),
        f"no response time from the intended time on: {NAMED_OPEN}",
    ),
    (
        "R2",
        lambda: with_run(AT_OPEN, **part(OPEN_RUN, "times", response=times(5.0, n=1_000))),
        f"response and service times are not of the same orders: {NAMED_OPEN}",
    ),
    (
        "R3",
        lambda: with_run(AT_OPEN, **part(OPEN_RUN, "counts", shed=3)),
        f"planned is not sent + shed: {NAMED_OPEN}",
    ),
    (
        "R3",
        lambda: with_run(AT_OPEN, **part(OPEN_RUN, "times", lateness=times(9.0, n=1_000))),
        f"orders left later than 10 % of the response p99, and the run is not void: {NAMED_OPEN}",
    ),
    (
        "R3",
        lambda: with_run(
            AT_OPEN,
            **part(OPEN_RUN, "counts", shed=500, sent=OPEN_RUN.counts.sent - 500, sold=OPEN_RUN.counts.sold - 500),
        ),
        f"shed orders are not among the failures: {NAMED_OPEN}",
    ),
    (
        "R4",
        lambda: with_run(AT, **part(RUN, "times", wait=unread(RUN.times.wait, encoded="nothing"))),
        f"{NAMED}: its histogram of wait cannot be decoded",
    ),
    (
        "R4",
        lambda: with_run(AT, **part(RUN, "times", wait=unread(RUN.times.wait, n=7))),
        f"{NAMED}: its histogram of wait has 1,000 samples, but states 7",
    ),
    (
        "R4",
        lambda: with_run(AT, **part(RUN, "times", service=unread(RUN.times.service, p99=1.0))),
        f"{NAMED}: its histogram of service gives another p99 than is stated",
    ),
    (
        "R5",
        lambda: with_run(AT, **part(RUN, "times", service=unread(RUN.times.service, p999=3.0))),
        f"given without ten samples beyond it: service.p999 of n = 1,000 in {NAMED}",
    ),
    (
        "R6",
        lambda: without(changed(ONE_LOCK, section="sleep", hold_ms=5)),
        "nothing with one lock has a throughput beside segment-locks K=16 N=64 B=1 5ms",
    ),
    (
        "R7",
        lambda: without(changed(ONE_LOCK, strategy="watch-multi"), changed(ONE_LOCK, strategy="global-redis-py-best")),
        "no throughput of WATCH/MULTI; redis-py's lock at its defaults and at its best",
    ),
    (
        "R8",
        lambda: with_run(AT, server=RUN.server | {"appendonly": "yes"}),
        f"appendonly of the server: one in run 1, another in run {RUN.run}",
    ),
    (
        "R8",
        lambda: with_run(place_of(SCRIPT), guarantees=RUN.guarantees | {"durable": "commit"}, sweeps=("rivals",)),
        (
            "sweep rivals compares lock-free (commit) and decr-compensate (memory),"
            " which keep an order in different places"
        ),
    ),
    ("R8", lambda: with_run(AT, guarantees={}), "guarantees are not the same columns in all runs"),
    (
        "R9",
        lambda: with_run(AT, **part(RUN, "checker", oversold=1)),
        f"a throughput in spite of what the checker found: {NAMED}",
    ),
    (
        "R9",
        lambda: with_run(AT, **part(RUN, "checker", refused_wrongly=2)),
        f"a throughput in spite of what the checker found: {NAMED}",
    ),
    ("R9", lambda: with_run(AT, orders_per_s=None), f"no throughput, and no reason for it: {NAMED}"),
    (
        "R9",
        lambda: with_run(AT, **part(RUN, "checker", sold=RUN.checker.sold - 1)),
        f"orders were refused while units are left: {NAMED}",
    ),
    (
        "R10",
        lambda: with_run(AT, orders_per_s=0.5 * (RUN.orders_per_s or 0)),
        f"the rate is not that of the orders sold in the window: {NAMED}",
    ),
    (
        "R10",
        lambda: with_run(AT, orders_per_s=2 * (RUN.orders_per_s or 0)),
        f"the rate is not that of the orders sold in the window: {NAMED}",
    ),
    (
        "R10",
        lambda: with_run(AT, **part(RUN, "counts", sold_out=0)),
        f"sold + sold out + failed is not what was planned: {NAMED}",
    ),
    (
        "R11",
        lambda: honest().model_copy(update={"runs": tuple(run for run in honest().runs if run.round > 1)}),
        f"fewer than 10 runs in 53 of 53 cells, as 9 of {honest().runs[len(honest().runs) // 10].cell_id} (A)",
    ),
    (
        "R12",
        lambda: with_run(AT, window_s=RUN.window_s - 1),
        f"the window of the series is not the one that was measured: {NAMED}",
    ),
    (
        "R13",
        lambda: with_run(AT, cpu=Cpu(generator=0.9, redis=0.2, database=None, machine=1.2, others=0.1, steal=0.0)),
        f"what is marked as saturated does not follow from the cores used: {NAMED}",
    ),
    (
        "R13",
        lambda: with_run(AT, cpu=Cpu(generator=0.0, redis=0.2, database=None, machine=1.2, others=0.1, steal=0.0)),
        f"no CPU time of generator or server: {NAMED}",
    ),
    (
        "R13",
        lambda: in_session(environment=under("machine.cores")),
        "the environment does not say how many cores there are",
    ),
    (
        "R14",
        lambda: with_run(AT, **part(RUN, "times", hold=times(2.0, n=1_000))),
        f"half of the holds were shorter than planned: {NAMED}",
    ),
    (
        "R14",
        lambda: without(changed(BASE, section="commit", hold_ms=0)),
        "3 critical sections of segment-locks, where 4 are needed: 20ms, 5ms, none",
    ),
    (
        "R15",
        lambda: without(changed(BASE, segments=128)),
        "the last step of K, to 64, still gains 300%: it ends too early",
    ),
    ("R15", lambda: without(changed(BASE, buyers=8), changed(BASE, buyers=1)), "no sweep over N has 4 values"),
    (
        "R15",
        lambda: without(OPEN, changed(SCRIPT, loop="open", offered_per_s=900.0, buyers=1_000)),
        "the highest offered load is 4% of the capacity (segment-locks K=16 N=1000 B=1 20ms poisson=35/s)",
    ),
    (
        "R16",
        lambda: without(changed(BASE, case="restock"), changed(ONE_LOCK, stock=7)),
        "not measured: stock below K of global-lock or lock-free, restock in mid-sale",
    ),
    (
        "R17",
        lambda: with_run(AT, **part(RUN, "series", segment_sold=[])),
        f"nothing by segment, or not of every segment: {NAMED}",
    ),
    (
        "R17",
        lambda: with_run(AT, fairness=Fairness(jain=1.0, longest_wait_ms=2.0, by_buyer=[9, *(1 for _ in range(63))])),
        f"Jain's index is missing, or does not follow from the buyers' orders: {NAMED}",
    ),
    (
        "R18",
        lambda: with_run(AT, work=Work(commands=16, round_trips=2, attempts=0, server_us=80, bytes=900)),
        f"what an order cost is not counted: {NAMED}",
    ),
    (
        "R19",
        lambda: in_session(environment=under("machine.governor")),
        "the environment says nothing of machine.governor",
    ),
    (
        "R19",
        lambda: in_session(environment=ENVIRONMENT | {"code": ENVIRONMENT["code"] | {"commit": "c0ffee-dirty"}}),
        "the code is of no commit: c0ffee-dirty",
    ),
    ("R19", lambda: with_run(AT, history=None), f"no history was kept: {NAMED}"),
    (
        "R19",
        lambda: with_run(AT, history_sha256="0" * 64),
        f"the history is not the one that was written: {NAMED}",
    ),
    ("R20", lambda: in_session(plan_commit=None), "the plan was not committed before the run"),
    (
        "R20",
        lambda: in_session(plan={"exclusions": ["one"], "stop": "when done"}),
        "the plan says nothing of hypotheses",
    ),
    ("R20", lambda: in_session(plan_sha256="0" * 64), "plan.toml is not the plan of this session: its sha256 differs"),
    (
        "R20",
        lambda: honest().model_copy(update={"end": None}),
        "the session has no end, so what is missing is unknown",
    ),
    (
        "R20",
        lambda: honest().model_copy(update={"runs": honest().runs[1:]}),
        f"{len(honest().runs) - 1} of {len(honest().runs)} planned runs are there: no reason given",
    ),
    (
        "R21",
        lambda: each(lambda _: {"arm": "A"}),
        "no cell was measured twice a round, as A and as B",
    ),
    (
        "R21",
        lambda: with_run(AT, orders_per_s=None, void=("oversold by 1 unit",)),
        f"A and B do not have the same number of throughputs: {NAMED}",
    ),
    ("R22", lambda: with_run(AT, window_s=0.4), f"less than 0.5 s were measured: {NAMED}"),
    (
        "R24",
        lambda: without(changed(SCRIPT, rtt_ms=2)),
        "no throughput of lock-free with 2 ms a round trip",
    ),
]


def verdict(rule: str, results: ResultFile, folder: Path) -> tuple[str, str]:
    (asked,) = (one for one in RULES if one.number == rule)
    found = asked.verdict(Subject(results, folder))
    return found.outcome, found.evidence


def test_a_file_that_keeps_all_rules_may_be_published(folder: Path) -> None:
    every = check(honest(), folder)
    assert [one.rule for one in every] == [f"R{number}" for number in range(1, 27)]
    findings = every[:24]
    assert [one for one in findings if one.outcome != "holds"] == []
    assert may_publish(findings)
    assert summary(findings) == "24 of 24 rules hold, 0 are broken: a table of these results may be published."


@pytest.mark.parametrize(
    ("rule", "results", "evidence"), BROKEN, ids=[f"{one[0]}-{place}" for place, one in enumerate(BROKEN)]
)
def test_a_file_that_breaks_a_rule_is_named_with_where(
    folder: Path, rule: str, results: Callable[[], ResultFile], evidence: str
) -> None:
    assert verdict(rule, results(), folder) == ("broken", evidence)


def test_every_rule_is_broken_by_one_of_these_files() -> None:
    by_a_file_beside = {"R23", "R25", "R26"}
    assert {rule for rule, _, _ in BROKEN} | by_a_file_beside == {rule.number for rule in RULES}


def test_without_a_baseline_of_counts_regressions_are_not_gated(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bench.lint.baselines.BASELINE", tmp_path / "baseline.json")
    expected = f"{tmp_path / 'baseline.json'} cannot be read: No such file or directory"
    assert verdict("R23", honest(), folder) == ("broken", expected)


def test_a_file_without_open_loops_claims_nothing_of_latency(folder: Path) -> None:
    closed = without(*(run.cell for run in honest().runs if run.cell.loop == "open"))
    findings = {one.rule: one.outcome for one in check(closed, folder)}
    assert (findings["R2"], findings["R3"], findings["R15"]) == ("not applicable", "not applicable", "broken")


def test_runs_of_several_skus_are_named_as_having_no_units_left_over_time(folder: Path) -> None:
    unread = RUN.series.model_copy(update={"left": [], "left_at": []})
    found = verdict("R17", with_run(AT, cell=changed(RUN.cell, skus=4), series=unread), folder)
    assert found[0] == "holds"
    assert " runs show every segment, 1 of several skus without the units left over time, and " in found[1]


def test_a_file_without_runs_may_not_be_published(folder: Path) -> None:
    findings = check(honest().model_copy(update={"runs": ()}), folder)
    assert [one.rule for one in findings if one.outcome == "holds"] == ["R23"]
    assert not may_publish(findings)


def test_a_history_that_was_changed_is_found(tmp_path: Path) -> None:
    lay_out(tmp_path)
    (tmp_path / str(RUN.history)).write_bytes(b"other calls")
    expected = f"the history is not the one that was written: {NAMED}"
    assert verdict("R19", honest(), tmp_path) == ("broken", expected)


def test_a_finding_that_does_not_apply_does_not_stand_in_the_way() -> None:
    findings = [
        RuleFinding("R2", "latency", "not applicable", "no open loop"),
        RuleFinding("R1", "loops", "holds", "one"),
    ]
    assert may_publish(findings)
    assert summary(findings) == (
        "1 of 2 rules holds, 0 are broken, 1 does not apply: a table of these results may be published."
    )
