"""Each rule on a made-up file that keeps it, and on one that breaks it; R25 and R26 on the published session."""

from __future__ import annotations

from io import StringIO
from typing import TYPE_CHECKING, Any, Final

import pytest
from rich.console import Console

from bench.engine.record import Cpu, Fairness, ResultFile, Work, read_results
from bench.lint import RULES, check, may_publish
from bench.lint.planned import as_planned
from bench.lint.recomputed import follows
from bench.lint.rules import lint_file, summary
from bench.lint.subject import Subject
from segmented.errors import InvalidInput
from tests.support.bench.lint_results import (
    BASE,
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
from tests.support.bench.session import write_session
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from bench.engine.record import Run

PUBLISHED: Final = ROOT / "docs" / "results" / "2026-11-28"
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


FIRST_CELL: Final = honest().runs[len(honest().runs) // 10].cell_id
COMPARED: Final = "sweep rivals compares lock-free (commit) and decr-compensate (memory), which keep an order in"
BROKEN: Final[dict[str, tuple[ResultFile, str]]] = {
    "R1": (with_run(AT, sweeps=("load",)), "closed and open loops are in one sweep: load"),
    "R2": (
        with_run(AT_OPEN, **part(OPEN_RUN, "times", response=None)),
        f"no response time from the intended time on: {NAMED_OPEN}",
    ),
    "R3": (
        with_run(AT_OPEN, **part(OPEN_RUN, "times", lateness=times(9.0, n=1_000))),
        f"orders left later than 10 % of the response p99, and the run is not void: {NAMED_OPEN}",
    ),
    "R4": (
        with_run(AT, **part(RUN, "times", service=RUN.times.service.model_copy(update={"p99": 1.0}))),
        f"{NAMED}: its histogram of service gives another p99 than is stated",
    ),
    "R5": (
        with_run(AT, **part(RUN, "times", service=RUN.times.service.model_copy(update={"p999": 3.0}))),
        f"given without ten samples beyond it: service.p999 of n = 1,000 in {NAMED}",
    ),
    "R6": (
        without(changed(ONE_LOCK, section="sleep", hold_ms=5)),
        "nothing with one lock has a throughput beside segment-locks K=16 N=64 B=1 5ms",
    ),
    "R7": (without(changed(ONE_LOCK, strategy="watch-multi")), "no throughput of WATCH/MULTI"),
    "R8": (
        with_run(place_of(SCRIPT), guarantees=RUN.guarantees | {"durable": "commit"}, sweeps=("rivals",)),
        f"{COMPARED} different places",
    ),
    "R9": (
        with_run(AT, **part(RUN, "checker", oversold=1)),
        f"a throughput in spite of what the checker found: {NAMED}",
    ),
    "R10": (
        with_run(AT, orders_per_s=2 * (RUN.orders_per_s or 0)),
        f"the rate is not that of the orders sold in the window: {NAMED}",
    ),
    "R11": (
        honest().model_copy(update={"runs": tuple(run for run in honest().runs if run.round > 1)}),
        f"fewer than 10 runs in 53 of 53 cells, as 9 of {FIRST_CELL} (A)",
    ),
    "R12": (
        with_run(AT, window_s=RUN.window_s - 1),
        f"the window of the series is not the one that was measured: {NAMED}",
    ),
    "R13": (
        with_run(AT, cpu=Cpu(generator=0.9, redis=0.2, database=None, machine=1.2, others=0.1, steal=0.0)),
        f"what is marked as saturated does not follow from the cores used: {NAMED}",
    ),
    "R14": (
        with_run(AT, **part(RUN, "times", hold=times(2.0, n=1_000))),
        f"half of the holds were shorter than planned: {NAMED}",
    ),
    "R15": (without(changed(BASE, segments=128)), "the last step of K, to 64, still gains 300%: it ends too early"),
    "R16": (
        without(changed(BASE, case="restock"), changed(ONE_LOCK, stock=7)),
        "not measured: stock below K of global-lock or lock-free, restock in mid-sale",
    ),
    "R17": (
        with_run(AT, fairness=Fairness(jain=1.0, longest_wait_ms=2.0, by_buyer=[9, *(1 for _ in range(63))])),
        f"Jain's index is missing, or does not follow from the buyers' orders: {NAMED}",
    ),
    "R18": (
        with_run(AT, work=Work(commands=16, round_trips=2, attempts=0, server_us=80, bytes=900)),
        f"what an order cost is not counted: {NAMED}",
    ),
    "R19": (with_run(AT, history_sha256="0" * 64), f"the history is not the one that was written: {NAMED}"),
    "R20": (in_session(plan_commit=None), "the plan was not committed before the run"),
    "R21": (
        honest().model_copy(update={"runs": tuple(run.model_copy(update={"arm": "A"}) for run in honest().runs)}),
        "no cell was measured twice a round, as A and as B",
    ),
    "R22": (with_run(AT, window_s=0.4), f"less than 0.5 s were measured: {NAMED}"),
    "R24": (without(changed(SCRIPT, rtt_ms=2)), "no throughput of lock-free with 2 ms a round trip"),
}


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


def test_a_file_that_breaks_a_rule_is_named_with_where(folder: Path) -> None:
    assert {rule: verdict(rule, results, folder) for rule, (results, _) in BROKEN.items()} == {
        rule: ("broken", evidence) for rule, (_, evidence) in BROKEN.items()
    }


def test_every_rule_is_broken_by_one_of_these_files() -> None:
    by_a_file_beside = {"R23", "R25", "R26"}
    assert BROKEN.keys() | by_a_file_beside == {rule.number for rule in RULES}


def test_without_a_baseline_of_counts_regressions_are_not_gated(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bench.lint.baselines.BASELINE", tmp_path / "baseline.json")
    expected = f"{tmp_path / 'baseline.json'} cannot be read: No such file or directory"
    assert verdict("R23", honest(), folder) == ("broken", expected)


def test_a_file_without_runs_may_not_be_published(folder: Path) -> None:
    findings = check(honest().model_copy(update={"runs": ()}), folder)
    assert [one.rule for one in findings if one.outcome == "holds"] == ["R23"]
    assert not may_publish(findings)


def printed(path: Path) -> tuple[int, list[str]]:
    said = StringIO()
    code = lint_file(path, Console(file=said))
    return code, said.getvalue().splitlines()


def test_the_command_prints_a_line_a_rule_and_ends_with_1_when_one_is_broken(folder: Path, tmp_path: Path) -> None:
    """The made-up file follows from no plan."""
    write_session(in_session(plan_commit=None), folder / "results.jsonl")
    code, lines = printed(folder)
    assert (code, len(lines)) == (1, 27)
    assert lines[0].startswith("R1 closed and open loops are never mixed: holds: ")
    assert [line.partition(" ")[0] for line in lines[:26] if ": broken: " in line] == ["R20", "R25", "R26"]
    assert lines[-1].startswith("23 of 26 rules hold, 3 are broken: ")
    file = tmp_path / "results.jsonl"
    file.write_text('{"schema": "another/9"}\n')
    with pytest.raises(
        InvalidInput, match=r"results\.jsonl, line 1 is of schema 'another/9', and this reads 'segmented-"
    ):
        lint_file(file, Console(file=StringIO()))


@pytest.fixture(scope="module")
def published() -> ResultFile:
    return read_results(PUBLISHED / "results.jsonl")


def with_runs(results: ResultFile, *runs: Run) -> Subject:
    return Subject(results.model_copy(update={"runs": runs}), PUBLISHED)


def test_the_published_session_is_the_planned_one(published: ResultFile) -> None:
    assert as_planned(Subject(published, PUBLISHED)).evidence == (
        "990 runs are those of the plan; its commit is older than they are"
    )


def test_a_run_of_the_published_session_that_is_not_the_planned_one_is_named(published: ResultFile) -> None:
    first, *others = published.runs
    assert as_planned(with_runs(published, first.model_copy(update={"seed": 1}), *others)).evidence == (
        f"another cell, round, arm, seed, sweep, load or warm-up than planned: run 1 ({first.cell_id})"
    )


def test_refusals_that_were_taken_out_of_a_record_are_found_in_its_history(published: ResultFile) -> None:
    run = next(one for one in published.runs if one.checker.refused_wrongly and one.round == 1)
    assert run.fairness is not None
    clean = run.checker.model_copy(update={"refused_wrongly": 0, "stranded": 0})
    rate = round(sum(run.fairness.by_buyer) / run.window_s, 3)
    better = run.model_copy(update={"checker": clean, "void": (), "orders_per_s": rate})
    assert [follows(with_runs(published, one)).evidence for one in (run, better)] == [
        "1 records agree with themselves, and 1 of them with their histories",
        f"the history gives another number of refusals while units were free: run {run.run} ({run.cell_id})",
    ]
