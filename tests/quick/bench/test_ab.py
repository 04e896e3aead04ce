"""Two builds side by side: the statistics on runs whose truth is known, and options that are refused."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, Literal

import numpy as np
import pytest

from bench.ab.measure import AbResults, CellRecord
from bench.ab.statistics import Observed, Round, compare
from segmented.cli.main import run
from tests.support.bench.records import CELL

if TYPE_CHECKING:
    from collections.abc import Callable

Name = Literal["A", "B"]
ORDERS: Final[tuple[tuple[Name, Name, Name, Name], ...]] = (("A", "B", "B", "A"), ("B", "A", "A", "B"))
SESSIONS: Final = 1_000
ROUNDS: Final = 10


def session(rate: Callable[[Name, int, int], Observed], rounds: int = ROUNDS) -> list[Round]:
    """Rounds in both orders in turn; `rate` gets the build, the round and the place in the session."""
    found: list[Round] = []
    for number in range(rounds):
        one, two, three, four = (
            rate(name, number, 4 * number + place) for place, name in enumerate(ORDERS[number % len(ORDERS)])
        )
        found.append((one, two, three, four))
    return found


def drawn(chance: np.random.Generator, *, slower: float = 0.0, noise: float = 0.08) -> list[Round]:
    """A session in which the machine's speed wanders, runs differ, and B is slower by a share."""
    speeds = np.exp(np.cumsum(chance.normal(0, 0.02, 4 * ROUNDS)))

    def observed(name: Name, _: int, place: int) -> Observed:
        true = 800 * speeds[place] * (1 - slower if name == "B" else 1)
        return Observed(name, true * math.exp(chance.normal(0, noise)), 100 * speeds[place], 0.0)

    return session(observed)


def test_a_difference_without_any_noise_is_that_difference() -> None:
    found = compare(session(lambda name, *_: Observed(name, 80.0 if name == "B" else 100.0, 1.0, 0.0)))
    assert [found.a_rate, found.b_rate, found.rounds] == pytest.approx([100, 80, ROUNDS])
    assert [found.ratio.value, found.ratio.low, found.ratio.high] == pytest.approx([0.8] * 3)
    assert found.floor == pytest.approx(0, abs=1e-9)
    assert (found.verdict, found.why) == ("slower", "by 20.0%")


def test_a_machine_that_gets_slower_all_the_time_is_no_difference() -> None:
    found = compare(session(lambda name, _, place: Observed(name, 100.0 * 0.97**place, 1.0, 0.0)))
    assert found.plain == pytest.approx(1)
    assert found.ratio.value == pytest.approx(1)
    assert found.verdict == "no difference"


def test_what_the_speed_of_the_machine_and_stolen_time_explain_is_taken_out() -> None:
    chance = np.random.default_rng(1)

    def observed(name: Name, _: int, __: int) -> Observed:
        speed, steal = float(chance.uniform(50, 100)), float(chance.uniform(0, 0.3))
        return Observed(name, 10 * speed**0.7 * math.exp(-2 * steal) * (0.9 if name == "B" else 1), speed, steal)

    found = compare(session(observed))
    assert found.ratio.value == pytest.approx(0.9)
    assert abs(found.plain - 0.9) > 0.01
    assert (found.verdict, found.why) == ("slower", "by 10.0%")


@pytest.mark.long
def test_equal_code_differs_in_5_of_100_sessions_and_15_percent_is_found_in_80() -> None:
    """Of 100 sessions, at most 5 differ with the same code and at least 80 find a difference of 15 percent."""
    chance = np.random.default_rng(2)
    same = [compare(drawn(chance)).verdict for _ in range(SESSIONS)]
    assert sum(verdict != "no difference" for verdict in same) <= 0.05 * SESSIONS
    slower = [compare(drawn(chance, slower=0.15)).verdict for _ in range(SESSIONS)]
    assert sum(verdict == "slower" for verdict in slower) >= 0.8 * SESSIONS


def test_the_interval_of_ten_rounds_is_students() -> None:
    """The rounds have ratios of 0.8 and 1.0 by turns, as the machine's speed explains nothing."""
    found = compare(
        session(lambda name, number, _: Observed(name, 100.0 if name == "A" else (80.0, 100.0)[number % 2], 1.0, 0.0))
    )
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
    few = compare(rounds[:5])
    assert (few.ratio.low, few.floor, few.verdict) == (None, None, "not judged")
    assert few.why == "5 rounds give no interval: it takes 6"
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
