"""`segmented pool open --gated --shards`, and the audit of such a pool with its order database."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from segmented import Pool, RedisStore, Reserved
from segmented.orders import Gate
from segmented.servers import ValkeyServer
from segmented.stock import ShardedPool
from tests.support.command_line import ran

pytestmark = pytest.mark.usefixtures("patient_shards")

SKU: Final = "mug"
IN_SHARDS: Final = ("pool", "open", "plate", "--stock", "20", "--segments", "4", "--shards", "2", "--gated")


def test_a_gated_pool_in_shards_is_opened_once_and_audited_with_its_database(
    store: RedisStore, order_database: str, open_gate: Callable[..., Gate], valkey: ValkeyServer
) -> None:
    database = ("--database", order_database)
    first, again = (ran(*IN_SHARDS, "--create-tables", *database, url=valkey.url) for _ in range(2))
    assert (first.returncode, first.stdout.splitlines()[0]) == (0, "opened")
    assert (again.returncode, again.stdout.splitlines()[0]) == (0, "open already: nothing is changed")
    other = ran(*IN_SHARDS[:4], "30", *IN_SHARDS[5:], *database, url=valkey.url)
    assert (other.returncode, other.stderr) == (
        1,
        "segmented: open already, with stock 20 instead of 30: nothing is changed\n",
    )
    gate = open_gate(order_database)
    pool = ShardedPool(store, "plate", gate=gate)
    assert isinstance(pool.reserve("o-1", quantity=13), Reserved)  # more than its home shard has
    assert pool.confirm("o-1").state == "confirmed"
    for shard in pool.shards:
        state, totals = shard.state(), gate.totals(shard.sku)
        assert (totals.quota, totals.sold) == (state.stocked, state.confirmed)
    audit = ran("pool", "audit", "plate", *database, url=valkey.url)
    assert audit.returncode == 0
    assert [line.partition(" both sides")[0] for line in audit.stdout.splitlines() if " both sides" in line] == [
        "shard 0:",
        "shard 1:",
    ]
    found = json.loads(ran("pool", "audit", "plate", *database, "--json", "-", url=valkey.url).stdout)["database"]
    assert (found["is_clean"], [one["shard"] for one in found["shards"]]) == (True, [0, 1])
    assert sum(one["sold"] for one in found["shards"]) == 13
    number = next(number for number, shard in enumerate(pool.shards) if not shard.state().confirmed)
    gate.confirm(order_id="by hand", sku=pool.shards[number].sku, segment=0, quantity=1, epoch=1)
    damaged = ran("pool", "audit", "plate", *database, url=valkey.url)
    assert (damaged.returncode, f"shard {number}: database only: order by hand" in damaged.stdout) == (1, True)


def test_a_gated_opening_in_shards_that_is_refused_makes_nothing(
    store: RedisStore, tmp_path: Path, valkey: ValkeyServer
) -> None:
    database = ("--create-tables", "--database", f"sqlite:///{tmp_path / 'orders.db'}")
    pool = Pool(store, SKU)
    pool.open(stock=10, segments=2)
    in_one_piece = ran(*IN_SHARDS[:2], SKU, *IN_SHARDS[3:], *database, url=valkey.url)
    assert (in_one_piece.returncode, pool.state().available) == (1, 10)
    assert in_one_piece.stderr.startswith("segmented: 'mug' is sold ")
    ShardedPool(store, "plain").open(stock=20, segments=4, shards=2)
    ungated = ran(*IN_SHARDS[:2], "plain", *IN_SHARDS[3:], *database, url=valkey.url)
    assert ungated.returncode == 2
    assert ungated.stderr.startswith(
        "segmented: pool 'plain' is open already, and was opened without an order database"
    )
    few = ran(*IN_SHARDS[:4], "1", *IN_SHARDS[5:], *database, url=valkey.url)
    assert (few.returncode, few.stderr.startswith("segmented: stock 1 of 'plate' must be between 2 and")) == (2, True)
    assert list(tmp_path.iterdir()) == []
