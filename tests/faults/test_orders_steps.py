"""F17, F26, F27: a step that fails for one order, that ends its process, or whose provider is away."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING, Final

import psutil
import pytest

from segmented import protocol as op
from segmented.plans import run_sync
from segmented.stock.outbox import dead_plan
from tests.support.long_run import in_the_long_run
from tests.support.workers.order_floor import QUEUE, STEP_IN_WORKER, WITH_STEP
from tests.support.workers.selling import until

if TYPE_CHECKING:
    from tests.fixtures.order_floors import FloorFactory
    from tests.support.workers.order_floor import Floor, Mode

MANY: Final = 2_000
ENVELOPES: Final = MANY // 100
AWAY_SECONDS: Final = 3.0
GROWTH_MAX: Final = 64 * 1024 * 1024
"""Bytes that a worker may grow by: two thousand tasks that wait in its memory would be about as much by themselves."""


@pytest.mark.parametrize("mode", [*in_the_long_run(WITH_STEP), STEP_IN_WORKER], ids=str)
def test_f17_an_order_whose_step_raises_is_tried_again_then_given_up_and_spoils_nothing(
    open_floor: FloorFactory, mode: Mode
) -> None:
    """Once it can be done, it is taken out of the dead-letter set and done."""
    floor = open_floor(mode, environment={"SEGMENTED_ATTEMPTS_MAX": "3"})
    floor.flag("broken-o3")
    worker = floor.worker()
    floor.submit([(f"o{number}", 1 + number) for number in range(20)])
    until(lambda: len(floor.undecided()) == 1)
    assert floor.runs("broken")["o3"] == 1
    floor.until_decided()
    [dead] = run_sync(dead_plan(floor.pool.sku), floor.pool.store)
    assert (dead.order_id, dead.begun, dead.reason) == ("o3", 3, "ValueError: this order cannot be")
    assert (floor.runs("broken"), floor.runs()["o3"]) == ({"o3": 3}, 0)
    floor.check(dead=["o3"])
    floor.unflag("broken-o3")
    floor.pool.store.execute(op.ReplayDead(floor.pool.sku, ("o3",)))
    floor.until_decided()
    floor.check()
    assert floor.runs() == dict.fromkeys(floor.quantities, 1)
    assert worker.is_running


def test_f26_an_order_that_kills_its_worker_is_given_up_after_five_and_the_pool_lives_on(
    open_floor: FloorFactory,
) -> None:
    floor = open_floor(WITH_STEP, publish_after=0.5)
    floor.flag("poison-o3")
    worker = floor.worker(pool="prefork", concurrency=2)
    floor.submit([(f"o{number}", 1) for number in range(20)])
    floor.until_decided(seconds=60)
    [dead] = run_sync(dead_plan(floor.pool.sku), floor.pool.store)
    assert (dead.order_id, dead.begun) == ("o3", 5)
    assert floor.runs("poison") == {"o3": 5}
    assert worker.is_running
    floor.submit([("next", 1)])
    floor.until_decided(sweeping=False)
    floor.check(dead=["o3"])


def test_f26_an_order_that_kills_whole_workers_is_given_up_and_costs_no_other_order(open_floor: FloorFactory) -> None:
    """With one process a worker, each time is the end of a worker; its supervisor starts the next."""
    floor = open_floor(STEP_IN_WORKER, publish_after=0.5, environment={"SEGMENTED_ATTEMPTS_MAX": "3"})
    floor.flag("poison-o3")
    worker = floor.worker(pool="solo")
    floor.submit([(f"o{number}", 1) for number in range(20)])
    ends = []

    def is_so() -> bool:
        nonlocal worker
        if not worker.is_running:
            ends.append(worker.wait())
            worker = floor.worker(pool="solo")
        floor.sweep()
        return not floor.undecided()

    until(is_so, seconds=60)
    assert ends == [-signal.SIGKILL] * 3
    floor.check(dead=["o3"])


@pytest.mark.parametrize("mode", [*in_the_long_run(WITH_STEP), STEP_IN_WORKER], ids=str)
def test_f27_two_thousand_orders_whose_provider_is_away_wait_in_the_outbox_and_nowhere_else(
    open_floor: FloorFactory, mode: Mode
) -> None:
    """Neither the queue nor a worker's memory fills meanwhile, and all are done when the provider is back."""
    floor = open_floor(mode, stock=MANY, environment={"SEGMENTED_SWEEP_EVERY": "0.3"})
    floor.flag("down")
    worker = floor.worker(concurrency=2)
    began_with = psutil.Process(worker.pid).memory_info().rss
    floor.submit([(f"o{number}", 1) for number in range(MANY)], envelopes_of=100)
    with floor.beat():
        waited, in_hand = _watched(floor, AWAY_SECONDS)
        until(lambda: max(floor.runs("away").values()) >= 2, seconds=60)
        assert len(floor.runs("away")) == MANY
        assert (waited <= 3 * ENVELOPES, in_hand <= 8) == (True, True), (waited, in_hand)
        assert len(floor.undecided()) == MANY
        grown = psutil.Process(worker.pid).memory_info().rss - began_with
        assert grown < GROWTH_MAX
        floor.unflag("down")
        floor.until_decided(sweeping=False)
    floor.check()
    assert floor.runs() == dict.fromkeys(floor.quantities, 1)


def _watched(floor: Floor, seconds: float) -> tuple[int, int]:
    """Return the most messages that waited in the queue, and in the worker, in so many seconds."""
    waited, in_hand, end = 0, 0, time.monotonic() + seconds
    while time.monotonic() < end:
        waited, in_hand = max(waited, floor.messages.llen(QUEUE)), max(in_hand, floor.in_hand())
        time.sleep(0.02)
    return waited, in_hand
