"""Commands for a pool with an order database."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from segmented import Order, Pool, RedisStore, Settled
from segmented.models import Shard
from segmented.orders import Gate, audit_both, connect
from segmented.orders.sale import take_order
from segmented.protocol import FreezePool
from segmented.servers import ValkeyServer
from segmented.stock import ShardedPool
from tests.support.command_line import ran
from tests.support.pools.gated_shop import everything

SKU: Final = "mug"
OPEN: Final = ("pool", "open", SKU, "--stock", "10", "--segments", "2", "--gated")
CHANGES: Final = {
    "restock": ("restock", SKU, "5", "--id", "change"),
    "withdraw": ("withdraw", SKU, "5", "--id", "change"),
    "resize": ("resize", SKU, "4"),
}


@pytest.fixture
def pool(store: RedisStore, gate: Gate) -> Pool:
    """Ten units in two segments, on both sides."""
    pool = Pool(store, SKU)
    Pool(pool.store, pool.sku, gate=gate).open(stock=10, segments=2)
    return pool


def check_agree(pool: Pool, gate: Gate) -> None:
    """Both sides have stocked and sold the same, nothing is under way, and the ledger explains all of it."""
    state, totals = pool.state(), gate.totals(pool.sku)
    assert (totals.quota, totals.sold) == (state.stocked, state.confirmed)
    assert gate.unfinished_changes(pool.sku) == ()
    assert pool.audit().is_clean


# --- both sides ---


def test_a_gated_pool_is_opened_changed_and_sold_from_the_command_line(
    store: RedisStore, valkey: ValkeyServer, order_database: str, open_gate: Callable[..., Gate]
) -> None:
    first = ran(*OPEN, "--create-tables", "--database", order_database, url=valkey.url)
    again = ran(*OPEN, "--database", order_database, url=valkey.url)
    assert (first.returncode, first.stderr, first.stdout.splitlines()[0]) == (0, "", "opened")
    assert (again.returncode, again.stdout.splitlines()[0]) == (0, "open already: nothing is changed")
    assert "decided by\tan order database" in first.stdout.splitlines()
    pool, gate = Pool(store, SKU), open_gate(order_database)
    assert gate.stocking.opened_epoch(SKU) == 1
    check_agree(pool, gate)
    for words, said, said_again in (
        (["restock", SKU, "5", "--id", "lorry"], "restocked: 5 units, 15 are free now", "restocked before under this"),
        (["withdraw", SKU, "4", "--id", "back"], "withdrawn: 4 units, 11 are free now", "withdrawn before under this"),
        (["resize", SKU, "3"], "3 segments now", "3 segments before: nothing is changed"),
    ):
        for sentence in (said, said_again):
            done = ran("pool", *words, "--database", order_database, url=valkey.url)
            assert (done.returncode, done.stderr, done.stdout.startswith(sentence)) == (0, "", True)
            check_agree(pool, gate)
    assert len(gate.totals(SKU).segments) == 3
    taken = take_order(pool, gate, Order("all", 11), timeout=5)
    assert isinstance(taken, Settled)
    assert taken.state == "confirmed"
    check_agree(pool, gate)


def test_the_database_may_stand_in_the_environment(
    pool: Pool, gate: Gate, valkey: ValkeyServer, order_database: str
) -> None:
    done = ran("pool", "restock", SKU, "5", "--id", "x", "--json", "-", url=valkey.url, database=order_database)
    assert (done.returncode, json.loads(done.stdout)["available"]) == (0, 15)
    check_agree(pool, gate)
    for words in (
        ["open", "cup", "--stock", "10", "--segments", "2"],
        ["restock", "cup", "5", "--id", "x"],
        ["withdraw", "cup", "5", "--id", "y"],
        ["resize", "cup", "3"],
    ):
        done = ran("pool", *words, url=valkey.url, database=order_database)
        assert (done.returncode, done.stderr) == (0, "")
    assert gate.totals("cup").segments == ()
    assert not Pool(pool.store, "cup").is_gated()


def test_too_large_a_withdrawal_and_a_restock_of_a_closed_pool_end_with_one(
    pool: Pool, gate: Gate, valkey: ValkeyServer, order_database: str
) -> None:
    few = ran("pool", "withdraw", SKU, "11", "--id", "x", "--database", order_database, url=valkey.url)
    assert (few.returncode, few.stderr) == (1, "segmented: only 10 units are free, not 11: nothing is changed\n")
    pool.close()
    late = ran("pool", "restock", SKU, "5", "--id", "y", "--database", order_database, url=valkey.url)
    assert (late.returncode, late.stderr) == (1, "segmented: the pool is closed: nothing is changed\n")
    assert (pool.state().stocked, gate.totals(SKU).quota) == (10, 10)


# --- wrong use ---


def refused(*words: str, url: str, code: int = 2) -> str:
    """Return the one sentence of a command that was not usable."""
    done = ran("pool", *words, url=url)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (code, "", 1), done.stderr
    return done.stderr.removeprefix("segmented: ").rstrip("\n")


def test_a_gated_pool_is_neither_opened_nor_changed_without_its_database(
    pool: Pool, store: RedisStore, valkey: ValkeyServer, order_database: str
) -> None:
    before = everything(store, order_database)
    assert refused(*OPEN[1:-1], url=valkey.url) == "pool 'mug' is gated: open it with --gated and --database URL"
    for name, words in CHANGES.items():
        assert refused(*words, url=valkey.url).startswith(f"pool 'mug' is gated: {name} it with --database URL, ")
    assert refused("open", "cup", *OPEN[3:], url=valkey.url).startswith("--gated needs --database URL: ")
    assert everything(store, order_database) == before
    assert pool.state().sequence == 1


@pytest.mark.usefixtures("gate")
def test_a_database_for_a_pool_that_is_not_gated_is_refused_and_nothing_changes(
    store: RedisStore, valkey: ValkeyServer, order_database: str
) -> None:
    Pool(store, SKU).open(stock=10, segments=2)
    before = everything(store, order_database)
    for words in CHANGES.values():
        assert refused(*words, "--database", order_database, url=valkey.url) == (
            "pool 'mug' is not gated: it has no order database, so leave --database out"
        )
    assert refused(*OPEN[1:], "--create-tables", "--database", order_database, url=valkey.url) == (
        "pool 'mug' is open already, and was opened without an order database, so its orders cannot be sold with one: "
        "close and archive it, then open it with one in a later epoch, with 'segmented pool reopen' if the database "
        "has rows of this sale"
    )
    ungated = [word for word in OPEN[1:] if word != "--gated"]
    for option in (["--database", order_database], ["--create-tables"]):
        sentence = f"{option[0]} is for a pool that is opened with --gated"
        assert refused(*ungated, *option, url=valkey.url) == sentence
    assert everything(store, order_database) == before


def test_a_database_without_tables_is_refused_and_gets_none(
    store: RedisStore, valkey: ValkeyServer, sqlite_url: str
) -> None:
    connect(sqlite_url).connect().close()  # makes the file, without tables
    where = sqlite_url
    tables = (
        "segmented_changes, segmented_ledger, segmented_orders, segmented_outcomes, segmented_returns, "
        "segmented_sales, segmented_segments"
    )
    begin = f"the order database {where} has no tables {tables}: "
    assert refused(*OPEN[1:], "--database", sqlite_url, url=valkey.url) == (
        f"{begin}--create-tables makes what a new one lacks"
    )
    wrong = refused(*OPEN[1:], "--stock", "0", "--create-tables", "--database", sqlite_url, url=valkey.url)
    assert wrong.startswith("stock 0 of 'mug' must be between 1 and ")
    Pool(store, SKU).open(stock=10, segments=2, gated=True)
    before = everything(store, sqlite_url)
    for words in (*CHANGES.values(), (*OPEN[1:], "--create-tables")):
        assert refused(*words, "--database", sqlite_url, url=valkey.url) == (
            f"{begin}name the one that the pool was opened with, or make what is missing by Gate.create"
        )
    assert everything(store, sqlite_url) == before
    assert before[1] == {}


def test_another_database_than_its_own_gets_no_rows_for_an_open_pool(
    pool: Pool, store: RedisStore, valkey: ValkeyServer, open_gate: Callable[..., Gate], tmp_path: Path
) -> None:
    other = f"sqlite:///{tmp_path / 'other.sqlite'}"
    open_gate(other)
    before = everything(store, other)
    assert refused(*OPEN[1:], "--database", other, url=valkey.url) == (
        f"pool 'mug' is open already, and the order database {other} has no rows for it: "
        "name the one that it was opened with"
    )
    for words in CHANGES.values():
        done = ran("pool", *words, "--database", other, url=valkey.url)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
        assert done.stderr.endswith(": the database has no rows for it\n")
    assert everything(store, other) == before
    assert pool.state().stocked == 10


def test_a_database_that_cannot_be_reached_is_named_without_its_password(
    store: RedisStore, valkey: ValkeyServer
) -> None:
    Pool(store, SKU).open(stock=10, segments=2, gated=True)
    before = store.client.dump(store.client.keys("*")[0])
    for url in (
        "postgresql://shop:geheim@127.0.0.1:1/shop",
        "postgresql://shop@127.0.0.1:1/shop?password=geheim",
    ):
        for words in (CHANGES["restock"], (*OPEN[1:], "--create-tables")):
            said = refused(*words, "--database", url, url=valkey.url, code=1)  # as for a stock's server that is away
            assert said.startswith("the order database postgresql://")
            assert " cannot be used: " in said
            assert "geheim" not in said
    for url in ("postgresql://shop:ge@heim@host/shop", "oracle://shop:geheim@host/shop", "geheim", ""):
        said = refused(*CHANGES["restock"], "--database", url, url=valkey.url)
        assert "heim" not in said.replace("segmented", "")
    assert store.client.dump(store.client.keys("*")[0]) == before


def test_a_shard_of_a_gated_pool_is_changed_verified_and_rebuilt_with_its_database(
    store: RedisStore, gate: Gate, order_database: str, valkey: ValkeyServer
) -> None:
    pool = ShardedPool(store, "plate", gate=gate)
    pool.open(stock=20, segments=4, shards=2)
    database = ("--database", order_database)
    changes = (
        ("restock", "plate", "4", "--id", "r"),
        ("withdraw", "plate", "13", "--id", "w"),
        ("resize", "plate", "6"),
    )
    for words in changes:
        assert ran("pool", *words, url=valkey.url).returncode == 2
        assert ran("pool", *words, *database, url=valkey.url).returncode == 0
    assert (pool.available(), pool.state().segment_count) == (11, 6)
    for shard in pool.shards:
        check_agree(shard, gate)
    name = pool.shards[1].sku
    assert isinstance(name, Shard)
    store.execute(FreezePool(name, 1))
    refused = ran("pool", "rebuild", "plate", *database, url=valkey.url)
    assert (refused.returncode, "give --shard 0 to 1" in refused.stderr) == (2, True)
    for command in ("rebuild", "verify"):
        assert ran("pool", command, "plate", "--shard", "1", *database, url=valkey.url).returncode == 0
    assert [shard.state().epoch for shard in pool.shards] == [1, 2]
    for shard in pool.shards:
        check_agree(shard, gate)


@pytest.fixture
def sold_pool(store: RedisStore, gate: Gate) -> Pool:
    """Ten units in two segments, of which three are sold."""
    sold_pool = Pool(store, SKU)
    Pool(sold_pool.store, sold_pool.sku, gate=gate).open(stock=10, segments=2)
    take(sold_pool, gate, "a", 3)
    return sold_pool


def take(sold_pool: Pool, gate: Gate, order_id: str, quantity: int) -> None:
    assert isinstance(take_order(sold_pool, gate, Order(order_id, quantity), timeout=0), Settled)


def lose(store: RedisStore) -> None:
    """Let the server lose its data, and this process what it has seen of it."""
    store.client.flushall()


def reopen(database: str, valkey: ValkeyServer, *more: str) -> tuple[int, str, str]:
    said = ran("pool", "reopen", SKU, "--database", database, "--segments", "4", *more, url=valkey.url)
    return said.returncode, said.stdout, said.stderr


def refused_reopening(*words: str, url: str) -> str:
    """Return the one sentence of a command that was not usable."""
    done = ran("pool", *words, url=url)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    return done.stderr.removeprefix("segmented: ").rstrip("\n")


@pytest.mark.usefixtures("sold_pool")
def test_a_pool_whose_keys_are_gone_is_opened_with_what_is_not_sold(
    store: RedisStore, gate: Gate, order_database: str, valkey: ValkeyServer
) -> None:
    lose(store)
    assert reopen(order_database, valkey) == (0, "reopened in epoch 2: 7 free\n", "")
    assert reopen(order_database, valkey) == (0, "open already in epoch 2: nothing is changed\n", "")
    with RedisStore.from_url(valkey.url) as new:
        again = Pool(new, SKU)
        take(again, gate, "a", 3)  # it was sold before
        take(again, gate, "b", 7)
        assert (again.state().segment_count, again.state().sale_id) == (4, gate.totals(SKU).sale_id)
        assert audit_both(again, gate).is_clean
    assert gate.totals(SKU).sold == 10
    lose(store)
    assert reopen(order_database, valkey) == (
        2,
        "",
        "segmented: the whole stock of 'mug' is sold, 10 units: there is nothing to open again\n",
    )


@pytest.mark.usefixtures("sold_pool")
def test_the_answer_is_written_as_json_and_the_epoch_may_be_given(
    store: RedisStore, order_database: str, valkey: ValkeyServer
) -> None:
    lose(store)
    for is_new in (True, False):
        exit_code, written, _ = reopen(order_database, valkey, "--epoch", "5", "--json", "-")
        found = json.loads(written)
        assert (exit_code, found["is_new"], found["epoch"], found["available"]) == (0, is_new, 5, 7)
    assert reopen(order_database, valkey, "--epoch", "4")[0] == 2
    lose(store)
    assert reopen(order_database, valkey, "--epoch", "5") == (
        2,
        "",
        "segmented: pool 'mug' was open in epoch 5; give a later epoch\n",
    )


@pytest.mark.usefixtures("sold_pool")
def test_an_interrupted_reopening_is_finished_in_its_epoch(
    store: RedisStore, gate: Gate, order_database: str, valkey: ValkeyServer
) -> None:
    lose(store)
    gate.stocking.raise_epoch(SKU, 4, epoch=2, opened=1)
    assert reopen(order_database, valkey) == (0, "reopened in epoch 2: 7 free\n", "")


def test_a_pool_that_sells_and_differs_from_its_database_is_rebuilt_if_that_is_said(
    sold_pool: Pool, gate: Gate, order_database: str, valkey: ValkeyServer
) -> None:
    gate.confirm(order_id="unknown", sku=SKU, segment=0, quantity=2, epoch=1)
    before = sold_pool.state().available
    words = ("pool", "rebuild", SKU, "--database", order_database)
    assert not audit_both(sold_pool, gate).is_clean
    assert ran(*words, url=valkey.url).stdout.startswith("sells in epoch 1: ")
    assert sold_pool.state().epoch == 1
    assert ran(*words, "--selling", url=valkey.url).stdout.startswith("rebuilt in epoch 2: ")
    assert (audit_both(sold_pool, gate).is_clean, sold_pool.state().available) == (True, before - 2)
    assert ran(*words[:2], "--all", *words[3:], "--selling", url=valkey.url).returncode == 2


def test_an_archive_of_a_pool_whose_ledger_is_not_relayed_names_the_relay(
    sold_pool: Pool, gate: Gate, order_database: str, valkey: ValkeyServer, tmp_path: Path
) -> None:
    words = ("relay", SKU, "--database", order_database)
    assert ran("pool", *words, url=valkey.url).returncode == 0
    take(sold_pool, gate, "later", 1)
    sold_pool.close()
    told = refused_reopening("archive", SKU, "--to", str(tmp_path / "mug.jsonl"), "--yes", url=valkey.url)
    assert told == (
        "pool 'mug' cannot be archived: 3 changes are not in the order database yet: run 'segmented pool relay mug "
        "--database URL'"
    )
