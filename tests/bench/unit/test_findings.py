from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from bench.findings import findings, remarks, share_of_bound, used_up
from bench.record import Wait
from bench.results import LABELS, Results, bars, cells, line
from tests.bench.records import record

if TYPE_CHECKING:
    from bench.record import RunRecord

CORES = 2
NO_LOCK = record(
    strategy="no-lock",
    is_control=True,
    segments=1,
    orders_per_s=1_800.0,
    bound_per_s=40.0,
    stock=600,
    sold=20_000,
    sold_in_sql=20_000,
    oversold=19_400,
    oversold_in_sql=19_400,
    audit="none",
)
ONE = record(
    strategy="global-lock",
    segments=1,
    hold_ms=24.5,
    lone_hold_ms=21.5,
    orders_per_s=45.0,
    bound_per_s=46.51,
    wait_ms=Wait(1_380.0, 1_408.0, 1_409.0),
)
MANY = record(hold_ms=24.5)
FREE = record(strategy="lock-free", orders_per_s=2_100.0, bound_per_s=2_300.0)
RUNS = (NO_LOCK, ONE, MANY, FREE)


def results(*runs: RunRecord) -> Results:
    conditions = {"versions": {"python": "3.11.7"}, "cores": CORES, "commit": "c0ffee", "cpu_model": "a processor"}
    return Results("demo", runs, conditions, findings(runs, CORES), remarks(runs, CORES))


def printed(shown: Results, *, is_terminal: bool) -> str:
    console = Console(force_terminal=is_terminal, width=80, color_system=None)
    with console.capture() as capture:
        shown.show(console)
    return capture.get()


def test_each_rate_is_a_bar_up_to_a_mark_at_its_bound_and_a_broken_run_has_none() -> None:
    broken = record(strategy="segment-locks", orders_per_s=None)
    above = record(strategy="global-lock", orders_per_s=600.0, bound_per_s=575.0)
    assert bars((NO_LOCK, broken, above, FREE)) == [
        "global-lock   █████████│ 600 of 575 orders/s",
        "lock-free     █████████████████████████████████···│ 2,100 of 2,300 orders/s",
    ]
    assert bars((NO_LOCK, broken)) == []
    fast = record(strategy="global-lock", orders_per_s=1_150.0, bound_per_s=575.0)
    assert bars((fast, FREE))[0] == "global-lock   █████████│█████████ 1,150 of 575 orders/s"
    for is_terminal in (True, False):
        assert max(map(len, printed(results(*RUNS), is_terminal=is_terminal).splitlines())) <= 80 or not is_terminal
        assert "███···│ 2,100 of 2,300 orders/s" in printed(results(*RUNS), is_terminal=is_terminal)


def test_the_ratio_stands_beside_the_absolute_figures() -> None:
    assert findings(RUNS, CORES)["segment_locks_per_global_lock"] == 18.67
    assert "20 segment locks sold 840.0 orders/s, one lock 45.0: 18.7 times as many." in remarks(RUNS, CORES)


def test_the_share_of_the_bound_is_said_for_both_kinds_of_locks() -> None:
    said = remarks(RUNS, CORES)
    beside = "In the sale it took 24.5 ms: the difference is the delay of generator and servers."
    bound = "its bound: each lock serves one order after another, and a lone buyer's order took"
    assert f"global-lock reached 96.8% of 46.5 orders/s, {bound} 21.5 ms. {beside}" in said
    assert f"segment-locks reached 94.5% of 888.9 orders/s, {bound} 22.5 ms. {beside}" in said


def test_the_control_is_shown_failing_and_has_no_share_of_the_bound() -> None:
    assert remarks(RUNS, CORES)[0] == "Without a lock 20,000 units of 600 were sold: 19,400 too many."
    assert share_of_bound(NO_LOCK) is None


def test_the_lock_free_line_says_when_it_is_the_better_choice() -> None:
    said = [sentence for sentence in remarks(RUNS, CORES) if "better choice" in sentence]
    assert len(said) == 1
    assert said[0].startswith("lock-free sold 2,100.0 orders/s: ")


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({}, []),
        ({"generator_cpu": 0.94}, []),
        ({"generator_cpu": 0.96}, ["the generator"]),
        ({"redis_cpu": 1.2, "database_cpu": 1.0}, ["Redis", "the database"]),
        ({"database_cpu": None}, []),
        ({"machine_cpu": 1.85}, ["machine"]),
    ],
)
def test_whatever_used_a_whole_core_is_named(changes: dict[str, float | None], parts: list[str]) -> None:
    assert used_up(record(**changes), CORES) == parts


def test_a_limit_that_was_reached_is_said_and_so_is_that_none_was() -> None:
    free = "Under both kinds of locks, neither the generator nor a server used a whole core."
    assert free in remarks(RUNS, CORES)
    limited = remarks((NO_LOCK, ONE, record(generator_cpu=0.99), FREE), CORES)
    assert free not in limited
    assert "segment-locks: the generator used a whole core, so the figure is the limit of that core." in limited


def test_a_run_that_broke_a_promise_has_no_ratio_and_no_throughput() -> None:
    broken = record(orders_per_s=None, violations=("oversold by 3 units in SQL",), oversold=3, oversold_in_sql=3)
    shown = results(NO_LOCK, ONE, broken, FREE)
    assert not shown.is_kept
    assert shown.findings["segment_locks_per_global_lock"] is None
    assert "segment-locks broke its promise: oversold by 3 units in SQL." in shown.remarks
    assert line(broken).startswith("segment-locks: - orders/s (- of 888.9, 20 segments, hold 22.5 ms); ")


def test_runs_that_kept_their_promises_are_kept_though_the_control_oversold() -> None:
    assert results(*RUNS).is_kept


def test_a_sale_that_ran_out_of_time_says_so() -> None:
    late = remarks((record(strategy="no-lock", is_control=True, is_sold_out=False), ONE, MANY, FREE), CORES)
    assert "no-lock: the time limit came before the last unit was sold." in late


def test_the_table_has_a_cell_for_every_label_and_fits_80_columns() -> None:
    assert len(cells(NO_LOCK)) == len(LABELS)
    shown = printed(results(*RUNS), is_terminal=True)
    assert "│ orders/s           │ 1,800.0 │        45.0 │         840.0 │   2,100.0 │" in shown
    assert max(len(row) for row in shown.splitlines()) <= 80


def test_a_pipe_gets_no_table_and_whole_lines() -> None:
    shown = printed(results(*RUNS), is_terminal=False)
    assert "┃" not in shown
    assert shown.splitlines()[-1] == "Conditions: 2 cores for everything (a processor); python 3.11.7; commit c0ffee."


def test_a_run_is_one_line() -> None:
    assert line(MANY) == (
        "segment-locks: 840.0 orders/s (94.5% of 888.9, 20 segments, hold 24.5 ms); sold 13,334 of 13,334, oversold 0; "
        "refused 5,000, wrongly 0; wait p50 50.0 ms, p99 60.0 ms; "
        "cores: generator 0.55, Redis 0.15, database 0.16"
    )
    assert "refused 5,000, wrongly 0, by the gate 2; 1 ended in errors; " in line(record(refused_by_gate=2, failed=1))
