"""`segmented pool` on pools in shards: opened so by an option, and found by every other command by itself."""

import json
from collections.abc import Iterator
from typing import Final

import pytest

from segmented import protocol as op
from segmented.keys import shard_keys
from segmented.models import Shard, ShardDirectory
from segmented.servers import ValkeyServer
from segmented.stock import Pool, ShardedPool
from segmented.stores.redis import RedisStore
from tests.support.command_line import ran

pytestmark = pytest.mark.usefixtures("patient_shards")

SKU: Final = "concert"
SHARDS: Final = 3
OPEN: Final = ("pool", "open", SKU, "--stock", "90", "--segments", "6", "--shards", str(SHARDS))


@pytest.fixture
def pool(valkey: ValkeyServer) -> Iterator[ShardedPool]:
    """A pool of 90 units in 3 shards of 2 segments, of which 3 are sold and 2 reserved."""
    with RedisStore.from_url(valkey.url) as store:
        pool = ShardedPool(store, SKU)
        pool.open(stock=90, segments=6, shards=SHARDS)
        pool.reserve("sold", quantity=3)
        pool.confirm("sold")
        pool.reserve("held", quantity=2)
        yield pool


def blocks(shown: str) -> list[list[list[str]]]:
    return [[line.split("\t") for line in block.splitlines()] for block in shown.split("\n\n")]


def rows_of(shown: str) -> dict[str, str]:
    return {row[0]: row[1] for row in blocks(shown)[0] if len(row) == 2}


def names(pool: ShardedPool) -> list[Shard]:
    found = [shard.sku for shard in pool.shards]
    return [name for name in found if isinstance(name, Shard)]


def send(pool: ShardedPool, source: int, target: int, units: int) -> None:
    """Do what a process does that dies before the units arrive."""
    assert pool.store.execute(op.SendUnits(names(pool)[source], target, units)) is not None


def lose_an_order(pool: ShardedPool) -> int:
    """Lose the record of a sold order; return the number of its shard."""
    home = pool.shard_of("sold").sku
    assert isinstance(home, Shard)
    assert isinstance(pool.store, RedisStore)
    number = next(each for each in range(1_000) if pool.shard_of(f"other-{each}").sku == home)
    pool.reserve(f"other-{number}")  # a shard that lost all its records is frozen
    pool.cancel(f"other-{number}")
    pool.store.client.hdel(shard_keys(home).orders, "sold")
    return home.number


# --- opening ---


def test_a_pool_in_shards_is_opened_once(valkey: ValkeyServer) -> None:
    words = [*OPEN, "--limit-per-customer", "2", "--epoch", "7"]
    first, again = (ran(*words, url=valkey.url) for _ in range(2))
    assert (first.returncode, first.stderr, again.returncode) == (0, "", 0)
    assert (first.stdout.splitlines()[0], again.stdout.splitlines()[0]) == (
        "opened",
        "open already: nothing is changed",
    )
    rows = rows_of(first.stdout)
    assert (rows["available"], rows["shards"], rows["segments"], rows["on the way"]) == ("90", "3", "6", "0")
    with RedisStore.from_url(valkey.url) as store:
        states = [shard.state() for shard in ShardedPool(store, SKU).shards]
    assert [(state.opened, state.segment_count, state.limit_per_customer, state.epoch) for state in states] == [
        (30, 2, 2, 7)
    ] * 3


def test_an_opening_that_was_cut_short_is_gone_on_with_in_its_own_numbers(valkey: ValkeyServer) -> None:
    with RedisStore.from_url(valkey.url) as store:
        begun = ShardDirectory(SKU, ("a", "a"), 80, 4, 1, None, is_open=False)
        store.execute(op.WriteDirectory(begun, 0))
        assert ran("pool", "show", SKU, url=valkey.url).stderr.startswith("segmented: pool 'concert' is not open")
        done = ran(*OPEN, url=valkey.url)
        assert (done.returncode, done.stderr) == (
            1,
            "segmented: opened, with stock 80 instead of 90, segments 4 instead of 6, shards 2 instead of 3\n",
        )
        assert [shard.state().opened for shard in ShardedPool(store, SKU).shards] == [40, 40]


# --- looking ---


def test_a_pool_is_shown_with_a_row_for_each_shard(pool: ShardedPool, valkey: ValkeyServer) -> None:
    done = ran("pool", "show", SKU, url=valkey.url)
    totals, shards, segments = blocks(done.stdout)
    assert (done.returncode, done.stderr) == (0, "")
    assert [" ".join(row) for row in totals] == [
        *("sku concert", "state open", "stocked 90", "available 85", "on the way 0", "reserved 2", "confirmed 3"),
        *(
            "orders 2",
            "shards 3",
            "segments 6",
            "limit per customer none",
            "decided by the pool",
            "profile memory",
            "epoch 1",
            "changes 6",
        ),
    ]
    states = [shard.state() for shard in pool.shards]
    assert shards == [
        [str(number), "2", str(state.available), str(state.reserved), str(state.confirmed), "0"]
        for number, state in enumerate(states)
    ]
    assert segments == [
        [str(number), str(segment), str(units)]
        for number, state in enumerate(states)
        for segment, units in enumerate(state.stock)
    ]


# --- changing ---


# --- the books ---


def test_an_audit_names_the_shard_of_each_drift_and_ends_with_one(pool: ShardedPool, valkey: ValkeyServer) -> None:
    home = lose_an_order(pool)
    done = ran("pool", "audit", SKU, url=valkey.url)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.splitlines()[0].startswith(f"shard {home}: lost: order sold: ")
    assert rows_of(done.stdout)["audit"] == "not clean, in 3 shards"
    found = json.loads(ran("pool", "audit", SKU, "--json", "-", url=valkey.url).stdout)
    assert [shard["drift_count"] for shard in found["shards"]] == [int(number == home) for number in range(SHARDS)]


def test_a_repair_mends_each_shard_and_brings_in_what_is_on_the_way(pool: ShardedPool, valkey: ValkeyServer) -> None:
    home = lose_an_order(pool)
    send(pool, 0, 1, 4)
    told = ran("pool", "audit", SKU, url=valkey.url)
    assert rows_of(told.stdout)["on the way"] == "4"
    refused = ran("pool", "repair", SKU, url=valkey.url)
    assert (refused.returncode, refused.stdout) == (2, "")
    done = ran("pool", "repair", SKU, "--yes", url=valkey.url)
    lines = done.stdout.splitlines()
    assert (done.returncode, done.stderr) == (0, "")
    assert lines[0].startswith(f"mended\t{home}\tlost\tsold\t")
    assert lines[1] == "brought in: 4 units on the way between shards"
    assert (pool.state().away, pool.audit().away, pool.audit().is_clean) == (0, 0, True)
    again = json.loads(ran("pool", "repair", SKU, "--yes", "--json", "-", url=valkey.url).stdout)
    assert (again["done_count"], again["brought_in"], again["repairs"], again["after"]["is_clean"]) == (0, 0, [], True)


# --- bad input ---


def test_bad_input_is_one_sentence_and_exit_code_two_and_changes_nothing(
    pool: ShardedPool, valkey: ValkeyServer
) -> None:
    for words, sentence in (
        (
            "open new --stock 9 --segments 3 --shards 3 --gated",
            "--gated needs --database URL: the order database that decides the orders of 'new'",
        ),
        ("open new --stock 9 --segments 3 --shards 0", "shard count 0 of 'new' must be between 1 and 64"),
        ("open new --stock 2 --segments 3 --shards 3", "stock 2 of 'new' must be between 3 and 1,000,000,000,000"),
        ("open new --stock 9 --segments 2 --shards 3", "segment count 2 of 'new' must be between 3 and 4,096"),
        ("resize concert 2", "segment count 2 of 'concert' must be between 3 and 4,096"),
        (
            "export concert --after 4",
            "each shard of 'concert' counts its own changes: name one by --shard with --after 4",
        ),
        ("export concert --shard 3", "--shard 3 must be between 0 and 2: 'concert' has 3 shards"),
        ("export concert --shard -1", "--shard -1 must be between 0 and 2: 'concert' has 3 shards"),
        ("export plain --shard 0", "pool 'plain' is not in shards, so --shard 0 cannot be given"),
    ):
        Pool(pool.store, "plain").open(stock=9, segments=3)
        assert isinstance(pool.store, RedisStore)
        before = pool.state(), pool.store.client.dbsize()
        done = ran("pool", *words.split(), url=valkey.url)
        assert (done.returncode, done.stdout, done.stderr) == (2, "", f"segmented: {sentence}\n")
        assert (pool.state(), pool.store.client.dbsize()) == before


# --- on a cluster ---
