"""Strategies of one's own on real servers: measured in processes of their own, and checked like all others."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Final

import pytest

from bench.engine.cell import Cell, RunAssignment
from bench.engine.plan import grid_of, own_plan
from bench.engine.record import read_results
from bench.engine.session import MODULE, MeasuringProcess
from bench.strategies import STRATEGIES
from bench.strategies.own import OWN, add_strategy, find_own
from segmented.cli.main import run
from segmented.errors import InvalidInput, SegmentedError
from tests.support.bench.plans import ONE_CELL, written
from tests.support.command_line import ran_apart

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

GREEDY: Final = """
from dataclasses import replace

from bench.strategies.unlocked import NoLock


class Greedy(NoLock):
    name = "greedy"
    is_control = False
    guarantees = replace(NoLock.guarantees, never_oversells=True)
"""

LATE: Final = ("sold out too soon: ", "no order was sold in the measured window")
"""Why a run is void whose calibration stood still, so that the stock was too small, or that stood still itself."""
STRIPES: Final = """
import random
from dataclasses import replace

from redis.lock import Lock

from bench.strategies.base import Refused
from bench.strategies.counted import CountedStrategy


class Stripes(CountedStrategy):
    name = "stripes"
    summary = "redis-py's lock striped over K keys"
    guarantees = replace(CountedStrategy.guarantees, section="one a segment")
    has_segments = True

    def buy(self, order):
        while stripes := [stripe for stripe, left in enumerate(self.units_left()) if left]:
            stripe = random.choice(stripes)
            with Lock(self.client, f"{self.counters[stripe]}:lock", timeout=60, sleep=0.01):
                found = self.sell_guarded(order, stripe)
            if not isinstance(found, Refused):
                return self.sold_at(found, stripe)
        return self.refusal(order)
"""
FAILS: Final = """
from bench.strategies.counted import CountedStrategy


class Fails(CountedStrategy):
    name = "fails"
    summary = "fails at its first order"

    def buy(self, order):
        return 1 / 0
"""


def measured(folder: Path, text: str, class_name: str, name: str, *, segments: int = 4) -> tuple[int, str, Path]:
    """Measure one cell of a strategy of one's own; return exit code, error output and the file of results."""
    file, results = folder / "own.py", folder / "results"
    file.write_text(text, encoding="utf-8")
    cell = ('base = { strategy = "segment-locks", section', f'base = {{ strategy = "{name}", section')
    budget = ("budget = 60", "budget = 300")
    plan = written(
        folder, ONE_CELL, budget, ("axes = { segments = [4] } }", f"axes = {{ segments = [{segments}] }} }}"), cell
    )
    plan.write_text(plan.read_text(encoding="utf-8").replace("segments = [4] }", f"segments = [{segments}] }}"))
    words = ("--quick", "--plan", str(plan), "--strategy", f"{file}:{class_name}", "--report", str(results))
    done = ran_apart("bench", *words, url=None)
    return done.returncode, done.stderr, results / "results.jsonl"


@pytest.mark.long
def test_a_users_own_strategy_is_measured_in_its_own_process_and_audited(tmp_path: Path) -> None:
    code, wrong, file = measured(tmp_path, STRIPES, "Stripes", "stripes")
    found = read_results(file)
    (run,) = found.runs
    assert (code, wrong) == (0, "")
    late = all(why.startswith(LATE) for why in run.void)  # () of a machine that never stood still
    assert (late, run.orders_per_s is None) == (True, run.void != ())
    assert (run.cell.strategy, run.cell.segments, run.guarantees["section"]) == ("stripes", 4, "one a segment")
    assert (run.checker.oversold, run.checker.lost, run.checker.duplicates, run.checker.refused_wrongly) == (0, 0, 0, 0)
    assert run.checker.sold > 0
    assert list(found.session.environment["code"]["own_strategies"]) == ["stripes"]
    assert str(tmp_path) not in file.read_text(encoding="utf-8")

    code, wrong, _ = measured(tmp_path, STRIPES + "# another\n", "Stripes", "stripes")
    assert (code, wrong.count("\n")) == (2, 1)
    assert "has runs with another strategy of one's own" in wrong


def test_a_strategy_that_fails_has_no_rate_and_says_why(tmp_path: Path, valkey_url: str) -> None:
    own = find_own(f"{saved(tmp_path, FAILS)}:Fails")
    assignment = RunAssignment(
        cell=Cell(strategy="fails", section="none", buyers=2),
        own=own,
        url=valkey_url,
        meter_url=valkey_url,
        database=None,
        stock=20,
        seconds=60.0,
        warm_up=0.02,
    )
    with (
        closing(MeasuringProcess(MODULE)) as child,
        pytest.raises(
            SegmentedError, match=r"nothing was sold after the warm-up, .*: ZeroDivisionError: division by zero$"
        ),
    ):
        child.run(assignment, lambda *_: None, seconds=200.0)


GOOD: Final = """
from bench.strategies.counted import CountedStrategy
class Mine(CountedStrategy):
    name = "mine"
    summary = "one counter"
    has_segments = True
    def buy(self, order):
        return self.refusal(order)
"""


@pytest.fixture(autouse=True)
def _strategies_as_before() -> Iterator[None]:
    known = set(STRATEGIES)
    yield
    for name in set(STRATEGIES) - known:
        del STRATEGIES[name]
    OWN.clear()


def saved(folder: Path, text: str, name: str = "mine.py") -> Path:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return file


def test_it_is_compared_with_one_lock_segment_locks_and_no_lock(tmp_path: Path) -> None:
    file = saved(tmp_path, GOOD)
    other = saved(tmp_path, GOOD.replace('"mine"', '"plain"').replace("True", "False"), "plain.py")
    loaded = own_plan([add_strategy(f"{file}:Mine"), add_strategy(f"{other}:Mine")])
    assert [one.key for one in grid_of(loaded, is_quick=True).cells] == [
        "mine K=16 N=64 B=1 20ms",
        "plain K=1 N=64 B=1 20ms",
        "global-lock K=1 N=64 B=1 20ms",
        "segment-locks K=16 N=64 B=1 20ms",
        "lock-free K=16 N=64 B=1 20ms",
    ]
    assert len(grid_of(loaded).cells) == 15


MISTAKES: Final = [
    (GOOD, "Theirs", "the file has no class 'Theirs'; it has: Mine"),
    (GOOD.replace("def buy", "def sell"), "Mine", "Mine lacks buy"),
]


def test_a_mistake_is_one_sentence_and_exit_code_two_and_adds_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    known = dict(STRATEGIES)
    for text, class_name, sentence in MISTAKES:
        spec = f"{saved(tmp_path, text)}:{class_name}"
        assert run(["bench", "--quick", "--strategy", spec, "--report", str(tmp_path / "results")]) == 2
        assert capsys.readouterr().err == f"segmented: --strategy {spec}: {sentence}\n"
    assert (known, OWN, (tmp_path / "results").exists()) == (STRATEGIES, {}, False)


def test_a_file_that_changed_since_is_not_sold_with(tmp_path: Path) -> None:
    file = saved(tmp_path, GOOD)
    found = find_own(f"{file}:Mine")
    found.add()
    saved(tmp_path, GOOD + "# other")
    with pytest.raises(InvalidInput, match="has changed while its strategy was measured; measure again, into another"):
        found.add()


@pytest.mark.long
def test_a_strategy_that_oversells_against_its_promise_ends_with_one(tmp_path: Path) -> None:
    code, wrong, file = measured(tmp_path, GREEDY, "Greedy", "greedy", segments=1)
    (run,) = read_results(file).runs
    assert (code, wrong) == (1, f"{run.cell_id} (run 1) broke what it promises: oversold\n")
    assert run.orders_per_s is None
    assert run.checker.oversold > 0
