"""`segmented pool relay` and `segmented pool trim`, on a real server and both databases."""

import json
import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import func, select

from segmented import Pool, RedisStore
from segmented.orders import Gate, connect
from segmented.orders.tables import ledger
from segmented.servers import PostgresServer, ValkeyServer
from tests.support.command_line import ran, started
from tests.support.pools.engines import engine_of

SKU = "mug"
SECONDS = 120.0


@pytest.fixture
def order_database(sqlite_url: str) -> str:
    return sqlite_url


@pytest.fixture
def pool(store: RedisStore) -> Pool:
    """A pool without an order database, with five changes."""
    pool = Pool(store, SKU)
    pool.open(stock=100, segments=4)
    sell(pool, 2)
    return pool


def sell(pool: Pool, count: int) -> None:
    """Two changes an order."""
    for _ in range(count):
        order_id = f"o-{pool.state().sequence}"
        pool.reserve(order_id)
        pool.confirm(order_id)


def shown(command: str, *words: str, url: str) -> str:
    said = ran("pool", command, SKU, *words, url=url)
    assert (said.returncode, said.stderr) == (0, ""), said.stderr
    return said.stdout


def row_count(gate: Gate) -> int:
    with engine_of(gate).connect() as connection:  # reads without the code under test
        return connection.execute(select(func.count()).select_from(ledger)).scalar_one()


@pytest.mark.usefixtures("pool")
def test_the_command_copies_what_is_new_and_says_what_is_left(
    pool: Pool, gate: Gate, order_database: str, valkey: ValkeyServer
) -> None:
    database = ("--database", order_database)
    assert shown("relay", *database, url=valkey.url) == "relayed up to 1-5: 5 changes copied, nothing behind\n"
    assert shown("relay", *database, url=valkey.url) == "relayed up to 1-5: 0 changes copied, nothing behind\n"
    assert "relayed\t1-5, nothing behind\n" in shown("show", url=valkey.url)
    sell(pool, 1)
    assert re.search(r"^relayed\t1-5, 2 behind, \d+\.\d s$", shown("show", url=valkey.url), re.MULTILINE)
    found = json.loads(shown("relay", *database, "--trim-keep", "0", "--json", "-", url=valkey.url))
    assert {name: found[name] for name in ("sku", "copied", "entries_behind")} == {
        "sku": SKU,
        "copied": 2,
        "entries_behind": 1,
    }
    assert found["shards"][0]["first_sequence"] == 8
    assert row_count(gate) == 7


def test_a_trim_beyond_what_was_relayed_is_refused(
    pool: Pool, gate: Gate, order_database: str, valkey: ValkeyServer
) -> None:
    assert shown("trim", "--keep", "4", url=valkey.url) == "the ledger begins with 1; its last entry is 6\n"
    assert shown("relay", "--database", order_database, url=valkey.url).startswith("relayed up to 1-6: 6 changes")
    sell(pool, 1)
    wrong = ran("pool", "trim", SKU, "--keep", "0", url=valkey.url)
    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert "was relayed up to change 1-6, so it cannot be trimmed to 1-8: relay it first" in wrong.stderr
    said = shown("relay", "--database", order_database, "--trim-keep", "2", url=valkey.url)
    assert re.fullmatch(
        r"relayed up to 1-8: 2 changes copied, 1 entry and \d+\.\d s behind; the ledger begins with 6\n", said
    )
    found = json.loads(shown("trim", "--keep", "4", "--json", "-", url=valkey.url))
    assert found == {"sku": SKU, "shards": [{"shard": 0, "first_sequence": 6, "sequence": 9}]}
    assert row_count(gate) == 8


@pytest.mark.usefixtures("gate")
def test_it_follows_a_sale_until_a_signal(pool: Pool, gate: Gate, order_database: str, valkey: ValkeyServer) -> None:
    process = started(
        "pool", "relay", SKU, "--database", order_database, "--follow", "--every", "0.1", "--json", "-", url=valkey.url
    )
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["copied"] == 5
    sell(pool, 10)
    copied = 0
    while copied < 20:
        copied += json.loads(process.stdout.readline())["copied"]
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=SECONDS) == 0
    assert (copied, row_count(gate), process.communicate()[1]) == (20, 25, "")


def test_following_survives_a_database_that_is_restarted(
    pool: Pool, private_postgres: PostgresServer, open_gate: Callable[..., Gate], valkey: ValkeyServer
) -> None:
    gate = open_gate(private_postgres.url)
    process = started(
        "pool", "relay", SKU, "--database", private_postgres.url, "--follow", "--every", "0.1", url=valkey.url
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == "relayed up to 1-5: 5 changes copied, nothing behind\n"
    private_postgres.kill()
    sell(pool, 1)
    assert "did not answer" in process.stderr.readline()
    private_postgres.restart()
    assert process.stdout.readline() == "relayed up to 1-7: 2 changes copied, nothing behind\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=SECONDS) == 0
    process.communicate()
    engine_of(gate).dispose()  # its connections ended with the server
    assert row_count(gate) == 7


def refused(*words: str, url: str) -> str:
    said = ran("pool", *words, url=url)
    assert (said.returncode, said.stdout) == (2, "")
    return " ".join(said.stderr.split())


@pytest.mark.usefixtures("pool")
def test_bad_input_is_one_sentence_and_changes_nothing(
    pool: Pool, valkey: ValkeyServer, tmp_path: Path, order_database: str
) -> None:
    relay = ("relay", SKU)
    assert "relay needs --database URL: the order database that gets the ledger of 'mug'" in refused(
        *relay, url=valkey.url
    )
    missing = f"sqlite:///{tmp_path / 'nowhere.sqlite'}"
    assert "the file does not exist; name another one, or create it with 'segmented orders migrate" in refused(
        *relay, "--database", missing, url=valkey.url
    )
    connect(order_database).dispose()  # makes the file, without tables
    no_tables = refused(*relay, "--database", order_database, url=valkey.url)
    assert (
        "has no tables segmented_changes, segmented_ledger, segmented_orders, segmented_outcomes, segmented_returns, "
        in no_tables
    )
    assert no_tables.endswith("create what is missing with 'segmented orders migrate --database URL'")
    every = refused(*relay, "--database", order_database, "--every", "0", url=valkey.url)
    assert "--every 0 must be between 0.1 and 86,400 s" in every
    assert "--trim-keep" in refused(*relay, "--database", order_database, "--trim-keep", "-1", url=valkey.url)
    assert "--keep" in refused("trim", SKU, "--keep", "-1", url=valkey.url)
    assert pool.state().relayed is None
