"""Each check of `bench lint` on the published session: it holds there, and a figure that was changed is found."""

from __future__ import annotations

from io import StringIO
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import pytest
from rich.console import Console

from bench.engine.record import ResultFile, read_results
from bench.lint import CHECKS, Subject, lint_file, may_publish, verdict
from segmented.errors import InvalidInput
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from bench.engine.record import Run

PUBLISHED: Final = ROOT / "docs" / "results" / "2026-11-28"


@pytest.fixture(scope="module")
def published() -> ResultFile:
    return read_results(PUBLISHED / "results.jsonl")


def part(run: Run, name: str, **values: Any) -> Run:  # noqa: ANN401  # any field of any part
    """Return a run with some fields of a part changed."""
    return run.model_copy(update={name: getattr(run, name).model_copy(update=values)})


def changed(run: Run, **values: Any) -> Run:  # noqa: ANN401  # any field of a run
    return run.model_copy(update=values)


def honest(run: Run) -> Run:
    """Return a run that refused wrongly as if it had not."""
    assert run.fairness is not None
    clean = run.checker.model_copy(update={"refused_wrongly": 0, "stranded": 0})
    rate = round(sum(run.fairness.by_buyer) / run.window_s, 3)
    return run.model_copy(update={"checker": clean, "void": (), "orders_per_s": rate})


SOLD: Final = "the rate is not that of the orders sold in the window"
SABOTAGES: Final[tuple[tuple[str, str, Callable[[Run], Run], str], ...]] = (
    ("records", "closed", lambda run: changed(run, orders_per_s=2 * (run.orders_per_s or 0)), SOLD),
    ("records", "closed", lambda run: changed(run, window_s=run.window_s - 1), "the window of the series is not the"),
    ("records", "closed", lambda run: part(run, "counts", sold=run.counts.sold + 1), "sold + sold out + failed, or"),
    ("records", "closed", lambda run: part(run, "fairness", jain=0.5), "Jain's index does not follow from the buyers'"),
    (
        "records",
        "open",
        lambda run: part(run, "times", response=None),
        "response times and lateness are those of an open",
    ),
    (
        "records",
        "closed",
        lambda run: part(run, "times", service=run.times.service.model_copy(update={"p99": 1.0})),
        "the histogram of service gives another p99 than is stated",
    ),
    (
        "records",
        "closed",
        lambda run: part(run, "times", service=run.times.service.model_copy(update={"p9999": 3.0})),
        "the histogram of service states p9999 without 10 samples beyond",
    ),
    ("books", "closed", lambda run: part(run, "checker", oversold=1), "the reasons for which the run is void do not"),
    ("books", "closed", lambda run: changed(run, void=("a whim",)), "a void run has a throughput, or another has none"),
    ("books", "closed", lambda run: part(run, "checker", sold=1), "the units sold are not those of the sold orders"),
    ("histories", "closed", lambda run: changed(run, history_sha256="0" * 64), "the history is not the one that was"),
    ("histories", "refused", honest, "the history gives another number of refusals while units were free"),
    ("conditions", "closed", lambda run: changed(run, saturated=("redis",)), "what is marked as saturated does not"),
    ("conditions", "closed", lambda run: changed(run, server={"version": "1"}), "version of the server is another"),
    ("conditions", "closed", lambda run: changed(run, guarantees={}), "the guarantees are not those of the strategy"),
    ("conditions", "closed", lambda run: part(run, "work", commands=0), "CPU time, or what an order cost, is not"),
)


@pytest.mark.parametrize(("check", "of", "change", "sentence"), SABOTAGES)
def test_a_changed_run_is_named_with_what_does_not_follow(
    published: ResultFile, check: str, of: str, change: Callable[[Run], Run], sentence: str
) -> None:
    first = [one for one in published.runs if one.round == 1 and one.cell.segments > 1]
    kinds = {
        "closed": (one for one in first if one.cell.loop == "closed" and one.orders_per_s and not one.saturated),
        "open": (one for one in first if one.cell.loop == "open"),
        "refused": (one for one in first if one.checker.refused_wrongly),
    }
    run = next(kinds[of])
    whole, broken = (
        verdict(check, Subject(published.model_copy(update={"runs": (one,)}), PUBLISHED)) for one in (run, change(run))
    )
    assert whole.holds
    assert not broken.holds
    assert broken.evidence.startswith(sentence)
    assert broken.evidence.endswith(f": run {run.run} ({run.cell_id})")


def test_a_run_of_the_published_session_that_is_not_the_planned_one_is_named(published: ResultFile) -> None:
    first, *others = published.runs

    def said(*runs: Run) -> str:
        return verdict("plan", Subject(published.model_copy(update={"runs": runs}), PUBLISHED)).evidence

    assert said(*published.runs) == "990 runs are those of the plan; its commit is older than they are"
    assert said(changed(first, seed=1), *others) == (
        f"another cell, round, arm, seed, sweep, load or warm-up than planned: run 1 ({first.cell_id})"
    )
    assert said(part(first, "checker", stock=1), *others) == (
        f"stock or arrivals do not follow from seed, calibration and earlier runs: run 1 ({first.cell_id})"
    )
    assert said(*others) == "the last line does not say that 990 runs were planned and 989 done"


def test_fewer_than_ten_runs_or_no_second_arm_leave_the_noise_unknown(published: ResultFile) -> None:
    def said(runs: tuple[Run, ...]) -> str:
        return verdict("floor", Subject(published.model_copy(update={"runs": runs}), PUBLISHED)).evidence

    assert said(tuple(run for run in published.runs if run.round > 1)).startswith("fewer than 10 runs of ")
    alone = tuple(run for run in published.runs if run.arm == "A")
    assert said(alone) == "no cell was measured twice a round, as A and as B"


def test_the_command_prints_a_line_a_check_and_ends_with_1_when_one_is_broken(
    published: ResultFile, tmp_path: Path
) -> None:
    """The file has few runs, and is in a folder without plan and histories."""
    file, said = tmp_path / "results.jsonl", StringIO()
    with (PUBLISHED / "results.jsonl").open("rb") as whole:
        file.write_bytes(b"".join(islice(whole, 21)))
    assert lint_file(tmp_path, Console(file=said, width=300)) == 1
    lines = said.getvalue().splitlines()
    assert [line.partition(",")[0] for line in lines[:-1]] == list(CHECKS)
    assert [line.partition(",")[0] for line in lines if ": broken: " in line] == [
        *("plan", "histories", "books", "floor", "conditions")
    ]
    assert lines[-1] == "1 of 6 checks hold: a table of these results may not be published."
    assert not may_publish([verdict("plan", Subject(published.model_copy(update={"runs": ()}), tmp_path))])
    file.write_text('{"schema": "another/9"}\n')
    with pytest.raises(
        InvalidInput, match=r"results\.jsonl, line 1 is of schema 'another/9', and this reads 'segmented-"
    ):
        lint_file(file, Console(file=StringIO()))
