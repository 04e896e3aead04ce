from rich.console import Console

from bench.demo.results import DemoRun, Results, bars, findings
from bench.engine.record import Counts
from tests.support.bench.records import checker, demo_run

CORES = 2
NO_LOCK = demo_run(
    "no-lock",
    lone_hold_ms=25.0,
    orders_per_s=1_800.0,
    checker=checker(stock=600, sold=20_000, sold_in_sql=20_000, oversold=19_400, audit="none"),
    void=("oversold by 19400 units",),
)
ONE = demo_run("global-lock", lone_hold_ms=21.6, orders_per_s=45.0)
MANY = demo_run()
FREE = demo_run("lock-free", lone_hold_ms=27.83, orders_per_s=2_100.0)
RUNS = (NO_LOCK, ONE, MANY, FREE)
FAST = demo_run("global-lock", lone_hold_ms=1_000 / 575, orders_per_s=1_150.0)


def results(*runs: DemoRun, is_verbose: bool = False) -> Results:
    conditions = {"versions": {"python": "3.11.7"}, "cores": CORES, "commit": "c0ffee", "cpu_model": "a processor"}
    return Results("demo", runs, conditions, is_verbose=is_verbose)


def printed(shown: Results, *, is_terminal: bool) -> str:
    console = Console(force_terminal=is_terminal, width=80, color_system=None)
    with console.capture() as capture:
        shown.show(console)
    return capture.get()


def test_each_rate_is_a_bar_up_to_a_mark_at_its_bound_and_a_broken_run_has_none() -> None:
    broken = demo_run(void=("oversold by 3 units",))
    above = demo_run("global-lock", lone_hold_ms=1_000 / 575, orders_per_s=600.0)
    assert bars((NO_LOCK, broken, above, FREE)) == [
        "global-lock   █████████│ 600 of 575 orders/s",
        "lock-free     █████████████████████████████████···│ 2,100 of 2,300 orders/s",
    ]
    assert bars((NO_LOCK, broken)) == []
    assert bars((FAST, FREE))[0] == "global-lock   █████████│█████████ 1,150 of 575 orders/s"
    for is_terminal in (True, False):
        shown = printed(results(*RUNS, is_verbose=True), is_terminal=is_terminal)
        assert max(map(len, shown.splitlines())) <= 80 or not is_terminal
        assert "share of the bound" in shown
        assert "███···│ 2,100 of 2,300 orders/s" in shown


def test_the_story_says_in_six_lines_what_was_compared_and_which_won() -> None:
    assert printed(results(*RUNS), is_terminal=False).splitlines()[3:] == [
        "No lock: 20,000 units sold of 600. 19,400 buyers get nothing.",
        "One lock: 45.0 orders/s.",
        "20 segment locks: 840.0 orders/s, 18.7 times one lock.",
        "No lock around the slow step: 2,100.0 orders/s, for steps that may run side by side.",
        "These three sold no unit twice, and refused nobody while a unit was free.",
        "Next: `segmented advise --help` says what your own sale needs.",
    ]


def test_the_story_claims_nothing_of_a_run_that_broke_a_promise() -> None:
    broken = demo_run(void=("oversold by 3 units",))
    told = results(NO_LOCK, ONE, broken, FREE).remarks
    assert not any("segment locks:" in line or "These three" in line for line in told)
    assert "segment-locks broke its promise: oversold by 3 units." in told
    busy = demo_run("lock-free", saturated=("machine",))
    assert (
        "All cores were busy in lock-free: close other programs and repeat."
        in results(NO_LOCK, ONE, MANY, busy).remarks
    )


def test_the_control_must_answer_every_order() -> None:
    counts = Counts(planned=9, sent=9, sold=7, sold_out=0, failed=2, shed=0, first_failure="OSError: no")
    lost = demo_run("no-lock", counts=counts, void=("oversold by 1 unit",))
    assert (lost.rate, lost.violations) == (None, ("orders without an answer: 2, the first: OSError: no",))
    assert not results(lost, ONE, MANY, FREE).is_kept


def test_a_run_that_broke_a_promise_has_no_ratio_and_no_throughput() -> None:
    broken = demo_run(void=("oversold by 3 units",))
    shown = results(NO_LOCK, ONE, broken, FREE)
    assert not shown.is_kept
    assert shown.as_json()["findings"]["segment_locks_per_global_lock"] is None
    assert "segment-locks broke its promise: oversold by 3 units." in shown.remarks
    cells = broken.figures()
    assert (cells["orders/s"], cells["bound: orders/s"], cells["share of the bound"]) == ("-", "888.9", "-")


def test_the_ratio_stands_beside_the_absolute_figures() -> None:
    found = findings(RUNS)
    assert found["segment_locks_per_global_lock"] == 18.67
    assert found["bound_per_s"] == {
        "no-lock": 40.0, "global-lock": 46.3, "segment-locks": 888.89, "lock-free": 2_299.68,
    }  # fmt: skip
    assert found["lone_hold_ms"]["segment-locks"] == 22.5
    assert found["saturated"] == {run.strategy: [] for run in RUNS}


def test_the_control_is_shown_failing_and_has_no_share_of_the_bound() -> None:
    assert (NO_LOCK.figures()["orders/s"], NO_LOCK.share_of_bound) == ("1,800.0", None)
