"""What the locustfiles share: options that are refused, figures that add up, and notes of several processes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import numpy as np
import pytest

from bench.engine.percentiles import percentiles_of
from bench.engine.sale import Recorder
from bench.load.plan import Plan, Result, Servers, cell_of
from bench.load.results import as_json, as_text, sale_rows
from bench.load.tally import Counter, Tally, Window, call_log_of, merged, too_late
from bench.strategies.base import Refused, Sold
from segmented.errors import InvalidInput
from segmented.masking import masked

if TYPE_CHECKING:
    from bench.engine.cell import Cell
    from bench.engine.record import Checker
    from bench.strategies.base import Answer

OPTIONS = {
    "strategy": "segment-locks",
    "segments": 4,
    "batch": 1,
    "section": "sleep",
    "hold": 20.0,
    "seconds": 2.0,
    "warm_up": 0.5,
    "stock": 100,
    "seed": 1,
    "late_max": 0.1,
    "rate": 50.0,
    "arrivals": "poisson",
    "under_way": 10,
    "num_users": None,
}


def plan_of(cell: Cell, *shares: str) -> Plan:
    return Plan(
        cell=cell,
        sku="mug",
        stock=100,
        seconds=2.0,
        warm_up=0.5,
        seed=3,
        url="redis://shop",
        database=None,
        shares=shares,
    )


def recorder_of(*answers: Answer, first: int = 1, begin: float = 1.0) -> Recorder:
    """A call a second from `begin` on: 10 ms late, and answered 30 ms later."""
    found = Recorder()
    for number, answer in enumerate(answers):
        intended = begin + number
        asked, done = intended + 0.01, intended + 0.04
        found.note(number, first + number, [answer], intended=intended, asked=asked, done=done, quantity=1)
    return found


def test_a_server_that_the_environment_names_wrongly_is_refused_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    for url in ("nonsense", "redis://127.0.0.1:99999/0"):
        monkeypatch.setenv("SEGMENTED_URL", url)
        with pytest.raises(InvalidInput) as refused:
            Servers().check()
        assert str(refused.value).startswith(f"SEGMENTED_URL: '{masked(url)}' is not a Redis URL: ")


def test_a_bad_option_is_one_sentence_that_names_it() -> None:
    changes: list[tuple[dict[str, object], str]] = [
        ({"stock": 0}, "--stock 0: Input should be greater than or equal to 1"),
        ({"strategy": "nix"}, "--strategy nix: unknown strategy; known are: "),
        ({"arrivals": "flood"}, "--arrivals flood: Input should be 'poisson' or 'spike'"),
        ({"section": "none"}, "a critical section of kind none has no hold"),
        ({"batch": 4}, "--batch 4: segment-locks sells one order after the other"),
        ({"seconds": 0.0}, "--seconds 0 and --warm-up 0.5 must be above 0 and from 0, and at most 3600"),
        ({"seed": -1}, "--seed -1 must not be negative"),
        ({"late_max": float("nan")}, "--late-max nan must not be negative"),
        ({"strategy": "stripes.py:Stripes"}, "--strategy stripes.py:Stripes: unknown strategy; known are: "),
    ]
    for changed, sentence in changes:
        with pytest.raises(InvalidInput) as refused:
            cell_of(SimpleNamespace(**(OPTIONS | changed)), is_open=True)
        assert str(refused.value).startswith(sentence)


def test_processes_share_the_rate_and_those_under_way_and_have_seeds_of_their_own() -> None:
    plan = plan_of(cell_of(SimpleNamespace(**OPTIONS), is_open=True), "one", "two", "three")
    assert (plan.share.offered_per_s, plan.share.buyers) == (50.0 / 3, 4)
    assert len({plan.seed_of(share) for share in range(3)}) == 3


def test_a_counter_counts_each_call_once_and_in_the_window_only() -> None:
    recorder = recorder_of(Sold(1.02, 1.03, 2), Sold(2.02, 2.03, 0))
    counter = Counter(recorder, is_open=True)
    window = Window(begin=2.0, end=4.0)
    counter.look(window, now=2.5, planned=9, sent=2, shed=1)
    answers: tuple[Answer, ...] = (Sold(3.015, 3.025, 2), Refused(1, 1))
    for number, answer in enumerate(answers, start=3):
        recorder.note(0, number, [answer], intended=float(number), asked=number + 0.0, done=number + 0.04, quantity=1)
    tally = counter.look(window, now=6.0, planned=9, sent=4, shed=1)
    assert (tally.planned, tally.sent, tally.sold, tally.sold_out, tally.failed, tally.shed) == (9, 4, 3, 1, 0, 1)
    assert tally.goodput == 1.0
    assert tally.late == 1
    assert tally.by_segment == [1, 0, 2]
    times = tally.times()
    assert {name: one.n for name, one in times.items()} == {
        "service": 2,
        "response": 2,
        "wait": 2,
        "hold": 2,
        "lateness": 2,
    }
    assert times["response"].max == pytest.approx(40.0, rel=0.002)
    assert times["service"].p50 == pytest.approx(30.0, rel=0.002)


def test_tallies_cross_a_message_and_add_up_to_the_percentiles_of_all_samples() -> None:
    one, two = (
        Counter(recorder_of(*(Sold(0.0) for _ in range(count))), is_open=False).look(
            Window(0.0, 100.0), now=50.0, planned=count, sent=count, shed=0
        )
        for count in (3, 5)
    )
    total = Tally()
    total.add(Tally.from_message(one.as_message()))
    total.add(Tally.from_message(two.as_message()))
    assert total.sold == 8
    assert total.goodput == pytest.approx(8 / 50)
    assert total.times()["service"] == percentiles_of(np.full(8, 0.03))


def tally_of(**milliseconds: float) -> Tally:
    """A hundred values of each of these times."""
    found = Tally(sold=100, goodput=50.0)
    for name, value in milliseconds.items():
        found.histograms[name].record_value(int(value * 1_000), 100)
    return found


def test_a_late_generator_voids_an_open_sale_by_p99_and_a_closed_one_by_median() -> None:
    late = tally_of(lateness=2.1, response=20.0, hold=20.0, service=900.0)
    sentence = (
        "the p99 lateness of the load generator is 2.10 ms, more than 10% of the response's 20.02 ms: use more "
        "processes, fewer buyers or a quieter machine"
    )
    assert too_late(late, is_open=True, late_max=0.1) == (sentence,)
    (closed,) = too_late(late, is_open=False, late_max=0.1)
    assert closed.startswith("the median lateness of the load generator is 2.10 ms, more than 10% of the hold's 20.02")
    assert too_late(late, is_open=False, late_max=0.2) == too_late(late, is_open=True, late_max=0.2) == ()
    without_lock = tally_of(lateness=2.1, service=900.0)
    assert too_late(without_lock, is_open=False, late_max=0.1) == too_late(Tally(), is_open=False, late_max=0.1) == ()


def result_of(strategy: str, segments: int, rate: float, *, broken: tuple[str, ...] = (), void: str = "") -> Result:
    options = OPTIONS | {"strategy": strategy, "segments": segments, "num_users": 8}
    plan = plan_of(cell_of(SimpleNamespace(**options), is_open=False), "one")
    tally = Tally(sent=100, sold=100, goodput=rate)
    cpu_s: dict[str, float | None] = {"generator": 0.08, "redis": 0.03, "database": None}
    checker = cast("Checker", SimpleNamespace(sold=100, model_dump=lambda **_: {}))
    return Result(plan, tally, checker, broken, (void,) if void else (), cpu_s)


def test_sales_of_a_page_are_compared_with_the_last_sale_under_one_lock_that_counted() -> None:
    finished = [
        result_of("segment-locks", 4, 90.0),
        result_of("global-lock", 1, 40.0),
        result_of("segment-locks", 4, 150.0),
        result_of("global-lock", 1, 80.0, void="late"),
        result_of("segment-locks", 8, 200.0, broken=("oversold by 1 unit",)),
        result_of("segment-locks", 16, 500.0),
    ]
    rows = sale_rows(finished, None)
    assert [(row["rate"], row["ratio"], row["state"]) for row in rows] == [
        (90.0, None, "kept"),
        (40.0, 1.0, "kept"),
        (150.0, 3.75, "kept"),
        (None, None, "void"),
        (None, None, "broken"),
        (500.0, 12.5, "kept"),
    ]
    assert rows[-1]["sale"] == finished[-1].plan.cell.cell_id


def test_a_void_sale_has_no_rate_and_says_why_and_every_sale_says_what_it_cost() -> None:
    void = result_of("segment-locks", 4, 90.0, void="the generator slept")
    assert (as_json(void)["orders_per_s"], as_json(void)["void"]) == (None, ["the generator slept"])
    said = as_text(void).splitlines()
    assert said[1] == "orders that hold stock: none: void"
    assert said[-3:] == [
        "CPU us an order: generator 800, Redis 300",
        "void: the generator slept",
        "kept: 100 sold, none oversold, none refused wrongly, none stranded",
    ]
    assert as_json(result_of("segment-locks", 4, 90.0))["orders_per_s"] == 90.0


def test_times_of_different_machines_accuse_nobody() -> None:
    call_logs = [call_log_of(recorder_of(Sold(0.0))), call_log_of(recorder_of(Refused(7, 1))) | {"clock": "another"}]
    assert list(merged(call_logs).asked) == [float("-inf")] * 2


def test_more_users_than_a_cell_has_buyers_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"^-u 2000: Input should be less than or equal to 1000$"):
        cell_of(SimpleNamespace(**(OPTIONS | {"num_users": 2_000})), is_open=False)
