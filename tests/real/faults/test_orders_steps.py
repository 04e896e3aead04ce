"""F17, F26, F27: a step that fails for one order, that ends its process, or whose provider is away."""

import time
from typing import Final

import psutil
import pytest

from segmented import protocol as op
from segmented.plans import run_sync
from segmented.stock.outbox import dead_plan
from tests.fixtures.order_floors import OrderSystemFactory
from tests.support.workers.order_floor import QUEUE, STEP_IN_WORKER, WITH_STEP, OrderSystem
from tests.support.workers.selling import until

MANY: Final = 2_000
ENVELOPES: Final = MANY // 100
AWAY_SECONDS: Final = 3.0
WORK_SECONDS: Final = 20.0
"""Seconds for which orders stay with their worker, though it stands still for a while."""
GROWTH_MAX: Final = 64 * 1024 * 1024
"""Bytes that a worker may grow by: two thousand tasks that wait in its memory would be about as much by themselves."""


def test_f17_an_order_whose_step_raises_is_tried_again_then_given_up_alone(open_system: OrderSystemFactory) -> None:
    """Once it can be done, it is taken out of the dead-letter set and done."""
    system = open_system(STEP_IN_WORKER, environment={"SEGMENTED_ATTEMPTS_MAX": "3"})
    system.flag("broken-o3")
    worker = system.worker()
    system.submit([(f"o{number}", 1 + number) for number in range(20)])
    until(lambda: len(system.undecided()) == 1)
    assert system.runs("broken")["o3"] == 1
    system.until_decided()
    [dead] = run_sync(dead_plan(system.pool.sku), system.pool.store)
    assert (dead.order_id, dead.begun, dead.reason) == ("o3", 3, "ValueError: this order cannot be")
    assert (system.runs("broken"), system.runs()["o3"]) == ({"o3": 3}, 0)
    system.check(dead=["o3"])
    system.unflag("broken-o3")
    system.pool.store.execute(op.ReplayDead(system.pool.sku, ("o3",)))
    system.until_decided()
    system.check()
    assert system.runs() == dict.fromkeys(system.quantities, 1)
    assert worker.is_running


def test_f26_an_order_that_kills_its_worker_is_given_up_after_5_and_the_pool_goes_on(
    open_system: OrderSystemFactory,
) -> None:
    system = open_system(WITH_STEP, publish_after=0.5)
    system.flag("poison-o3")
    worker = system.worker(pool="prefork", concurrency=2)
    system.submit([(f"o{number}", 1) for number in range(20)])
    system.until_decided()
    [dead] = run_sync(dead_plan(system.pool.sku), system.pool.store)
    assert (dead.order_id, dead.begun) == ("o3", 5)
    assert system.runs("poison") == {"o3": 5}
    assert worker.is_running
    system.submit([("next", 1)])
    system.until_decided(sweeping=False)
    system.check(dead=["o3"])


@pytest.mark.long
def test_f27_2000_orders_whose_provider_is_away_wait_in_the_outbox_and_nowhere_else(
    open_system: OrderSystemFactory,
) -> None:
    """Neither the queue nor a worker's memory fills meanwhile, and all are done when the provider is back."""
    system = open_system(
        STEP_IN_WORKER, stock=MANY, publish_after=WORK_SECONDS, environment={"SEGMENTED_SWEEP_EVERY": "0.3"}
    )
    system.flag("down")
    worker = system.worker(concurrency=2)
    began_with = psutil.Process(worker.pid).memory_info().rss
    system.submit([(f"o{number}", 1) for number in range(MANY)], envelopes_of=100)
    with system.beat():
        waited, in_hand = _watched(system, AWAY_SECONDS)
        until(lambda: max(system.runs("away").values()) >= 2)
        assert len(system.runs("away")) == MANY
        assert (waited <= 5 * ENVELOPES, in_hand <= 8) == (True, True), (waited, in_hand)
        assert len(system.undecided()) == MANY
        grown = psutil.Process(worker.pid).memory_info().rss - began_with
        assert grown < GROWTH_MAX
        system.unflag("down")
        system.until_decided(sweeping=False)
    system.check()
    assert system.runs() == dict.fromkeys(system.quantities, 1)


def _watched(system: OrderSystem, seconds: float) -> tuple[int, int]:
    """Return the most messages that waited in the queue, and in the worker, in so many seconds."""
    waited, in_hand, end = 0, 0, time.monotonic() + seconds
    while time.monotonic() < end:
        waited, in_hand = max(waited, system.messages.llen(QUEUE)), max(in_hand, system.in_hand())
        time.sleep(0.02)
    return waited, in_hand
