from typing import Any

import pytest

from bench.analysis.hypotheses import Judged, judge
from bench.analysis.intervals import Estimate
from bench.analysis.measured import cells_of, noise_floor
from bench.analysis.model_error import Calibration, calibrate, model_error
from bench.engine.percentiles import merged
from bench.engine.record import Run
from bench.report.crossover import crossovers
from tests.support.bench.records import CELL, file_of, rounds, run
from tests.support.bench.session import AA, CONTROL, GLOBAL, ONE_SCRIPT, whole_session

RATES = (100.0, 102.0, 98.0, 101.0, 99.0, 103.0, 97.0, 100.0, 100.0, 100.0)
ONE_LOCK = CELL.model_copy(update={"strategy": "global-lock", "segments": 1})


def test_times_of_runs_are_added_up_and_never_averaged() -> None:
    runs = [run(CELL, hold_ms=10.0, n=3_000), run(CELL, hold_ms=40.0, n=1_000)]
    found = merged(one.times.hold.encoded for one in runs)
    assert found.n == 4_000
    assert found.p50 == pytest.approx(10, rel=0.001)
    assert found.p90 == pytest.approx(40, rel=0.001)


def test_segments_beat_one_lock_from_two_on_and_a_script_never() -> None:
    found = {
        (one.strategy, one.against): one for one in crossovers(whole_session(), "segments") if "20ms" in one.setting
    }
    script = found["segment-locks", ONE_SCRIPT.strategy]
    assert (script.answer, script.first, script.interpolated) == ("never", None, None)
    lock = found["segment-locks", GLOBAL.strategy]
    assert lock.first == 2
    assert [point.wins for point in lock.points] == [False, True, True, False, True, True, True]
    assert "void at 8" in lock.sentence


def test_the_crossing_is_interpolated_on_logarithmic_axes() -> None:
    script = CELL.model_copy(update={"strategy": "one-script", "segments": 1})
    four, sixteen = (CELL.model_copy(update={"segments": number}) for number in (4, 16))
    runs = [*rounds(script, [100.0] * 3), *rounds(four, [50.0] * 3), *rounds(sixteen, [200.0] * 3)]
    found, *others = crossovers(file_of(runs), "segments")
    assert others == []
    assert (found.answer, found.first) == ("from", 16)
    assert found.interpolated == pytest.approx(8)
    assert found.sentence == (
        "segment-locks against one-script (N=64 B=1 20ms rtt=0ms): from K = 16 on, by interpolation from 8."
    )


def test_a_value_without_a_rival_is_in_no_sentence() -> None:
    lone, both, more = (CELL.model_copy(update={"hold_ms": hold}) for hold in (1.0, 5.0, 20.0))
    rivals = [one.model_copy(update={"strategy": "lock-free"}) for one in (both, more)]
    ours = [run for cell in (lone, both, more) for run in rounds(cell, [50.0] * 3)]
    theirs = [run for cell in rivals for run in rounds(cell, [100.0] * 3)]
    (found,) = crossovers(file_of([*ours, *theirs]), "hold_ms")
    assert [point.value for point in found.points] == [5, 20]
    assert found.sentence.endswith(": never, at hold in ms = 5, 20.")
    assert crossovers(file_of([*ours, *theirs[:3]]), "hold_ms") == ()


def test_a_void_cell_never_wins_and_batches_win_from_four_on() -> None:
    assert [one.first for one in crossovers(whole_session(), "batch", rivals=["one-script"])] == [4]
    void = [found.model_copy(update={"void": ("x",), "orders_per_s": None}) for found in rounds(CELL, RATES[:3])]
    two = [*void, *rounds(CELL.model_copy(update={"segments": 4}), [900.0] * 3), *rounds(ONE_LOCK, [48.0] * 3)]
    found = crossovers(file_of(two), "segments")[0]
    assert [point.wins for point in found.points] == [True, False]
    assert found.answer == "mixed"


def test_hypotheses_of_the_plan_are_judged_where_a_machine_can() -> None:
    def asked(*expect: dict[str, Any]) -> dict[str, Any]:
        return {"id": "H", "sentence": "so", "sweep": "segments", "refuted_by": "else", "expect": list(expect)}

    many, one = {"strategy": "segment-locks", "segments": 32}, {"strategy": "global-lock"}
    fast, slow = ({"of": many, "over": one, "at_least": least} for least in (25, 10_000))
    plan = {
        "hypotheses": [
            asked(fast, {"figure": "noise-floor", "at_most": 0.05}),
            asked(fast, slow),
            asked({"figure": "oversold", "of": {"strategy": "no-lock"}, "at_least": 1}),
            asked({"figure": "refused-wrongly", "of": {"strategy": "segment-locks"}, "at_most": 0}),
            asked({"figure": "model-error", "at_most": 0.1}),
            asked({"of": {"strategy": "global-lock", "hold_ms": 5.0}, "over": one, "at_least": 3}),
            asked(fast, {"of": {"strategy": "segment-locks"}, "at_least": 1}),
            asked({"of": {"speed": 1}, "at_least": 1}),
            asked({"of": {**many, "segments": 8}, "at_least": 1}),
            asked(),
        ]
    }
    found = judge(file_of(whole_session().runs, plan=plan))
    kept = ["kept", "refuted", "kept", "refuted", "kept", "kept", *["undecided"] * 4]
    assert [one.verdict for one in found] == kept
    assert "7 cells have strategy = segment-locks" in found[6].why
    assert "a cell has no 'speed'" in found[7].why
    assert "has void runs: orders refused while units were free: 1" in found[8].why
    assert found[9].why == "no machine can check it: read the figures of its sweep"
    assert judge(whole_session()) == ()


def test_the_p99_of_an_open_loop_is_that_of_all_samples_of_the_runs_that_count() -> None:
    def at(percent: float, rate: float, *waits: float, **changes: Any) -> list[Run]:  # noqa: ANN401  # any field of a run
        cell = CELL.model_copy(update={"loop": "open", "offered_per_s": rate})
        return [
            run(cell, wait_ms=wait, wait_cv=0.0, round=place, sweeps=("load",), offered_percent=percent, **changes)
            for place, wait in enumerate(waits)
        ]

    late = at(95.0, 95.0, 9_000.0, void=("the generator was late",))
    runs = [*at(20.0, 20.0, 10.0, 10.0, 10.0), *at(95.0, 95.0, 90.0, 90.0, 200.0), *late]
    p99 = [
        merged([one.times.response.encoded for one in part if one.times.response]).p99 for part in (runs[3:6], runs[:3])
    ]
    assert p99[0] is not None
    assert p99[1] is not None
    ratio = p99[0] / p99[1]

    def judged(least: float) -> Judged:
        expect = [{"figure": "p99", "of": {"percent": 95}, "over": {"percent": 20}, "at_least": least}]
        return judge(file_of(runs, plan={"hypotheses": [{"id": "H", "sweep": "load", "expect": expect}]}))[0]

    assert ratio > 5
    assert judged(ratio * 0.99).verdict == "kept"
    found = judged(ratio * 1.01)
    assert (found.verdict, found.figures[0].low) == ("undecided", ratio)  # the void run would have kept it
    assert (found.figures[0].high or 0) > 200
    runs = [one for one in runs if not one.void]
    assert judged(ratio * 1.01).verdict == "refuted"
    assert judged(1).figures[0].n == 3


def test_a_run_that_was_lost_in_the_first_round_changes_no_verdict() -> None:
    lost = {"void": ("the run ended without a record: killed",), "orders_per_s": None, "lanes": 0, "window_s": 0.0}
    more = [one.model_copy(update=lost) if one.round == 0 else one for one in rounds(CELL, [900.0] * 6)]
    found = file_of([*more, *rounds(ONE_LOCK, [48.0] * 6)], plan={"hypotheses": [
        {"id": "H", "expect": [{"of": {"segments": 20}, "over": {"segments": 1}, "at_least": 18}]}
    ]})  # fmt: skip
    assert min(one.round for one in more) == 0
    assert [one.verdict for one in judge(found)] == ["kept"]
    assert cells_of(found)[CELL.cell_id].lanes == 20
    assert [one.answer for one in crossovers(found, "segments", points_min=1)] == ["always"]
    half = [one.model_copy(update=lost) if one.round % 2 else one for one in rounds(CELL, [900.0] * 6)]
    assert cells_of(file_of(half))[CELL.cell_id].void == ("the run ended without a record: killed",)


def test_the_more_rates_a_plan_asks_for_the_wider_each_interval() -> None:
    def widths(count: int) -> list[float]:
        expect = [{"of": {"segments": 20}, "at_least": 1}] * count + [{"figure": "noise-floor", "at_most": 1}]
        (found,) = judge(file_of(rounds(CELL, RATES), plan={"hypotheses": [{"id": "H", "expect": expect}]}))
        return [(one.high or 0) - (one.low or 0) for one in found.figures]

    alone, twelve = widths(1), widths(12)
    assert len(twelve) == 12
    assert twelve[0] / alone[0] == pytest.approx(3.8362 / 2.2622, rel=0.01)  # t of 9 degrees at 95 % and 99.6 %


def test_the_same_twice_has_no_noise() -> None:
    found = noise_floor(file_of(rounds(CELL, RATES) + rounds(CELL, RATES, arm="B")))
    assert found.floor == 0
    assert [row.cell_id for row in found.rows] == [CELL.cell_id]


def test_the_floor_is_the_far_end_of_the_interval_in_either_direction() -> None:
    assert Estimate(1.0, 0.8, 1.1, 9, "t").deviation == pytest.approx(0.25)
    assert Estimate(1.0, 0.99, 1.1, 9, "t").deviation == pytest.approx(0.1)
    assert 0.005 < (noise_floor(whole_session()).floor or 0) < 0.02


def test_the_hold_comes_from_one_lane_and_the_hand_over_from_one_buyer() -> None:
    alone = CELL.model_copy(update={"buyers": 1})
    runs = [
        run(CELL, hold_ms=30.0),
        run(ONE_LOCK, hold_ms=20.0, orders_per_s=1.0),
        run(alone, hold_ms=20.0, wait_ms=0.7),
    ]
    cells = cells_of(file_of(runs))
    found = calibrate(CELL, cells.values())
    assert isinstance(found, Calibration)
    assert (found.hold, found.hand_over) == pytest.approx((20, 0.7), rel=0.001)
    assert found.cells == (alone.cell_id,)
    other = calibrate(CELL.model_copy(update={"hold_ms": 5}), cells.values())
    assert other == "no cell of one lane has this critical section (5ms), so S is not known"


def test_a_throughput_does_not_move_the_calibration() -> None:
    slow, fast = (
        calibrate(CELL, cells_of(file_of([run(ONE_LOCK, orders_per_s=rate, wait_ms=1_000.0)])).values())
        for rate in (10.0, 50.0)
    )
    assert slow == fast


def test_the_model_error_counts_neither_what_told_the_hold_nor_what_was_saturated() -> None:
    found = model_error(whole_session())
    counted = {point.cell_id for point in found.points if point.counts}
    assert AA.cell_id in counted
    assert AA.model_copy(update={"segments": 1}).cell_id not in counted
    assert AA.model_copy(update={"segments": 64}).cell_id not in counted
    assert found.without[CONTROL.cell_id] == "the control is run to be seen failing"
    assert found.largest is not None
    assert found.largest < 0.02
    said = " ".join(found.sentences())
    assert "segment-locks K=64 N=64 B=1 20ms (generator; +" in said
    assert "Left out, because the hold was read from them: " in said
