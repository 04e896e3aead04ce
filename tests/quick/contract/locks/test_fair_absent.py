"""A fair lock's queue when those in it are gone, stand still, or come back: what that costs those behind them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from segmented import protocol as op
from segmented.models import Held
from tests.support.contract.locks.fair_queue import DYING_MS, HASTY, LAPSED, TIMES, Queue

if TYPE_CHECKING:
    from tests.fixtures.stores import Side


def test_d13_any_number_who_are_absent_are_dropped_in_one_step(side: Side) -> None:
    queue = Queue(side)
    queue.take("holder")
    queue.times = op.FairTimes(presence_ms=1, look_ms=12_000, claim_ms=2_000)
    for index in range(200):
        queue.ask(f"dead {index}")
    queue.times = TIMES
    side.pass_time(LAPSED)
    assert isinstance(queue.ask("living"), Held)
    queue.release("holder")
    assert queue.take("living").replay is False


def test_d13_fifty_of_a_process_that_stands_still_cost_one_claim_in_all(side: Side) -> None:
    queue = Queue(side, HASTY)
    queue.take("holder")
    queue.wait(*[f"stopped {index}" for index in range(50)], process="stopped")
    queue.wait("living", "last")
    queue.release("holder")
    side.pass_time(LAPSED)
    assert queue.take("living").replay is False


def test_the_first_word_of_a_process_that_goes_on_has_all_its_places_again(side: Side) -> None:
    queue = Queue(side, HASTY)
    queue.take("holder")
    queue.wait("0", "1", "2", process="stopped")
    queue.wait("next", "last")
    queue.release("holder")
    side.pass_time(LAPSED)
    queue.take("next")
    queue.times = TIMES
    queue.wait("1", process="stopped")
    for holder_id in ("0", "1", "2"):
        queue.release("next" if holder_id == "0" else f"{int(holder_id) - 1}")
        queue.wait("last")
        queue.take(holder_id, process="stopped")
    queue.release("2")
    queue.take("last")


def test_whoever_has_been_absent_comes_back_as_a_newcomer(side: Side) -> None:
    queue = Queue(side, op.FairTimes(presence_ms=DYING_MS, look_ms=12_000, claim_ms=2_000))
    queue.take("holder")
    queue.wait("slept")
    side.pass_time(LAPSED)
    queue.times = TIMES
    queue.wait("came later", "slept")
    queue.release("holder")
    queue.wait("slept")
    queue.take("came later")
