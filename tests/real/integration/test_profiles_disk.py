"""A pool whose changes must be on the disk: what the server has to be like, and what is unknown if it is not."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
import redis

from segmented import MemoryStore, Pool, RedisStore, protocol as op
from segmented.clock import SystemClock
from segmented.errors import AcknowledgementUnknown, InvalidInput, StoreRefused
from segmented.keys import shard_keys
from segmented.models import Opened, Reserved
from segmented.orders import Gate, connect
from segmented.servers import ValkeyServer
from segmented.stock import ShardedPool
from tests.fixtures.stores import FEW_REDIS, make_side
from tests.support.flavour import Flavour
from tests.support.servers.nodes import Node

SKU: Final = "mug"
EACH: Final = [FEW_REDIS[0]]


@pytest.fixture
def start(start_valkey: Callable[..., ValkeyServer], data_folder: Path) -> Callable[[str], ValkeyServer]:
    """Start a server that syncs its append-only file always, every second, or never."""
    return lambda fsync: start_valkey(data_folder, config={"appendfsync": fsync})


def refused(open_it: Callable[[], object], server: redis.Redis) -> str:
    """Return the sentence with which an opening is refused that has left no key."""
    with pytest.raises(InvalidInput) as caught:
        open_it()
    assert server.dbsize() == 0
    return str(caught.value)


@pytest.mark.parametrize("flavour", EACH, ids=str)
def test_an_order_is_answered_once_it_is_on_the_disk(
    start: Callable[[str], ValkeyServer],
    flavour: Flavour,
) -> None:
    server = start("always")
    side = make_side(flavour, SystemClock(), server.url)
    try:
        pool = side.pool(SKU)
        assert isinstance(pool.open(stock=5, segments=2, profile="fsync"), Opened)
        assert isinstance(pool.reserve("o-1"), Reserved)
        side.raw().config_resetstat()
        assert isinstance(pool.reserve("o-2"), Reserved)
        found = side.raw().info("commandstats")
        assert (found["cmdstat_evalsha"]["calls"], found["cmdstat_waitaof"]["calls"]) == (1, 1)
        assert pool.state().profile == "fsync"
    finally:
        side.close()


def test_a_server_without_an_append_only_file_is_refused(private_valkey: ValkeyServer) -> None:
    with RedisStore.from_url(private_valkey.url) as store:
        assert refused(lambda: Pool(store, SKU).open(stock=5, segments=2, profile="fsync"), store.client) == (
            "pool 'mug' cannot be opened with profile fsync: the server writes no append-only file; "
            "set appendonly yes and appendfsync always"
        )
        sharded = ShardedPool(store, SKU)
        assert refused(lambda: sharded.open(stock=5, segments=2, shards=2, profile="fsync"), store.client).startswith(
            "pool shard 0 of 'mug' cannot be opened with profile fsync"
        )


@pytest.mark.parametrize("fsync", ["everysec", "no"])
def test_a_server_that_answers_before_it_syncs_is_refused(start: Callable[[str], ValkeyServer], fsync: str) -> None:
    with RedisStore.from_url(start(fsync).url) as store:
        assert refused(lambda: Pool(store, SKU).open(stock=5, segments=2, profile="fsync"), store.client) == (
            f"pool 'mug' cannot be opened with profile fsync: the server has appendfsync {fsync}, so WAITAOF may count "
            "a change that is not on the disk; set appendfsync always"
        )


def test_a_server_without_the_command_is_refused(redis70_server: Node) -> None:
    with RedisStore.from_url(redis70_server.url) as store:
        said = refused(lambda: Pool(store, SKU).open(stock=5, segments=2, profile="fsync"), store.client)
    assert said.startswith("pool 'mug' cannot be opened with profile fsync: the server does not run WAITAOF")
    assert said.endswith("; allow +waitaof, or use Valkey, or Redis 7.2 or newer")


def test_a_server_that_forbids_config_is_refused_with_what_is_known(
    start: Callable[[str], ValkeyServer],
) -> None:
    server = start("always")
    with redis.Redis.from_url(server.url) as client:
        client.acl_setuser("shop", enabled=True, nopass=True, keys="*", channels="*", commands=["+@all", "-config"])
        with RedisStore.from_url(f"{server.url}&username=shop&password=x") as store:
            said = refused(lambda: Pool(store, SKU).open(stock=5, segments=2, profile="fsync"), client)
    known = "the server writes an append-only file, but how it syncs it is unknown, because it forbids CONFIG"
    assert said.startswith(f"pool 'mug' cannot be opened with profile fsync: {known}: ")
    assert said.endswith("; allow +config|get, or use an order database")


def test_a_server_whose_file_is_off_refuses_to_wait_and_the_outcome_is_unknown(
    start: Callable[[str], ValkeyServer],
) -> None:
    with RedisStore.from_url(start("always").url) as store:
        pool = Pool(store, SKU)
        pool.open(stock=5, segments=2, profile="fsync")
        store.client.config_set("appendonly", "no")
        with pytest.raises(AcknowledgementUnknown, match="the server refused to wait for profile fsync") as caught:
            pool.reserve("o-1")
        assert (caught.value.order_id, caught.value.wanted, caught.value.counted) == ("o-1", 1, 0)
        assert pool.state().reserved == 1


@pytest.mark.parametrize("text", ["", "replicated:02"])
def test_a_profile_that_no_pool_could_have_stored_stops_the_pool_and_is_named(valkey: ValkeyServer, text: str) -> None:
    with RedisStore.from_url(valkey.url) as store:
        pool = Pool(store, SKU)
        pool.open(stock=5, segments=2)
        store.client.hset(shard_keys(SKU).meta, "profile", text)
        with pytest.raises(StoreRefused):
            pool.reserve("o-1")
        report = pool.audit()
        assert [one.detail for one in report.drift] == ["profile is not the text of a profile"]
        assert pool.repair(report, yes=True).done_count == 0
        store.client.hset(shard_keys(SKU).meta, "profile", "memory")
        assert isinstance(pool.reserve("o-1"), Reserved)


def test_a_memory_store_has_no_disk() -> None:
    with pytest.raises(InvalidInput) as caught:
        Pool(MemoryStore(), SKU).open(stock=5, segments=2, profile="fsync")
    assert str(caught.value) == (
        "pool 'mug' cannot be opened with profile fsync: a memory store has no replicas and no disk; leave the profile "
        "out, or use a RedisStore"
    )


# --- with an order database ---


def test_a_gated_pool_whose_server_cannot_keep_to_its_profile_gets_no_rows(
    private_valkey: ValkeyServer, sqlite_url: str
) -> None:
    with RedisStore.from_url(private_valkey.url) as store, Gate(connect(sqlite_url)) as gate:
        gate.create()
        pool = Pool(store, SKU)
        refused(lambda: Pool(pool.store, pool.sku, gate=gate).open(stock=5, segments=2, profile="fsync"), store.client)
        assert gate.totals(SKU).segments == ()


def test_a_gated_pool_may_let_reservations_wait_for_the_disk(
    start: Callable[[str], ValkeyServer], sqlite_url: str
) -> None:
    with RedisStore.from_url(start("always").url) as store, Gate(connect(sqlite_url)) as gate:
        gate.create()
        pool = Pool(store, SKU)
        assert Pool(pool.store, pool.sku, gate=gate).open(stock=5, segments=2, profile="fsync").state.profile == "fsync"
        assert isinstance(pool.reserve("o-1"), Reserved)
        store.client.config_set("appendonly", "no")
        assert (
            store.execute(op.Confirm(SKU, "o-1", decided=True)).state == "confirmed"
        )  # its transaction has committed already
        with pytest.raises(AcknowledgementUnknown):
            pool.reserve("o-2")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"profile": "database"},
            "profile 'database' needs an order database; open it with Pool(store, 'mug', gate=gate)",
        ),
        (
            {"profile": "memory", "gated": True},
            "profile 'memory' is for a pool without order database, and 'mug' has one; leave the profile out",
        ),
    ],
)
def test_a_profile_that_does_not_fit_the_pool_is_refused(
    valkey: ValkeyServer, options: dict[str, Any], said: str
) -> None:
    with RedisStore.from_url(valkey.url) as store:
        pool = Pool(store, SKU)
        assert refused(lambda: pool.open(stock=5, segments=2, **options), store.client) == said
