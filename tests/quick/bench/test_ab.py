"""Two versions compared: rounds, intervals and findings."""

import math
from collections.abc import Callable
from typing import Final, Literal

import numpy as np
import pytest

from bench.ab import AbResults, CellRecord, Round, compare
from bench.analysis.intervals import Estimate, mean_of, median_of, rate_of
from bench.figures import Figure, FigureResults
from bench.micro.locks.measure import interval
from segmented.cli.main import run
from tests.support.bench.records import CELL

SESSIONS: Final = 1_000

Name = Literal["A", "B"]
ORDERS: Final[tuple[tuple[Name, Name, Name, Name], ...]] = (("A", "B", "B", "A"), ("B", "A", "A", "B"))
ROUNDS: Final = 10


def session(rate: Callable[[Name, int, int], float], rounds: int = ROUNDS) -> list[Round]:
    """Rounds in both orders in turn; `rate` gets the build, the round and the place in the session."""
    found: list[Round] = []
    for number in range(rounds):
        each: dict[Name, list[float]] = {"A": [], "B": []}
        for place, name in enumerate(ORDERS[number % len(ORDERS)]):
            each[name].append(rate(name, number, 4 * number + place))
        (a_first, a_second), (b_first, b_second) = each["A"], each["B"]
        found.append(Round((a_first, a_second), (b_first, b_second)))
    return found


def drawn(chance: np.random.Generator, *, slower: float = 0.0, noise: float = 0.08) -> list[Round]:
    """A session in which the machine's speed wanders, runs differ, and B is slower by a share."""
    speeds = np.exp(np.cumsum(chance.normal(0, 0.02, 4 * ROUNDS)))

    def rate(name: Name, _: int, place: int) -> float:
        true = 800 * speeds[place] * (1 - slower if name == "B" else 1)
        return float(true * math.exp(chance.normal(0, noise)))

    return session(rate)


def test_the_interval_of_ten_rounds_is_students() -> None:
    """The rounds have ratios of 0.8 and 1.0 by turns."""
    found = compare(session(lambda name, number, _: 100.0 if name == "A" else (80.0, 100.0)[number % 2]))
    half = 2.2621571627 * math.log(1 / 0.8) / 6  # t of 9 degrees of freedom, from a printed table
    middle = math.log(0.8) / 2
    expected = [math.exp(middle + by) for by in (0, -half, half)]
    assert [found.ratio.value, found.ratio.low, found.ratio.high] == pytest.approx(expected)


def test_several_cells_have_wider_intervals_and_too_few_rounds_none() -> None:
    rounds = drawn(np.random.default_rng(4))
    one, many = compare(rounds).ratio, compare(rounds, cells=20).ratio
    assert one.low is not None
    assert one.high is not None
    assert many.low is not None
    assert many.high is not None
    assert many.low < one.low < one.high < many.high
    few = compare(rounds[:2])
    assert (few.ratio.low, few.floor, few.verdict) == (None, None, "not judged")
    assert few.why == "2 runs give no interval: it takes 3"
    with pytest.raises(ValueError, match="there is no round to compare"):
        compare([])


def test_b_is_worse_if_it_is_slower_or_breaks_a_promise_and_a_may_be_anything() -> None:
    def record(slower: float = 0.0, *broken: str) -> CellRecord:
        return CellRecord(CELL, (), compare(drawn(np.random.default_rng(5), slower=slower, noise=0.01)), (), broken)

    def is_worse(*records: CellRecord) -> bool:
        return AbResults("A", "B", records, {}).is_worse

    assert not is_worse(record(), record(-0.5), record(0.0, "A broke a promise in round 1: oversold"))
    assert is_worse(record(), record(0.5))
    assert is_worse(record(0.0, "B broke a promise in round 1: oversold"))


def test_a_bad_option_is_one_sentence_and_exit_code_two(capsys: pytest.CaptureFixture[str]) -> None:
    neither = "neither a commit of this checkout nor a folder with 'segmented' in it"
    for options, sentence in (
        (["--against", "--output=x"], f"--against --output=x: {neither}"),
        (["--strategy", "nix"], "--strategy nix: unknown strategy; known are: no-lock,"),
    ):
        assert run(["bench", "ab", *options]) == 2
        assert capsys.readouterr().err.startswith(f"segmented: {sentence}")


RATES: Final = (100.0, 102.0, 98.0, 101.0, 99.0, 103.0, 97.0, 100.0, 100.0, 100.0)


def test_an_interval_of_rates_holds_their_geometric_mean_and_is_students() -> None:
    found = rate_of(RATES)
    logs = np.log(RATES)
    half = 2.2621571627 * logs.std(ddof=1) / math.sqrt(10)  # t of 9 degrees of freedom, from a printed table
    assert (found.n, found.method) == (10, "t")
    assert (found.value, found.low, found.high) == pytest.approx(
        [math.exp(logs.mean() + by) for by in (0, -half, half)], rel=1e-9
    )


def test_two_runs_have_no_interval_and_equal_ones_have_a_point() -> None:
    two = mean_of([1.0, 3.0])
    assert (two.value, two.low, two.high, two.why_no_interval) == (2, None, None, "2 runs give no interval: it takes 3")
    assert str(two) == "2 (n = 2, no interval)"
    assert mean_of([5.0] * 4) == Estimate(5.0, 5.0, 5.0, 4, "all equal")
    assert str(mean_of([51_521.0] * 4)) == "51,521"
    assert str(Estimate(27_740.4, 25_790, 30_240, 10, "t")) == "27,740 [25,790, 30,240]"
    for estimate in (mean_of, rate_of, median_of):
        with pytest.raises(ValueError, match="no run to estimate from"):
            estimate([])


CONDITIONS = {"versions": {"python": "3"}, "cores": 2, "cpu_model": "a processor", "commit": None}


def test_a_count_beyond_its_bound_fails_the_run_and_a_time_does_not() -> None:
    slow = Figure("cycle", 9.0, "us", at_most=1.0)
    lost = Figure("lost", 1.0, "", at_most=0, is_promise=True)
    assert not slow.is_within
    assert FigureResults("locks", (slow,), CONDITIONS).is_kept
    assert not FigureResults("locks", (slow, lost), CONDITIONS).is_kept


def test_the_interval_holds_the_median_of_what_it_was_drawn_from() -> None:
    values = np.linspace(0.0, 1.0, 101)
    low, high = interval(values)
    assert interval(np.full(10, 0.75)) == (0.75, 0.75)
    assert 0.3 < low < 0.5 < high < 0.7


def test_a_machine_that_gets_slower_all_the_time_is_no_difference() -> None:
    found = compare(session(lambda _, __, place: 100.0 * 0.97**place))
    assert found.ratio.value == pytest.approx(1)
    assert found.floor is not None
    assert found.floor < 0.03  # a drift that did not cancel would make it 0.06
    assert found.verdict == "no difference"


@pytest.mark.long
def test_equal_code_differs_in_5_of_100_sessions_and_15_percent_is_found_in_80() -> None:
    """Of 100 sessions, at most 5 differ with the same code and at least 80 find a difference of 15 percent."""
    chance = np.random.default_rng(2)
    same = [compare(drawn(chance)).verdict for _ in range(SESSIONS)]
    assert sum(verdict != "no difference" for verdict in same) <= 0.05 * SESSIONS
    slower = [compare(drawn(chance, slower=0.15)).verdict for _ in range(SESSIONS)]
    assert sum(verdict == "slower" for verdict in slower) >= 0.8 * SESSIONS


def test_a_bound_is_kept_if_its_whole_interval_is_and_unclear_if_only_the_value_is() -> None:
    figures = [Figure("ratio", value, "", value - 0.1, value + 0.1, at_most=1.0) for value in (0.85, 0.95, 1.05, 1.15)]
    assert [(figure.kept, figure.is_within) for figure in figures] == [
        ("yes", True),
        ("unclear", False),
        ("no", False),
        ("no", False),
    ]
