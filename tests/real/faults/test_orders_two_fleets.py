"""Two fleets of workers on one stock server: A charges the orders of concerts, B sells mugs without a step.

Without the names that a pool gives its workers, B would confirm the concerts' orders uncharged: in its sweep while A is
down, and after the broker has lost its messages.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import pytest

from segmented import protocol as op
from segmented.celery.messages import TASK, Envelope
from segmented.models import Order
from segmented.stock import Outbox, Pool
from segmented.testing.worker_process import WorkerProcess
from tests.fixtures.order_floors import OrderSystemFactory
from tests.support.workers.order_floor import AT_ONCE, OrderSystem
from tests.support.workers.order_step import STEP
from tests.support.workers.selling import until

PUBLISH_AFTER: Final = 0.4
WORK_SECONDS: Final = 20.0
"""Seconds for which orders stay with their worker, though it stands still for a while."""
SWEEPS: Final = 4
"""Sweeps of the other fleet that a test waits for, once the orders are due."""
A_AND_BEAT: Final = {"SEGMENTED_QUEUE": "concerts", "SEGMENTED_STEP": STEP}
B_AND_BEAT: Final = {"SEGMENTED_QUEUE": "mugs"}


@dataclass
class Fleets:
    """Both pools, and the workers that a test starts, each with a beat of its own."""

    system: OrderSystem
    concert: Pool
    mug: Pool

    def start(self, names: dict[str, str]) -> WorkerProcess:
        worker = self.system.worker(environment={"SEGMENTED_SWEEP_EVERY": "0.2", **names}, options=("--beat",))
        until(lambda: " ready." in worker.log())
        return worker

    def send(self, queue: str, sku: str, order_ids: Sequence[str]) -> None:
        self.system.app.send_task(TASK, (Envelope(sku, tuple(order_ids)).body(),), queue=queue)

    def submit(self, pool: Pool, count: int) -> None:
        """Submit orders, with a message for every ten of them to the pool's own queue."""
        orders = [Order(f"{pool.sku}-{number}") for number in range(count)]
        assert not [answer for answer in pool.submit_many(orders) if isinstance(answer, Exception)]
        for first in range(0, count, 10):
            ids = [order.order_id for order in orders[first : first + 10]]
            self.send("mugs" if pool is self.mug else "concerts", pool.sku, ids)

    def until_swept(self, worker: WorkerProcess) -> None:
        """Wait until the concerts' orders are due, and a worker has swept several times since."""
        until(lambda: self.outbox().due == self.outbox().waiting)
        before = worker.log().count("Task segmented.sweep[")
        until(lambda: worker.log().count("Task segmented.sweep[") >= before + 2 * SWEEPS)  # received, and succeeded

    def outbox(self) -> Any:  # noqa: ANN401  # an OutboxState
        return self.concert.store.execute(op.ReadOutbox(self.concert.sku))

    def said_of_concerts(self, worker: WorkerProcess) -> list[str]:
        return [line for line in worker.log().splitlines() if f"pool {self.concert.sku!r}" in line]

    def check(self, concerts: int, mugs: int) -> None:
        """Wait until all is sold: each concert's order was charged once and confirmed, and nothing waits."""
        until(lambda: (self.concert.state().confirmed, self.mug.state().confirmed) == (concerts, mugs))
        assert sorted(self.system.runs().values()) == [1] * concerts
        assert set(self.system.runs()) == {f"{self.concert.sku}-{number}" for number in range(concerts)}
        assert (self.outbox().waiting, self.outbox().dead) == (0, 0)
        assert [pool.audit().is_clean for pool in (self.concert, self.mug)] == [True, True]


def opened(open_system: OrderSystemFactory) -> Fleets:
    system = open_system(AT_ONCE, publish_after=WORK_SECONDS, database="sqlite_url")
    system.pool.assign(queue="concerts", step=STEP)
    outbox = Outbox(None, AT_ONCE.decides, PUBLISH_AFTER)
    concert, mug = (Pool(system.pool.store, sku, outbox=outbox) for sku in (system.pool.sku, "mug"))
    mug.open(stock=1_000, segments=4, queue="mugs")
    return Fleets(system, concert, mug)


def test_another_fleet_confirms_nothing_uncharged_while_the_charging_one_is_down(
    open_system: OrderSystemFactory,
) -> None:
    fleets = opened(open_system)
    other = fleets.start(B_AND_BEAT)
    fleets.submit(fleets.concert, 60)
    fleets.submit(fleets.mug, 20)
    until(lambda: fleets.mug.state().confirmed == 20)
    fleets.until_swept(other)
    assert (fleets.concert.state().confirmed, fleets.outbox().waiting, fleets.system.runs()) == (0, 60, {})
    (line,) = fleets.said_of_concerts(other)
    assert "ERROR" in line
    assert "leaves its submitted orders to workers of queue 'concerts' with step" in line
    fleets.start(A_AND_BEAT)
    fleets.check(60, 20)
    assert len(fleets.said_of_concerts(other)) == 1


def test_a_message_that_reaches_another_fleet_confirms_nothing_and_loses_no_order(
    open_system: OrderSystemFactory,
) -> None:
    fleets = opened(open_system)
    other = fleets.start({**B_AND_BEAT, "SEGMENTED_SWEEP_EVERY": "0"})
    fleets.submit(fleets.concert, 30)
    ids = [f"{fleets.concert.sku}-{number}" for number in range(30)]
    for first in range(0, 30, 10):
        fleets.send("mugs", fleets.concert.sku, ids[first : first + 10])
    direct = [f"direct-{number}" for number in range(3)]
    for order_id in direct:
        fleets.system.app.send_task("segmented.take_order", (fleets.concert.sku, order_id, 1), queue="mugs")
    until(lambda: other.log().count("Task segmented.take_envelope[") == 6)  # received, and succeeded
    until(lambda: other.log().count("raised expected: ") == 3)
    assert (fleets.concert.state().confirmed, fleets.outbox().waiting) == (0, 30)
    kept = fleets.concert.store.execute(op.ListMessages("mugs"))
    assert sorted(order_id for order_id in direct for one in kept if f'"{order_id}"' in one.text) == direct
    assert {"leaves its submitted orders to workers of queue 'concerts'" in one.reason for one in kept} == {True}
    assert ["leaves its submitted orders" in line for line in fleets.said_of_concerts(other) if "ERROR" in line] == [
        True
    ]
    assert "Traceback" not in other.log()
    fleets.start(A_AND_BEAT)
    fleets.check(30, 0)


@pytest.mark.long
def test_a_worker_of_the_queue_without_the_step_says_so_and_leaves_the_orders(open_system: OrderSystemFactory) -> None:
    fleets = opened(open_system)
    stepless = fleets.start({"SEGMENTED_QUEUE": "concerts"})
    fleets.submit(fleets.concert, 30)
    fleets.until_swept(stepless)
    assert (fleets.concert.state().confirmed, fleets.outbox().waiting, fleets.system.runs()) == (0, 30, {})
    assert ["ERROR" in line for line in fleets.said_of_concerts(stepless)] == [True]
    stepless.stop()
    fleets.start(A_AND_BEAT)
    fleets.check(30, 0)
