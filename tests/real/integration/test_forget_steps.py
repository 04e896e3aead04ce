"""The step that forgets is bounded, also with the largest records that a pool can have."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pytest

from segmented import Pool, RedisStore, protocol as op
from segmented.keys import shard_keys
from tests.support.servers.cpu import StepTimes

if TYPE_CHECKING:
    from segmented.servers import ValkeyServer

SKU: Final = "mug"
PARTS: Final = ",".join(f"{segment}:1" for segment in range(4_096))
LARGEST: Final = {
    "a thousand orders, ids of 240 bytes": ("c\t1\t0\t4", [f"{number:0240d}" for number in range(1_000)]),
    "orders with units of 4,096 segments": (f"c\t4096\t0\t4\t{PARTS}", [f"{number}" for number in range(1_000)]),
}


@pytest.mark.long
@pytest.mark.parametrize("name", LARGEST)
def test_no_step_takes_the_server_ten_milliseconds(private_valkey: ValkeyServer, name: str) -> None:
    raw, ids = LARGEST[name]
    keys = shard_keys(SKU)
    gone = list[Any]()
    step = op.ForgetOrders(SKU, 4, 0, tuple((order_id, 4) for order_id in ids))
    with RedisStore.from_url(private_valkey.url) as store:
        Pool(store, SKU).open(stock=10, segments=4_096, gated=True)
        store.client.hset(keys.meta, mapping={"relayed": "1-5", "ledger_start": "5"})
        store.execute(replace(step, orders=()))
        times = StepTimes(store.client)
        for _ in range(3):
            for first in range(0, len(ids), 100):
                store.client.hset(keys.orders, mapping=dict.fromkeys(ids[first : first + 100], raw))
            times.measure("forget", lambda: gone.append(store.execute(step)))
            assert gone[-1].orders == gone[-1].judged > 0
        assert times.too_long() == {}
