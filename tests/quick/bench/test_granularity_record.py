"""What buyers saw becomes a record, and a file of records is read or refused by one sentence."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

import numpy as np
import pytest

from bench.engine.percentiles import merged, percentiles_of
from bench.engine.record import EndLine, Run, SessionLine, as_line, read_results
from bench.engine.sale import Recorder
from bench.engine.summary import Columns, fairness_of
from bench.strategies.base import GaveUp, Refused, RefusedByGate, Sold
from segmented.errors import InvalidInput
from tests.support.bench.records import end_line, run, session_line

if TYPE_CHECKING:
    from pathlib import Path

    from bench.strategies.base import Answer


RATE: Final = r'("orders_per_s":)[0-9.]+'
KILLED: Final = "its last line is missing, as after a kill"


def lines(*found: SessionLine | Run | EndLine) -> str:
    return "".join(as_line(one) for one in found)


def noted(*calls: tuple[int, float, float, list[Answer]]) -> Recorder:
    """Each call: buyer, asked, done, answers."""
    recorder, first = Recorder(), 1
    for buyer, asked, done, answers in calls:
        recorder.note(buyer, first, answers, intended=asked, asked=asked, done=done, quantity=1)
        first += len(answers)
    return recorder


def test_a_call_of_a_batch_is_one_line_of_the_history() -> None:
    answers: list[Answer] = [Sold(10.5, 10.75, 3, 2), Refused(7, 1), GaveUp("no lock"), RefusedByGate()]
    (line,) = noted((4, 10.0, 11.0, answers)).lines(began=9.0)
    assert json.loads(line) == {
        "first": 1, "buyer": 4, "intended": 1.0, "asked": 1.0, "granted": 1.5, "freed": 1.75, "done": 2.0,
        "sold": 1, "sold_out": 1, "failed": 2, "segment": 3, "attempts": 2,
    }  # fmt: skip


def test_a_batch_that_is_sold_whole_is_noted_order_by_order() -> None:
    recorder = noted((0, 1.0, 2.0, [Sold(1.25, 1.5, 7, 3)] * 3), (1, 1.0, 2.0, [Sold(1.0)] * 2))
    assert sorted(recorder.sold_numbers) == [1, 2, 3, 4, 5]
    assert (list(recorder.sold), list(recorder.failed), list(recorder.attempts)) == ([3, 2], [0, 0], [3, 1])
    assert (list(recorder.granted), list(recorder.freed), list(recorder.segment)) == ([1.25, 1.0], [1.5, 0.0], [7, -1])


def test_percentiles_without_ten_samples_beyond_are_not_told() -> None:
    found = percentiles_of(np.full(999, 0.002))
    assert (found.n, found.p50, found.p90, found.p99, found.p999) == (999, 2.0, 2.0, None, None)
    more = percentiles_of(np.full(100_000, 0.002))
    assert (more.p99, more.p999, more.p9999, more.max, more.mean, more.cv) == (2.0, 2.0, 2.0, 2.0, 2.0, 0.0)


def test_histograms_are_added_and_not_averaged() -> None:
    slow, fast = percentiles_of(np.full(100, 0.1)), percentiles_of(np.full(900, 0.001))
    both = merged([slow.encoded, fast.encoded])
    assert (both.n, both.p50, both.p90) == (1_000, 1.0, 1.0)
    assert merged([]).p50 is None


def test_one_buyer_who_gets_everything_is_the_least_fair() -> None:
    alone = noted((0, 0.0, 1.0, [Sold(0.25)] * 3), (1, 0.0, 1.0, [Refused(3, 1)]))
    even = noted((0, 0.0, 1.0, [Sold(0.5)]), (1, 0.0, 1.0, [Sold(0.125)]))
    found = [fairness_of(Columns(one), np.array([True, True]), buyers=2) for one in (alone, even)]
    assert [(one.jain, one.longest_wait_ms, one.by_buyer) for one in found] == [
        (0.5, 250.0, [3, 0]), (1.0, 500.0, [1, 1])
    ]  # fmt: skip


END = EndLine(finished_at="2026-01-01T00:00:00+00:00", runs_planned=1, runs_done=1, stopped_by=None)


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    with pytest.raises(InvalidInput, match=r"results\.jsonl cannot be read: No such file or directory$"):
        read_results(file)
    for text, said in (
        ("", "is not a result file of segmented-bench/1: its first line is not that of a session"),
        (as_line(END), "is not a result file of segmented-bench/1: its first line is not that of a session"),
        ("{\n", "line 1 is not JSON"),
        ('{"schema": "segmented-bench/2"}\n', "line 1 is of schema 'segmented-bench/2', and this reads"),
        ('{"schema": "segmented-bench/1", "kind": []}\n', "line 1 is of kind []; known are: session, run, end"),
        ('{"schema": "segmented-bench/1", "kind": "end"}\n', "line 1: finished_at: Field required"),
        ("[" * 100_000 + "\n", "line 1 is not JSON: nested too deep"),
        ("9" * 5_000 + "\n", "line 1 is not JSON: Exceeds the limit"),
        ("\x00\udcff", "is not a result file of segmented-bench/1: it is not text ("),
        (lines(session_line(), run(run=1), session_line()), "line 3: a second session begins there"),
        (as_line(session_line()) + re.sub(RATE, r"\1NaN", as_line(run())), "line 2 is not JSON: NaN is not a number"),
    ):
        file.write_bytes(text.encode("utf-8", "surrogateescape"))
        with pytest.raises(InvalidInput) as caught:
            read_results(file)
        assert str(caught.value).startswith(str(file))
        assert said in str(caught.value)


def test_a_run_that_stands_there_twice_is_refused_with_both_lines(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    file.write_text(lines(session_line(), run(run=1), run(run=2), run(run=1)), encoding="utf-8")
    with pytest.raises(InvalidInput, match=r"results\.jsonl, line 4: run 1 stands in line 2 already$"):
        read_results(file)


def test_what_is_missing_of_a_session_is_said(tmp_path: Path) -> None:
    file, stopped = tmp_path / "results.jsonl", end_line(3, stopped_by="interrupted")
    behind: list[tuple[tuple[Run | EndLine, ...], str | None]] = [
        ((end_line(2),), None),
        ((), f"{KILLED}; 2 runs are there"),
        ((stopped,), "2 of 3 planned runs are there: interrupted"),
        ((stopped, run(run=3)), f"{KILLED}; 3 runs are there"),
        ((stopped, run(run=3), end_line(3)), None),
    ]
    for more, missing in behind:
        file.write_text(lines(session_line(), run(run=1), run(run=2), *more), encoding="utf-8")
        assert read_results(file).why_not_whole == missing


def test_a_last_line_that_was_cut_off_is_no_end(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    file.write_text(lines(session_line(), run(), end_line(1)) + '{"sch', encoding="utf-8")
    found = read_results(file)
    assert (len(found.runs), found.end) == (1, None)
