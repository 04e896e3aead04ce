"""Workers that stand still past every timeout and go on, and workers that are stopped in order under load (F24)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.long_run import in_the_long_run
from tests.order_floor import AT_ONCE, GATED, GATED_AT_ONCE, IN_WORKER, QUEUE, STEP_IN_WORKER, WITH_STEP
from tests.selling import until

if TYPE_CHECKING:
    from segmented.testing.worker_process import WorkerProcess
    from tests.fixtures.order_floors import FloorFactory
    from tests.order_floor import Mode


def has_settled(worker: WorkerProcess, envelopes: int) -> bool:
    return worker.passed().count("after:SettleMany") >= envelopes


@pytest.mark.parametrize(
    ("mode", "point"),
    [
        (IN_WORKER, "after:TakeOrders"),
        (GATED, "before:commit"),
        *in_the_long_run((AT_ONCE, "before:SettleMany"), (WITH_STEP, "before:SettleMany")),
        *in_the_long_run((GATED_AT_ONCE, "after:commit")),
    ],
    ids=str,
)
def test_a_worker_that_is_frozen_past_every_timeout_and_goes_on_changes_nothing(
    open_floor: FloorFactory, mode: Mode, point: str
) -> None:
    floor = open_floor(mode, publish_after=0.5)
    slow = floor.worker(pause_at=point)
    floor.submit([(f"o{number}", 1 + number) for number in range(10)])
    slow.reached(point)
    slow.freeze()
    other = floor.worker()
    floor.until_decided()
    decided = floor.states()
    slow.resume()
    slow.release(point)
    slow.reached("after:ack")
    assert floor.states() == decided
    floor.check()
    assert "after:SettleMany" in other.passed()
    if mode.has_step:
        assert floor.runs() == dict.fromkeys(floor.quantities, 2)


@pytest.mark.parametrize(
    ("pool", "mode"), [("threads", STEP_IN_WORKER), *in_the_long_run(("prefork", GATED_AT_ONCE))], ids=str
)
def test_f24_workers_that_are_stopped_under_load_lose_nothing_and_leave_nothing_in_hand(
    open_floor: FloorFactory, pool: str, mode: Mode
) -> None:
    """Nobody sweeps, and the visibility timeout is a minute: what is left stands in the queue at once."""
    floor = open_floor(mode, publish_after=60.0)
    floor.flag("seconds", "0.002")
    floor.submit([(f"o{number}", 1) for number in range(600)], envelopes_of=5)
    for _ in range(2):
        worker = floor.worker(pool=pool, concurrency=2)
        until(partial(has_settled, worker, 5))
        assert worker.stop() == 0
        assert floor.in_hand() == 0
        # A prefork child may have finished what its parent did not hear of any more: that comes once more.
        assert 0 < len(floor.undecided()) <= 5 * floor.messages.llen(QUEUE)
    floor.worker(concurrency=2)
    floor.until_decided(sweeping=False)
    floor.check()
    if mode.has_step:
        assert floor.runs() == dict.fromkeys(floor.quantities, 1)
