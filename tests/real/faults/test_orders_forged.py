"""Forged messages of every kind: none ends or silences a worker, each is kept, and the orders beside them go on."""

import json
from typing import Final, cast

import pytest

from segmented import protocol as op
from tests.fixtures.order_floors import OrderSystemFactory
from tests.support.long_run import in_the_long_run
from tests.support.workers.forged import DEEP, forged, nested
from tests.support.workers.order_floor import IN_WORKER, QUEUE
from tests.support.workers.selling import until

KINDS: Final = 222


@pytest.mark.parametrize("pool", ["threads", *in_the_long_run("prefork", "solo")])
def test_forged_messages_of_222_kinds_end_no_worker_and_each_next_order_is_decided(
    open_system: OrderSystemFactory, pool: str
) -> None:
    system = open_system(IN_WORKER)
    system.send(system.pool.sku, ("a",))
    sent = json.loads(cast("bytes", system.messages.rpop(QUEUE)))
    worker = system.worker(pool=pool)
    items = list(forged(sent, system.pool.sku))
    for number, (_, item) in enumerate(items):
        system.messages.lpush(QUEUE, item)
        system.submit([(f"good-{number}", 1)])
        system.until_decided(sweeping=False)
    until(lambda: system.in_hand() == 0)
    assert (len(items), len(system.pool.store.execute(op.ListMessages(QUEUE)))) == (KINDS, KINDS)
    assert worker.is_running
    assert worker.stop() == 0
    system.check()


@pytest.mark.parametrize("pool", ["prefork", *in_the_long_run("threads", "solo")])
def test_nested_messages_take_no_place_of_a_worker_and_each_is_kept(open_system: OrderSystemFactory, pool: str) -> None:
    """The process that reads the queue fails to pass some to a child; Celery then counts a child as busy forever."""
    system = open_system(IN_WORKER)
    system.send(system.pool.sku, ("a",))
    sent = json.loads(cast("bytes", system.messages.rpop(QUEUE)))
    worker = system.worker(pool=pool)
    items = list(nested(sent))
    for number, (_, item) in enumerate(items):
        system.messages.lpush(QUEUE, item)
        system.submit([(f"good-{number}", 1)])
    system.until_decided(sweeping=False)
    until(lambda: system.in_hand() == 0)
    assert (len(items), len(system.pool.store.execute(op.ListMessages(QUEUE)))) == (6 * len(DEEP), 6 * len(DEEP))
    assert worker.is_running
    assert worker.stop() == 0
    system.check()
