"""F5, F14, F15, F20: messages that wait with a dead worker, come back while the first lives, or are all gone."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import pytest

from tests.support.long_run import in_the_long_run
from tests.support.workers.order_floor import GATED, IN_WORKER, STEP_IN_WORKER, WITH_STEP
from tests.support.workers.selling import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fixtures.order_floors import FloorFactory
    from tests.support.workers.order_floor import Mode

AHEAD: Final = 7_200.0
TOLD: Final = 10.0
"""Seconds within which a killed worker's orders are another's, with the settings as they are."""
ASSERTED: Final = 20.0
"""The same on a machine that is busy with other things."""


def test_f5_a_killed_workers_orders_are_finished_by_another_within_seconds_with_default_settings(
    open_floor: FloorFactory, record_property: Callable[[str, object], None]
) -> None:
    floor = open_floor(STEP_IN_WORKER, publish_after=5.0)
    floor.environment.pop("SEGMENTED_PUBLISH_AFTER")  # the defaults are what is measured
    floor.flag("held")
    first = floor.worker()
    floor.submit([(f"o{number}", 1) for number in range(20)])
    until(lambda: sum(floor.runs().values()) == 1)
    floor.worker()
    with floor.beat():
        time.sleep(2.0)  # the work is renewed more than once, so that it has most of its time ahead
        first.kill()
        floor.unflag("held")
        seconds = floor.until_decided(sweeping=False)
    print(f"F5: finished by another worker {seconds:.1f} s after the kill (told: {TOLD:g} s)")  # noqa: T201  # a figure
    record_property("seconds", seconds)
    assert seconds < ASSERTED
    floor.check()
    assert sum(floor.runs().values()) == 21


@pytest.mark.parametrize("mode", [*in_the_long_run(WITH_STEP), STEP_IN_WORKER], ids=str)
def test_f14_a_worker_whose_clock_is_two_hours_ahead_steals_nothing(open_floor: FloorFactory, mode: Mode) -> None:
    """It takes the other's message at once, as if it had waited for hours, and leaves the orders to who has them."""
    floor = open_floor(mode)
    floor.flag("held")
    first = floor.worker(options=("--prefetch-multiplier", "1"))  # it has no room for its own message a second time
    floor.submit([(f"o{number}", 1) for number in range(5)])
    until(lambda: sum(floor.runs().values()) == 1)
    ahead = floor.worker(clock_offset=AHEAD)
    ahead.reached("after:ack")
    assert "before:TakeOrders" in ahead.passed()
    floor.unflag("held")
    floor.until_decided()
    assert floor.runs() == {f"o{number}": 1 for number in range(5)}
    first.reached("after:SettleMany")
    assert "before:SettleMany" not in ahead.passed()
    floor.check()


@pytest.mark.parametrize("offset", [AHEAD, *in_the_long_run(-AHEAD)], ids=str)
def test_f14_a_worker_whose_clock_is_wrong_finds_lost_messages_by_itself(
    open_floor: FloorFactory, offset: float
) -> None:
    """The messages of beat, whose clock is right, are not too old for it."""
    floor = open_floor(IN_WORKER, environment={"SEGMENTED_SWEEP_EVERY": "0.3"})
    floor.worker(clock_offset=offset)
    floor.publisher.close()  # from now on nobody is told but by the sweep
    floor.submit([(f"o{number}", 1) for number in range(5)])
    with floor.beat():
        floor.until_decided(sweeping=False)
    floor.check()


@pytest.mark.parametrize("mode", [GATED, *in_the_long_run(WITH_STEP)], ids=str)
def test_f15_orders_are_decided_whose_broker_forgets_everything(open_floor: FloorFactory, mode: Mode) -> None:
    floor = open_floor(mode, environment={"SEGMENTED_SWEEP_EVERY": "0.3"})
    worker = floor.worker(pause_at="after:TakeOrders")
    floor.submit([(f"o{number}", 1) for number in range(300)], envelopes_of=3)
    worker.reached("after:TakeOrders")
    assert floor.messages.llen("segmented") > 50
    with floor.beat():
        floor.messages.flushall()
        worker.release("after:TakeOrders")
        floor.until_decided(sweeping=False)
    floor.check()
    if mode.has_step:
        assert floor.runs() == dict.fromkeys(floor.quantities, 1)


def test_f20_a_visibility_timeout_shorter_than_the_task_runs_no_step_beside_another(open_floor: FloorFactory) -> None:
    """The message comes to a second worker while the first goes on renewing its work."""
    floor = open_floor(STEP_IN_WORKER, environment={"ORDER_APP_VISIBILITY": "0.5"})
    floor.flag("held")
    first = floor.worker("tests.support.workers.order_app", options=("--prefetch-multiplier", "1"))
    floor.submit([(f"o{number}", 1) for number in range(5)])
    until(lambda: sum(floor.runs().values()) == 1)
    second = floor.worker("tests.support.workers.order_app")
    second.reached("after:ack")
    assert "after:TakeOrders" in second.passed()
    assert sum(floor.runs().values()) == 1
    assert set(floor.states().values()) == {"reserved"}
    floor.unflag("held")
    floor.until_decided()
    first.reached("after:SettleMany")
    assert floor.runs() == dict.fromkeys(floor.quantities, 1)
    floor.check()
