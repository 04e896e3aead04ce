"""Figures of the lock benchmark: what is within its bound, and what fails a run."""

from __future__ import annotations

import io

import numpy as np
from rich.console import Console

from bench.figures import Figure, FigureResults
from bench.micro.locks.uncontended import interval

CONDITIONS = {"versions": {"python": "3"}, "cores": 2, "cpu_model": "a processor", "commit": None}


def test_a_count_beyond_its_bound_fails_the_run_and_a_time_does_not() -> None:
    slow = Figure("cycle", 9.0, "us", at_most=1.0)
    lost = Figure("lost", 1.0, "", at_most=0, is_promise=True)
    assert not slow.is_within
    assert FigureResults("locks", (slow,), CONDITIONS).is_kept
    assert not FigureResults("locks", (slow, lost), CONDITIONS).is_kept


def test_a_bound_is_kept_if_its_whole_interval_is_and_unclear_if_only_the_value_is() -> None:
    figures = [Figure("ratio", value, "", value - 0.1, value + 0.1, at_most=1.0) for value in (0.85, 0.95, 1.05, 1.15)]
    assert [(figure.kept, figure.is_within) for figure in figures] == [
        ("yes", True),
        ("unclear", False),
        ("no", False),
        ("no", False),
    ]


def test_results_are_lines_in_a_pipe() -> None:
    said = io.StringIO()
    ratio = Figure("ours / theirs", 0.75, "", 0.7, 0.8, at_most=0.85)
    lost = Figure("lost", 0, "", at_most=0, is_promise=True)
    figures = (ratio, Figure("cycle", 104.2, "us"), lost)
    FigureResults("locks", figures, CONDITIONS, ("A remark.",)).show(Console(file=said))
    assert said.getvalue().splitlines() == [
        "ours / theirs: 0.75 (0.7 to 0.8; goal <= 0.85; kept: yes)",
        "cycle: 104 us",
        "lost: 0 (<= 0; kept: yes)",
        "A remark.",
        "Conditions: 2 cores for everything (a processor); python 3; commit unknown.",
    ]


def test_a_large_number_is_written_out_with_separators() -> None:
    values = (0.012345, 99.95, 999.4, 999.6, 2_134.4, -12_345.6, 1_234_567)
    assert [Figure("cycle", value, "us").cells()[1] for value in values] == [
        "0.0123 us",
        "100 us",
        "999 us",
        "1,000 us",
        "2,134 us",
        "-12,346 us",
        "1,234,567 us",
    ]
    assert Figure("cycle", 2_134.4, "us", 1_900, 2_500).cells()[2] == "1,900 to 2,500"


def test_the_interval_holds_the_median_of_what_it_was_drawn_from() -> None:
    values = np.linspace(0.0, 1.0, 101)
    low, high = interval(values)
    assert interval(np.full(10, 0.75)) == (0.75, 0.75)
    assert 0.3 < low < 0.5 < high < 0.7
