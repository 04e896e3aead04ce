"""A buyer who dies: `python -m tests.real.faults.sharded_buyer URL SKU ORDER QUANTITY STEP`.

It reserves an order from a pool in shards on a cluster, and kills itself right before its first operation of the name
STEP, such as ReceiveUnits. It exits with 1 when it was never about to do that.
"""

import os
import signal
import sys
from collections.abc import Sequence
from typing import Any

from segmented import protocol as op
from segmented.models import Order
from segmented.plans import Plan, perform, run_sync, substituted
from segmented.protocol import Effect
from segmented.stock.settings import PoolSettings
from segmented.stock.sharded.plans import ShardedPlans
from segmented.stores.redis import RedisStore

HOLD_MS = 600_000


def dying_before(plan: Plan[Any], step: str) -> Plan[Any]:
    """End the process before the first effect of that name."""

    def perform_or_die(effect: Effect[Any]) -> Plan[Any]:
        if type(effect).__name__ == step:
            os.kill(os.getpid(), signal.SIGKILL)
        return (yield from perform(effect))

    return substituted(plan, perform_or_die)


def main(arguments: Sequence[str]) -> None:
    url, sku, order_id, quantity, step = arguments
    with RedisStore.from_url(url) as store:
        plans = ShardedPlans(PoolSettings(sku, ttl=10.0, hold=HOLD_MS / 1_000), 0.0, store.clock)
        plan = plans.reserve(op.Reserve(sku, Order(order_id, int(quantity)), HOLD_MS))
        run_sync(dying_before(plan, step), store)
    sys.exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
