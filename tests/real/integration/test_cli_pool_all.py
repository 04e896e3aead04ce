"""`--all` of `segmented pool audit`, `doctor`, `verify`, `rebuild` and `reopen`, and `repair --from-database`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from segmented import Pool, RedisStore
from segmented.stock import ShardedPool
from tests.support.command_line import ran

if TYPE_CHECKING:
    from segmented.orders import Gate
    from segmented.servers import ValkeyServer


@pytest.fixture
def order_database(sqlite_url: str) -> str:
    return sqlite_url


@pytest.fixture
def pools(store: RedisStore, gate: Gate) -> list[Pool]:
    """Two gated pools with an order each, one in two shards, and one without a database."""
    found = [Pool(store, sku, gate=gate) for sku in ("cup", "mug")]
    for pool in found:
        pool.open(stock=10, segments=2)
        pool.reserve("a", quantity=2)
        pool.confirm("a")
    ShardedPool(store, "plate", gate=gate).open(stock=10, segments=2, shards=2)
    Pool(store, "plain").open(stock=10, segments=2)
    return found


@pytest.mark.usefixtures("pools")
def test_every_pool_is_audited_and_one_that_drifted_is_named(
    store: RedisStore, order_database: str, valkey: ValkeyServer
) -> None:
    words = ["pool", "audit", "--all", "--database", order_database]
    assert ran(*words, url=valkey.url).returncode == 0
    store.client.hset("seg:{plain:0}:meta", "available", "9")
    done = ran(*words, "--json", "-", url=valkey.url)
    found = {one["sku"]: one["exit_code"] for one in json.loads(done.stdout)["pools"]}
    assert (done.returncode, found) == (1, {"cup": 0, "mug": 0, "plain": 1, "plate": 0})


@pytest.mark.usefixtures("pools")
def test_every_pool_is_diagnosed_and_one_with_a_fault_is_named(store: RedisStore, valkey: ValkeyServer) -> None:
    assert ran("pool", "doctor", "--all", url=valkey.url).returncode == 0
    store.client.hset("seg:{plain:0}:meta", "available", "9")
    done = ran("pool", "doctor", "--all", "--json", "-", url=valkey.url)
    found = {one["sku"]: one["exit_code"] for one in json.loads(done.stdout)["pools"]}
    assert (done.returncode, found) == (1, {"cup": 0, "mug": 0, "plain": 1, "plate": 0})


@pytest.mark.usefixtures("pools")
def test_every_gated_pool_and_shard_is_verified_or_rebuilt(
    store: RedisStore, order_database: str, valkey: ValkeyServer
) -> None:
    store.client.delete("seg:{cup:0}:ledger")
    verified = ran("pool", "verify", "--all", "--database", order_database, "--json", "-", url=valkey.url)
    codes = {one["sku"]: one["exit_code"] for one in json.loads(verified.stdout)["pools"]}
    assert codes == {"cup": 1, "mug": 0, "plate shard 0": 0, "plate shard 1": 0}
    done = ran("pool", "rebuild", "--all", "--database", order_database, url=valkey.url)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[:3] == [
        "== cup",
        "rebuilt in epoch 2: 2 sold, 0 reserved, 8 free",
        "== mug",
    ]


def test_every_sale_whose_pool_is_gone_is_opened_again(
    pools: list[Pool], store: RedisStore, order_database: str, valkey: ValkeyServer
) -> None:
    store.client.flushdb()
    words = ["pool", "reopen", "--all", "--database", order_database]
    assert "reopen --all needs --yes without a terminal" in ran(*words, url=valkey.url).stderr
    done = ran(*words, "--yes", url=valkey.url)
    assert done.stdout.splitlines() == [
        *("== cup", "reopened in epoch 2: 8 free"),
        *("== mug", "reopened in epoch 2: 8 free"),
    ]
    assert done.stderr.count("is a shard: open its pool again by hand") == 2
    assert [pool.state().available for pool in pools] == [8, 8]


def test_one_pool_or_all_of_them_must_be_named(valkey: ValkeyServer) -> None:
    for words in (["audit"], ["doctor"], ["verify", "cup", "--all"], ["rebuild"], ["reopen"]):
        done = ran("pool", *words, url=valkey.url)
        assert (done.returncode, done.stderr.splitlines()[-1]) == (
            2,
            "segmented: name one pool, or give --all for every pool",
        )
