"""The checker reports broken promises; refusals, cases and the cost of work."""

import os
from array import array
from dataclasses import replace
from typing import Any, Final, cast

import psutil
import pytest
from rich.console import Console

from bench.conditions import busy_seconds, machine_core_count
from bench.demo import DemoRun, Results, bars, findings
from bench.engine.cell import Cell
from bench.engine.checker import broken_promises, check, surely_wrong
from bench.engine.meters import saturated
from bench.engine.record import Counts, Cpu
from bench.engine.sale import Recorder, Refusal, case_of, is_cancelled, refuse_case, whole_sale
from bench.figures import Figure, FigureResults
from bench.micro.workers import EMPTY_TASK, KINDS, Burst, Kind
from bench.micro.workers.measure import broken_figure, burst_figures
from bench.strategies import STRATEGIES
from bench.strategies.base import GaveUp, Refused, Sold, Strategy, Verdict
from bench.strategies.pooled import count_wrong
from segmented.errors import InvalidInput, StoreUnavailable
from segmented.models import EntryKind, LedgerEntry, Order
from segmented.stock import LedgerFold
from tests.support.bench.records import checker, demo_run
from tests.support.pools.ledgers import opened

CLEAN = Verdict(
    sold=2,
    available=0,
    sold_in_sql=None,
    oversold_in_redis=0,
    oversold_in_sql=0,
    refused_wrongly=0,
    audit="clean",
    sold_ids=frozenset({"1", "2"}),
)
SOLD, REFUSED, GAVE_UP = Sold(0.0), Refused(0, 1), GaveUp("no lock")


def seen(*calls: tuple[float, float, Sold | Refused | GaveUp]) -> Recorder:
    """Return what buyers saw: (asked, done, answer), numbered from 1."""
    recorder = Recorder()
    for number, (asked, done, answer) in enumerate(calls, start=1):
        recorder.note(0, number, [answer], intended=asked, asked=asked, done=done, quantity=1)
    return recorder


WHOLE = seen((0.0, 1.0, SOLD), (1.0, 2.0, SOLD), (2.0, 3.0, REFUSED))


def test_a_refusal_is_wrong_if_nobody_could_have_had_the_units_by_its_answer() -> None:
    for asked, done, wrong in (
        (0.0, 0.5, 1),  # answered before anybody else had asked
        (0.0, 1.0, 1),  # answered when the last one asked: that one cannot have been before
        (0.0, 1.5, 0),  # somebody who asked before the answer got the unit
        (2.0, 3.0, 0),
    ):
        assert surely_wrong(seen((asked, done, REFUSED), (1.0, 2.0, SOLD)), 1, 1) == wrong


def test_units_of_an_order_cancelled_after_the_last_request_are_not_stranded() -> None:
    late = replace(CLEAN, sold=1, available=1)
    for cancelled_at, stranded in ((1.5, 1), (2.0, 0), (3.5, 0)):  # the last buyer asked at 2.0
        found = check(WHOLE, late, opened=2, stocked=2, quantity=1, cancelled=1, came_in=[(cancelled_at, 1)])
        assert found.stranded == stranded


def test_what_the_servers_say_breaks_a_promise() -> None:
    cases: list[tuple[Verdict, str, int, str]] = [
        (replace(CLEAN, oversold_in_redis=3), "oversold", 3, "oversold by 3 units"),
        (replace(CLEAN, oversold_in_sql=4), "oversold", 4, "oversold by 4 units"),
        (replace(CLEAN, refused_wrongly=1), "refused_wrongly", 1, "orders refused while units were free: 1"),
        (replace(CLEAN, sold=1), "stranded", 1, "units that no order can get: 1"),
        (replace(CLEAN, sold=1, available=1), "stranded", 1, "units that no order can get: 1"),
        (replace(CLEAN, duplicates=2), "duplicates", 2, "orders with more than one effect: 2"),
        (replace(CLEAN, sold_ids=frozenset("1")), "lost", 1, "orders acknowledged and not known to the servers: 1"),
        (replace(CLEAN, sold_in_sql=1), "sold_in_sql", 1, "the pool has 2 units sold and the order database 1"),
    ]
    for verdict, field, count, sentence in cases:
        found = check(WHOLE, verdict, opened=2, stocked=2, quantity=1, cancelled=0)
        assert getattr(found, field) == count
        assert broken_promises(found, (), failed=0) == (sentence,)


def test_units_left_are_stranded_only_if_a_buyer_that_could_have_them_was_refused() -> None:
    left = replace(CLEAN, sold=1, available=1, sold_ids=frozenset("1"))
    unsold = seen((0.0, 1.0, SOLD))
    assert check(unsold, left, opened=2, stocked=2, quantity=1, cancelled=0).stranded == 0
    refused = seen((0.0, 1.0, SOLD), (1.0, 2.0, REFUSED))
    assert check(refused, left, opened=2, stocked=2, quantity=1, cancelled=0).stranded == 1
    assert check(refused, left, opened=2, stocked=2, quantity=2, cancelled=0).stranded == 0


def test_units_sold_to_an_order_that_was_told_otherwise_are_stranded() -> None:
    """The servers say that order 3 is sold. Its buyer was told "sold out"; that no lock was free; nothing at all."""
    known = replace(CLEAN, sold=3, sold_ids=frozenset("123"))
    refused = seen((0.0, 1.0, SOLD), (1.0, 2.0, SOLD), (2.0, 3.0, REFUSED))
    assert check(refused, known, opened=3, stocked=3, quantity=1, cancelled=0).stranded == 1
    failed = seen((0.0, 1.0, SOLD), (1.0, 2.0, SOLD), (2.0, 3.0, GAVE_UP))
    assert check(failed, known, opened=3, stocked=3, quantity=1, cancelled=0).stranded == 0
    cut_off = seen((0.0, 1.0, SOLD), (1.0, 2.0, SOLD))
    assert check(cut_off, known, opened=3, stocked=3, quantity=1, cancelled=0, unfinished=1).stranded == 0


def entry(sequence: int, kind: EntryKind, order_id: str | None, quantity: int, *, at_us: int = 0) -> LedgerEntry:
    return LedgerEntry(1, sequence, kind, at_us, order_id, quantity, ((0, quantity),), 0, None)


def fold_of(*entries: LedgerEntry) -> LedgerFold:
    fold = LedgerFold()
    fold.apply(entries)
    return fold


SALE = fold_of(
    opened(3, 1),
    entry(2, "reserved", "a", 2),
    entry(3, "reserved", "b", 1),
    entry(4, "cancelled", "a", 2),
    entry(5, "confirmed", "b", 1),
)


@pytest.mark.parametrize(
    ("sequence", "quantity", "wrong"), [(1, 3, 1), (1, 4, 0), (2, 1, 1), (2, 2, 0), (3, 1, 0), (4, 2, 1), (5, 3, 0)]
)
def test_a_refusal_is_wrong_where_the_units_free_covered_it(sequence: int, quantity: int, wrong: int) -> None:
    assert count_wrong([Refused(sequence, quantity)], SALE) == wrong


CELL: Final = Cell(strategy="segment-locks", segments=4, section="none")
SOLD_ORDER: Final = Sold(1.0, 2.0)
SEED: Final = 5


class FakeStrategy:
    """Notes what a case asks for."""

    def __init__(self, error: Exception | None = None) -> None:
        self.said: list[str] = []
        self._error = error

    def cancel(self, order: Order) -> None:
        self._note(f"cancel {order.order_id}")

    def restock(self, units: int) -> None:
        self._note(f"restock {units}")

    def _note(self, said: str) -> None:
        if self._error is not None:
            raise self._error
        self.said.append(said)


def case_state(strategy: FakeStrategy, units: int, **values: Any) -> Any:  # noqa: ANN401  # the state of a case, with a fake strategy
    cell = Cell.model_validate(CELL.model_dump() | values)
    return case_of(cell, cast("Strategy", strategy), units, SEED)


def test_a_restock_that_never_came_voids_the_run() -> None:
    one = case_state(FakeStrategy(), 9, case="restock")
    assert one.broken() == ("half of the units were not sold in time, so none came in",)
    refused = case_state(FakeStrategy(StoreUnavailable("away")), 2, case="restock")
    refused.after([Order("1", 1)], [SOLD_ORDER])
    assert refused.broken() == ("1 unit did not come in: StoreUnavailable: away",)
    assert refused.restocked == 0


def test_a_cancel_storm_follows_its_seed_and_opens_with_half_of_a_stock_that_lasts() -> None:
    strategy = FakeStrategy()
    one = case_state(strategy, 100, case="cancel-storm")
    orders = [Order(str(number), 3) for number in range(40)]
    one.after(orders, [SOLD_ORDER] * 40)
    chosen = [order.order_id for order in orders if is_cancelled(order.order_id, SEED)]
    assert one.opened == 50
    assert len(chosen) == 23
    assert strategy.said == [f"cancel {order_id}" for order_id in chosen]
    assert (one.cancelled, len(one.came_in)) == (69, 23)
    assert case_state(strategy, 100, case="cancel-storm", stock=100).opened == 100


REFUSED_CELLS: Final[list[tuple[dict[str, Any], str]]] = [
    ({"case": "one-unit", "stock": 2}, "the case one-unit is of a stock of 1, not 2"),
    (
        {"case": "restock", "loop": "open", "offered_per_s": 5.0},
        "the case restock is of a closed loop, and of a stock with an order in each half",
    ),
    (
        {"case": "cancel-storm", "section": "commit"},
        "segment-locks with commits cannot take a sold order back: the order database has confirmed it",
    ),
    (
        {"case": "restock", "strategy": "no-lock", "segments": 1},
        "no-lock cannot take units in while it sells, so it has no restock",
    ),
]


def test_a_case_that_cannot_be_is_refused_in_a_sentence() -> None:
    for values, sentence in REFUSED_CELLS:
        cell = Cell.model_validate(CELL.model_dump() | values)
        with pytest.raises(InvalidInput) as refused:
            refuse_case(cell, STRATEGIES[cell.strategy])
        assert str(refused.value) == sentence


def test_a_refusal_is_judged_by_what_had_come_in_before_it_was_asked() -> None:
    for asked, done, wrong in (
        (2.0, 3.0, 0),  # both units were taken by then
        (4.0, 4.5, 0),  # one came in at 5.0, which is later
        (4.0, 6.0, 0),  # it came in while the answer was made
        (5.5, 6.0, 1),  # it was there before the order was sent, and nobody else asked
        (5.5, 9.0, 0),  # somebody asked at 8.0, and may have taken it
    ):
        recorder = Recorder(
            asked=array("d", [0.0, 1.0, 8.0]),
            sold=array("i", [1, 1, 1]),
            failed=array("i", [0, 0, 0]),
            refusals=[Refusal(asked, done, 1)],
        )
        assert surely_wrong(recorder, 2, 1, came_in=[(5.0, 1)]) == wrong


def test_a_whole_sale_lasts_from_the_first_order_to_the_last_that_was_sold() -> None:
    recorder = Recorder(asked=array("d", [1.0, 0.5]), done=array("d", [2.0, 9.0]), sold=array("i", [1, 0]))
    assert whole_sale(recorder) == (0.5, 2.0)
    assert whole_sale(Recorder()) is None


def test_time_that_the_hypervisor_gave_to_others_is_not_counted_as_used(monkeypatch: pytest.MonkeyPatch) -> None:
    times = psutil.cpu_times()
    stolen = type(times)(**dict.fromkeys(times._fields, 0.0) | {"user": 3.0, "system": 2.0, "idle": 7.0, "steal": 4.0})
    monkeypatch.setattr(psutil, "cpu_times", lambda: stolen)
    assert busy_seconds() == 5.0


def test_a_generator_on_one_core_is_not_taken_for_the_whole_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1}, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    quiet = Cpu(generator=0.6, redis=0.4, database=None, machine=1.2, others=0.2, steal=0.0)
    assert saturated(quiet, cores=machine_core_count()) == ()
    busy = quiet.model_copy(update={"machine": 1.9})
    assert saturated(busy, cores=machine_core_count()) == ("machine",)


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


def test_a_ratio_is_the_median_of_ratios_within_rounds_and_not_a_ratio_of_medians() -> None:
    found = by_name(burst_figures(bursts(empty=[1_000, 2_000, 4_000], one=[900, 1_200, 2_800]), {}))
    ratio = found["one order a task, decided at acceptance / empty task"]
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx((0.7, 0.6, 0.9))
    assert ratio.at_least is None
    cpu = found["one order a task, decided at acceptance / empty task, by CPU of the workers"]
    assert cpu.value == pytest.approx(0.7)
    assert cpu.at_least is None


def test_bounds_are_those_asked_for_and_not_for_orders_decided_in_the_worker() -> None:
    bounds = {figure.name: figure.at_least for figure in burst_figures(bursts(), {}) if figure.at_least is not None}
    assert bounds == {
        "one order a task, decided at acceptance / empty task of Celery's own consumer, by CPU of the workers": 0.85,
        "envelopes of 100, decided at acceptance / one order a task, decided at acceptance": 20,
        "envelopes of 100, decided at acceptance, PostgreSQL / one order a task, decided at acceptance, PostgreSQL": 10,
    }


def test_a_part_that_the_checker_rejects_has_no_figures_and_breaks_the_promise() -> None:
    broken = {ONE.name: "999 of 1,000 orders were confirmed"}
    names = by_name(burst_figures(bursts(), broken))
    assert not any(ONE.name in name.split(" / ") or name.startswith(f"{ONE.name}:") for name in names)
    assert MANY.name in names
    promise = broken_figure(broken)
    assert (promise.value, promise.is_promise, promise.is_within) == (1, True, False)
    assert broken_figure({}).is_within
    assert not FigureResults("workers", (promise,), {}).is_kept


def found(*, held: bool | None) -> dict[str, Any]:
    return {"held": held, "evidence": "2 runs of 1 order", "seconds": 1.0}


CORES = 2
NO_LOCK = demo_run(
    "no-lock",
    lone_hold_ms=25.0,
    orders_per_s=1_800.0,
    checker=checker(stock=600, sold=20_000, sold_in_sql=20_000, oversold=19_400, audit="none"),
    void=("oversold by 19400 units",),
)
ONE_LOCK = demo_run("global-lock", lone_hold_ms=21.6, orders_per_s=45.0)
SEGMENTS = demo_run()
FREE = demo_run("lock-free", lone_hold_ms=27.83, orders_per_s=2_100.0)
RUNS = (NO_LOCK, ONE_LOCK, SEGMENTS, FREE)
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


def test_the_story_claims_nothing_of_a_run_that_broke_a_promise() -> None:
    broken = demo_run(void=("oversold by 3 units",))
    told = results(NO_LOCK, ONE_LOCK, broken, FREE).remarks
    assert not any("segment locks:" in line or "These three" in line for line in told)
    assert "segment-locks broke its promise: oversold by 3 units." in told
    busy = demo_run("lock-free", saturated=("machine",))
    assert (
        "All cores were busy in lock-free: close other programs and repeat."
        in results(NO_LOCK, ONE_LOCK, SEGMENTS, busy).remarks
    )


def test_the_control_must_answer_every_order() -> None:
    counts = Counts(planned=9, sent=9, sold=7, sold_out=0, failed=2, shed=0, first_failure="OSError: no")
    lost = demo_run("no-lock", counts=counts, void=("oversold by 1 unit",))
    assert (lost.rate, lost.violations) == (None, ("orders without an answer: 2, the first: OSError: no",))
    assert not results(lost, ONE_LOCK, SEGMENTS, FREE).is_kept


def test_a_run_that_broke_a_promise_has_no_ratio_and_no_throughput() -> None:
    broken = demo_run(void=("oversold by 3 units",))
    shown = results(NO_LOCK, ONE_LOCK, broken, FREE)
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
