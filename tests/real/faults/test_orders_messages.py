"""F5, F14, F15, F20: messages that wait with a dead worker, come back while the first lives, or are all gone."""

from typing import Final

from tests.fixtures.order_floors import OrderSystemFactory
from tests.support.workers.order_floor import GATED, IN_WORKER, STEP_IN_WORKER
from tests.support.workers.selling import until

AHEAD: Final = 7_200.0
LONG: Final = 100.0
"""Seconds for which orders stay with their worker, though it stands still for a while."""


def test_f14_a_worker_whose_clock_is_two_hours_ahead_steals_nothing(
    open_system: OrderSystemFactory,
) -> None:
    """It takes the other's message at once, as if it had waited for hours, and leaves the orders to who has them."""
    system = open_system(STEP_IN_WORKER, publish_after=LONG)
    system.flag("held")
    first = system.worker(options=("--prefetch-multiplier", "1"))  # it has no room for its own message a second time
    system.submit([(f"o{number}", 1) for number in range(5)])
    until(lambda: sum(system.runs().values()) == 1)
    ahead = system.worker(clock_offset=AHEAD)
    ahead.reached("after:ack")
    assert "before:TakeOrders" in ahead.passed()
    system.unflag("held")
    system.until_decided()
    assert system.runs() == {f"o{number}": 1 for number in range(5)}
    first.reached("after:SettleMany")
    assert "before:SettleMany" not in ahead.passed()
    system.check()


def test_f14_a_worker_whose_clock_is_wrong_finds_lost_messages_by_itself(
    open_system: OrderSystemFactory,
) -> None:
    """The messages of beat, whose clock is right, are not too old for it."""
    system = open_system(IN_WORKER, environment={"SEGMENTED_SWEEP_EVERY": "0.3"})
    system.worker(clock_offset=AHEAD)
    system.publisher.close()  # from now on only the sweep notifies workers
    system.submit([(f"o{number}", 1) for number in range(5)])
    with system.beat():
        system.until_decided(sweeping=False)
    system.check()


def test_f15_orders_are_decided_whose_broker_forgets_everything(open_system: OrderSystemFactory) -> None:
    system = open_system(GATED, environment={"SEGMENTED_SWEEP_EVERY": "0.3"})
    worker = system.worker(pause_at="after:TakeOrders")
    system.submit([(f"o{number}", 1) for number in range(300)], envelopes_of=3)
    worker.reached("after:TakeOrders")
    assert system.messages.llen("segmented") > 50
    with system.beat():
        system.messages.flushall()
        worker.release("after:TakeOrders")
        system.until_decided(sweeping=False)
    system.check()


def test_f20_a_visibility_timeout_shorter_than_the_task_runs_no_step_beside_another(
    open_system: OrderSystemFactory,
) -> None:
    """The message comes to a second worker while the first goes on renewing its work."""
    system = open_system(STEP_IN_WORKER, publish_after=LONG, environment={"ORDER_APP_VISIBILITY": "0.5"})
    system.flag("held")
    first = system.worker("tests.support.workers.order_app", options=("--prefetch-multiplier", "1"))
    system.submit([(f"o{number}", 1) for number in range(5)])
    until(lambda: sum(system.runs().values()) == 1)
    second = system.worker("tests.support.workers.order_app")
    second.reached("after:ack")
    assert "after:TakeOrders" in second.passed()
    assert sum(system.runs().values()) == 1
    assert set(system.states().values()) == {"reserved"}
    system.unflag("held")
    system.until_decided()
    first.reached("after:SettleMany")
    assert system.runs() == dict.fromkeys(system.quantities, 1)
    system.check()
