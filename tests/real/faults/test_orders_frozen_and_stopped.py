"""Workers that stand still past every timeout and go on, and workers that are stopped in order under load (F24)."""

import os
import signal
from functools import partial
from itertools import count
from typing import Final

import psutil
import pytest

from segmented.testing.worker_process import WorkerProcess
from tests.fixtures.order_floors import OrderSystemFactory
from tests.support.long_run import in_the_long_run
from tests.support.workers.order_floor import GATED, GATED_AT_ONCE, IN_WORKER, QUEUE, STEP_IN_WORKER, Mode
from tests.support.workers.selling import until

STOP_SECONDS: Final = 25.0
"""Less than the half minute that a child of a prefork pool waits for somebody who reads its answers."""
ENVELOPES: Final = 60
"""Messages in the queue for each worker: more than it takes in the moment in which it hears that it is to stop."""


def has_settled(worker: WorkerProcess, envelopes: int) -> bool:
    return worker.passed().count("after:SettleMany") >= envelopes


@pytest.mark.parametrize(
    ("mode", "point"),
    [
        *in_the_long_run((IN_WORKER, "after:TakeOrders")),
        (GATED, "before:commit"),
    ],
    ids=str,
)
def test_a_worker_that_is_frozen_past_every_timeout_and_goes_on_changes_nothing(
    open_system: OrderSystemFactory, mode: Mode, point: str
) -> None:
    system = open_system(mode, publish_after=0.5)
    slow = system.worker(pause_at=point)
    system.submit([(f"o{number}", 1 + number) for number in range(10)])
    slow.reached(point)
    slow.freeze()
    other = system.worker()
    system.until_decided()
    decided = system.states()
    slow.resume()
    slow.release(point)
    slow.reached("after:ack")
    assert system.states() == decided
    system.check()
    other.reached("after:SettleMany")


@pytest.mark.parametrize(
    ("pool", "mode"), [*in_the_long_run(("threads", STEP_IN_WORKER)), ("prefork", GATED_AT_ONCE)], ids=str
)
def test_f24_workers_stopped_under_load_lose_nothing_and_leave_nothing_in_hand(
    open_system: OrderSystemFactory, pool: str, mode: Mode
) -> None:
    """Nobody sweeps, and the visibility timeout is a minute: what is left stands in the queue at once."""
    system = open_system(mode, publish_after=60.0)
    system.flag("seconds", "0.002")
    numbers = count()
    for _ in range(2):
        system.submit([(f"o{next(numbers)}", 1) for _ in range(5 * ENVELOPES)], envelopes_of=5)
        worker = system.worker(pool=pool, concurrency=2)
        until(partial(has_settled, worker, 5))
        worker.freeze()
        if system.messages.llen(QUEUE) < ENVELOPES // 2:  # we stood still, and it did not
            system.submit([(f"o{next(numbers)}", 1) for _ in range(5 * ENVELOPES)], envelopes_of=5)
        os.kill(worker.pid, signal.SIGTERM)  # it hears of it in the moment in which it goes on
        worker.resume()
        assert worker.wait(STOP_SECONDS) == 0
        worker.kill()  # whatever is left of it
        assert system.in_hand() == 0
        assert len(system.undecided()) == 5 * system.messages.llen(QUEUE) > 0
    system.worker(concurrency=2)
    system.until_decided(sweeping=False)
    system.check()
    if mode.has_step:
        assert system.runs() == dict.fromkeys(system.quantities, 1)


def test_f24_work_given_to_a_child_just_before_a_stop_is_finished_and_not_repeated(
    open_system: OrderSystemFactory,
) -> None:
    """Celery by itself forgets it: the child waits for a parent that listens no more, and the message comes again."""
    system = open_system(GATED_AT_ONCE, publish_after=60.0)
    worker = system.worker(pool="prefork", concurrency=1)
    leader = psutil.Process(worker.pid)
    [child] = leader.children()
    system.submit([("first", 1)])
    worker.reached("after:ack")  # the child is up
    child.suspend()
    system.submit([(f"o{number}", 1) for number in range(3)], envelopes_of=1)
    # A message a turn of the parent's loop; the one before was handed over by the end of the turn that takes the last.
    until(lambda: worker.log().count(" received") == 3)
    threads = leader.num_threads()
    os.kill(worker.pid, signal.SIGTERM)
    until(lambda: leader.num_threads() > threads)  # it has given up what none will begin, and waits for its child
    child.resume()
    assert worker.wait(STOP_SECONDS) == 0
    assert worker.passed().count("after:ack") == 2
    assert (system.in_hand(), system.messages.llen(QUEUE), len(system.undecided())) == (0, 2, 2)
    system.worker()
    system.until_decided(sweeping=False)
    system.check()
