"""Messages with random damage, new in every run: no worker ends or hangs, and the orders beside them go on."""

import json
from random import Random
from typing import Final, cast

import pytest

from tests.fixtures.order_floors import OrderSystemFactory
from tests.support.long_run import in_the_long_run
from tests.support.sim.seeds import seed_of_run
from tests.support.workers.fuzzed import fuzzed
from tests.support.workers.order_floor import IN_WORKER, QUEUE
from tests.support.workers.selling import until

BETWEEN: Final = 25
"""Damaged messages between two orders."""


@pytest.mark.fuzz
@pytest.mark.parametrize(("pool", "messages"), [("threads", 100), *in_the_long_run(("prefork", 5_000))])
def test_messages_with_random_damage_end_no_worker_and_delay_no_order(
    open_system: OrderSystemFactory, pool: str, messages: int
) -> None:
    random = Random(seed_of_run())
    system = open_system(IN_WORKER, stock=10_000)
    system.send(system.pool.sku, ("a",))
    sent = json.loads(cast("bytes", system.messages.rpop(QUEUE)))
    worker = system.worker(pool=pool)
    for number in range(0, messages, BETWEEN):
        for each in range(BETWEEN):
            item = fuzzed(random, sent)
            system.messages.lpush(
                QUEUE, item.replace(sent["properties"]["delivery_tag"].encode(), f"{number}-{each}".encode())
            )
        system.submit([(f"good-{number}", 1)])
        system.until_decided(sweeping=False)
    until(lambda: system.messages.llen(QUEUE) == 0)
    until(lambda: system.in_hand() == 0)
    assert worker.is_running
    assert worker.stop() == 0
    system.check()
