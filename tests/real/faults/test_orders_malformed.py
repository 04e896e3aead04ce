"""Messages that no worker can read: they are kept, and the worker serves the next order."""

import json
from typing import Any, Final

from segmented import protocol as op
from segmented.celery.messages import TASK
from tests.fixtures.order_floors import OrderSystemFactory
from tests.support.workers.order_floor import IN_WORKER, QUEUE, OrderSystem
from tests.support.workers.selling import until

HUGE: Final = "x" * 5_000_000
ENVELOPES: Final[dict[str, Any]] = {
    "a newer version": {"v": 2, "sku": "mug", "orders": ["a"]},
    "no version": {"sku": "mug", "orders": ["a"]},
    "a version that is not a number": {"v": True, "sku": "mug", "orders": ["a"]},
    "no object": "mug",
    "a sku that is no text": {"v": 1, "sku": 7, "orders": ["a"]},
    "orders that are no list": {"v": 1, "sku": "mug", "orders": {"a": 1}},
    "an order that is no text": {"v": 1, "sku": "mug", "orders": [None]},
    "orders that are no text": {"v": 1, "sku": "mug", "orders": [None, 7]},
    "no orders": {"v": 1, "sku": "mug", "orders": []},
    "too many orders": {"v": 1, "sku": "mug", "orders": ["a"] * 1_001},
    "a field too many": {"v": 1, "sku": "mug", "orders": ["a"], "more": 1},
    "a pool that nobody opened": {"v": 1, "sku": "nothing", "orders": ["a"]},
    "five megabytes": {"v": 1, "sku": HUGE, "orders": ["a"]},
}


def kept(system: OrderSystem) -> int:
    return len(system.pool.store.execute(op.ListMessages(QUEUE)))


def test_messages_that_cannot_be_read_are_kept_and_the_next_order_is_served(
    open_system: OrderSystemFactory,
) -> None:
    system = open_system(IN_WORKER)
    worker = system.worker()
    for body in ENVELOPES.values():
        system.app.send_task(TASK, (body,), queue=QUEUE)
    system.app.send_task(TASK, (), queue=QUEUE)
    system.app.send_task(TASK, (ENVELOPES["a newer version"], 1), queue=QUEUE)
    system.app.send_task(TASK, kwargs={"envelope": 1}, queue=QUEUE)
    system.app.send_task("segmented.nothing", ("a",), queue=QUEUE)
    system.submit([("next", 1)])
    system.until_decided(sweeping=False)
    until(lambda: kept(system) == len(ENVELOPES) + 4)
    assert max(len(one.text) for one in system.pool.store.execute(op.ListMessages(QUEUE))) <= 64 * 1024
    until(lambda: system.in_hand() == 0)
    assert worker.is_running
    system.check()


def test_an_order_that_cannot_be_read_keeps_none_of_its_envelope_from_being_finished(
    open_system: OrderSystemFactory,
) -> None:
    system = open_system(IN_WORKER)
    worker = system.worker()
    system.publisher.close()  # from now on only this test notifies workers
    bodies = []
    for number, wrong in enumerate((None, 7, "", "\n", "x" * 300, ["a"])):
        first, last = f"first-{number}", f"last-{number}"
        system.submit([(first, 1), (last, 1)])
        bodies.append({"v": 1, "sku": system.pool.sku, "orders": [first, wrong, last]})
        system.app.send_task(TASK, (bodies[-1],), queue=QUEUE)
    system.until_decided(sweeping=False)
    until(lambda: kept(system) == len(bodies))
    found = [json.loads(message.text) for message in system.pool.store.execute(op.ListMessages(QUEUE))]
    assert sorted(found, key=str) == sorted(([[body], {}] for body in bodies), key=str)
    assert worker.is_running
    system.check()
