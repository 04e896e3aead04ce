"""`segmented pool forget`, on a real server and both databases."""

import json
from collections.abc import Iterator

import pytest

from segmented import Order, Pool, RedisStore, protocol as op
from segmented.orders import Gate, forgetting, relay
from segmented.orders.sale import take_order
from segmented.servers import ValkeyServer
from tests.support.command_line import ran

SKU = "mug"


@pytest.fixture
def order_database(sqlite_url: str) -> str:
    return sqlite_url


@pytest.fixture(autouse=True)
def a_short_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command waits for a moment only, not for ten seconds."""
    monkeypatch.setattr(forgetting, "NOTICE_MS", 10)


@pytest.fixture
def pool(valkey: ValkeyServer, gate: Gate) -> Iterator[Pool]:
    """Three of ten units are sold to two orders, and the ledger is relayed and trimmed."""
    with RedisStore.from_url(valkey.url) as store:
        pool = Pool(store, SKU)
        Pool(pool.store, pool.sku, gate=gate).open(stock=10, segments=2)
        take_order(pool, gate, Order("a", 1), timeout=5)
        take_order(pool, gate, Order("b", 2), timeout=5)
        for _ in range(2):
            relay(pool, gate, trim_keep=0)
        yield pool


@pytest.mark.usefixtures("pool")
def test_the_first_run_waits_and_drops_and_a_second_one_finds_nothing(
    order_database: str, valkey: ValkeyServer
) -> None:
    words = ("pool", "forget", SKU, "--database", order_database, "--grace", "0")
    first = ran(*words, url=valkey.url)
    assert (first.returncode, first.stdout) == (
        0,
        "forgot 2 orders with 3 sold units, up to change 5; 0 records are left\n",
    )
    assert first.stderr.startswith("segmented: waiting ")
    second = ran(*words, "--json", "-", url=valkey.url)
    assert (second.returncode, second.stderr) == (0, "")
    assert json.loads(second.stdout) == {
        "sku": SKU,
        "orders": 0,
        "units": 0,
        "left": 0,
        "up_to": 5,
        "wait_seconds": 0.0,
        "not_relayed": 0,
        "not_trimmed": 0,
        "in_grace": 0,
    }
    assert "forgotten orders\t2\n" in ran("pool", "show", SKU, url=valkey.url).stdout
    audited = ran("pool", "audit", SKU, "--database", order_database, url=valkey.url)
    assert audited.returncode == 0, audited.stdout + audited.stderr


def test_orders_of_the_last_day_stay_by_default(pool: Pool, order_database: str, valkey: ValkeyServer) -> None:
    pool.store.execute(op.ForgetOrders(SKU, 1, 0))
    said = ran("pool", "forget", SKU, "--database", order_database, url=valkey.url)
    assert said.stdout == (
        "forgot 0 orders with 0 sold units, up to change 0; 2 records are left\n"
        "2 of them ended less than 86400 s ago: --grace sets this time\n"
    )


def test_it_says_how_many_records_stay_and_why(
    pool: Pool, gate: Gate, order_database: str, valkey: ValkeyServer
) -> None:
    pool.store.execute(op.ForgetOrders(SKU, 1, 0))
    take_order(pool, gate, Order("relayed", 1), timeout=5)
    relay(pool, gate)
    for order_id in ("later", "last"):
        take_order(pool, gate, Order(order_id, 1), timeout=5)
    pool.reserve("unfinished")
    said = ran("pool", "forget", SKU, "--database", order_database, "--grace", "0", url=valkey.url)
    assert said.stdout == (
        "forgot 2 orders with 3 sold units, up to change 5; 4 records are left\n"
        "2 of them are not relayed: run 'segmented pool relay mug' with --trim-keep\n"
        "1 of them is relayed but not trimmed: run 'segmented pool relay mug' with --trim-keep\n"
    )


@pytest.mark.usefixtures("pool")
def test_without_a_database_it_says_what_is_missing(valkey: ValkeyServer) -> None:
    said = ran("pool", "forget", SKU, url=valkey.url)
    assert (said.returncode, said.stdout) == (2, "")
    assert "forget needs --database URL: the order database that answers repeats of orders of 'mug'" in said.stderr
