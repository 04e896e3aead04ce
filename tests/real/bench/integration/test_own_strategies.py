"""Strategies of one's own on real servers: measured in processes of their own, and checked like all others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench.engine.record import read_results
from tests.support.bench.plans import ONE_CELL, written
from tests.support.command_line import ran_apart

if TYPE_CHECKING:
    from pathlib import Path

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
GREEDY: Final = """
from dataclasses import replace

from bench.strategies.unlocked import NoLock


class Greedy(NoLock):
    name = "greedy"
    is_control = False
    guarantees = replace(NoLock.guarantees, never_oversells=True)
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


def test_a_strategy_of_ones_own_is_measured_in_a_process_of_its_own_and_its_books_are_checked(tmp_path: Path) -> None:
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


def test_a_strategy_that_oversells_against_its_promise_ends_with_one(tmp_path: Path) -> None:
    code, wrong, file = measured(tmp_path, GREEDY, "Greedy", "greedy", segments=1)
    (run,) = read_results(file).runs
    assert (code, wrong) == (1, f"{run.cell_id} (run 1) broke what it promises: oversold\n")
    assert run.orders_per_s is None
    assert run.checker.oversold > 0


def test_a_strategy_that_fails_has_no_rate_and_says_why(tmp_path: Path) -> None:
    code, _, file = measured(tmp_path, FAILS, "Fails", "fails", segments=1)
    (run,) = read_results(file).runs
    assert (code, run.orders_per_s) == (0, None)
    assert "ZeroDivisionError" in run.void[0]
