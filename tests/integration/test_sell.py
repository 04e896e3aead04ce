"""`segmented sell` as its user sees it, on real servers with real workers."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis
import sqlalchemy

from segmented import operations as op
from segmented.keys import shard_keys
from segmented.models import Order
from segmented.orders import Gate, connect
from segmented.servers import ValkeyServer
from segmented.stock import Grant, Pool
from segmented.stores.redis import RedisStore
from tests.selling import first_orders, require_embedded, sell

STOCK_OF_3000 = ("--stock", "3000", "--segments", "20")


@pytest.fixture(autouse=True)
def _embedded() -> None:
    require_embedded()


@pytest.fixture
def given(valkey: ValkeyServer, postgres_database: str) -> tuple[str, ...]:
    """Name running servers, which outlive the command."""
    return ("--url", valkey.url, "--database", postgres_database)


def test_2000_orders_and_a_stock_of_3000_end_with_3000_units_sold(tmp_path: Path, data_folder: Path) -> None:
    file = first_orders(tmp_path, 2_000)
    sold = sell(tmp_path, file, *STOCK_OF_3000, "--data", str(data_folder))
    assert sold.exit_code == 0, sold
    counts = sold.counts
    assert counts["orders"] == counts["confirmed_orders"] + counts["refused_orders"] == 2_000
    assert (counts["confirmed_units"], counts["sql_units"], counts["replayed_orders"]) == (3_000, 3_000, 0)
    assert (counts["oversold"], counts["refused_wrongly"], counts["audit"]) == (0, 0, "clean")
    assert counts["peak_memory_mib"] < 500
    assert sold.errors == f"{file}: columns not used: ordered_on\n"
    assert len(sold.results) == 2_000
    confirmed = [line for line in sold.results if line["outcome"] == "confirmed"]
    assert len(confirmed) == counts["confirmed_orders"]
    assert sum(int(line["quantity"]) for line in confirmed) == 3_000
    assert len({line["fencing_token"] for line in confirmed}) == len(confirmed)
    assert {int(line["segment"]) for line in confirmed} == set(range(20))
    refused = [line for line in sold.results if line["outcome"] == "refused"]
    assert {(line["segment"], line["fencing_token"]) for line in refused} == {("", "")}
    assert len({line["sequence"] for line in sold.results}) == 2_000

    again = sell(tmp_path, file, *STOCK_OF_3000, "--data", str(data_folder))
    assert again.exit_code == 0, again
    assert again.counts["replayed_orders"] == 2_000
    assert again.counts["selling_seconds"] == 0
    told = ("confirmed_orders", "confirmed_units", "refused_orders", "sql_units", "audit")
    assert [again.counts[key] for key in told] == [counts[key] for key in told]
    assert again.results == sold.results


def test_an_order_database_in_sqlite_is_accepted(tmp_path: Path, sqlite_url: str) -> None:
    sold = sell(tmp_path, first_orders(tmp_path, 300), "--stock", "400", "--segments", "7", "--database", sqlite_url)
    assert sold.exit_code == 0, sold
    assert (sold.counts["confirmed_units"], sold.counts["sql_units"], sold.counts["audit"]) == (400, 400, "clean")
    engine = sqlalchemy.create_engine(sqlite_url)
    with engine.connect() as connection:
        stored = connection.execute(sqlalchemy.text("SELECT sum(quantity), count(*) FROM segmented_orders")).one()
    engine.dispose()
    assert tuple(stored) == (400, sold.counts["confirmed_orders"])


def test_with_a_sku_column_each_sku_has_a_stock_of_its_own(tmp_path: Path, given: tuple[str, ...]) -> None:
    file = tmp_path / "orders.csv"
    lines = [f"{sku}-{number},{sku},1\n" for number in range(60) for sku in ("mug", "cup", "jug")]
    file.write_text("order_id,sku,quantity\n" + "".join(lines) + "jug-0,jug,1\n")
    sold = sell(tmp_path, file, "--stock", "40", "--segments", "4", *given)
    assert sold.exit_code == 0, sold
    assert sold.errors == f"{file}: 1 lines repeat an order of an earlier line; each counts once\n"
    assert (sold.counts["orders"], sold.counts["confirmed_orders"], sold.counts["refused_orders"]) == (180, 120, 60)
    assert (sold.counts["confirmed_units"], sold.counts["sql_units"]) == (120, 120)
    for sku in ("mug", "cup", "jug"):
        assert sum(line["outcome"] == "confirmed" for line in sold.results if line["sku"] == sku) == 40


def test_an_order_larger_than_the_stock_is_refused_and_a_stock_smaller_than_k_is_sold(
    tmp_path: Path, given: tuple[str, ...]
) -> None:
    file = tmp_path / "orders.csv"
    file.write_text("order_id,quantity\nwhole,1000000000\na,1\nb,1\nc,1\n")
    sold = sell(tmp_path, file, "--stock", "2", "--segments", "50", "--workers", "1", *given)
    assert sold.exit_code == 0, sold
    assert (sold.counts["confirmed_orders"], sold.counts["refused_orders"]) == (2, 2)
    assert sold.results[0]["outcome"] == "refused"


def test_an_open_pool_is_not_sold_as_another(tmp_path: Path, given: tuple[str, ...], valkey: ValkeyServer) -> None:
    file = tmp_path / "orders.csv"
    file.write_text("order_id,quantity\na,1\n")
    assert sell(tmp_path, file, "--stock", "10", "--segments", "2", *given).exit_code == 0
    with redis.Redis.from_url(valkey.url) as client:
        sequence = client.hget(shard_keys("default").meta, "sequence")
        for stock, segments in (("11", "2"), ("10", "3")):
            other = sell(tmp_path, file, "--stock", stock, "--segments", segments, *given)
            open_as = "pool 'default' is open with stock 10 in 2 segments"
            sentence = f"segmented: {open_as}, not with stock {stock} in {segments} segments\n"
            assert (other.exit_code, other.errors, other.counts) == (2, sentence, {})
        assert client.hget(shard_keys("default").meta, "sequence") == sequence

    file.write_text("order_id,quantity\na,2\n")
    other = sell(tmp_path, file, "--stock", "10", "--segments", "2", *given)
    here = f"{file}, line 2: order_id 'a' has quantity 2 and customer None"
    sentence = f"segmented: {here}, but the pool knows it with quantity 1 and customer None\n"
    assert (other.exit_code, other.errors) == (2, sentence)


def test_a_pool_and_a_database_that_do_not_belong_together_are_refused(
    tmp_path: Path, given: tuple[str, ...], sqlite_url: str, start_valkey: object
) -> None:
    file = tmp_path / "orders.csv"
    file.write_text("order_id,quantity\na,1\n")
    options = ("--stock", "10", "--segments", "2")
    assert sell(tmp_path, file, *options, *given).exit_code == 0
    other_database = sell(tmp_path, file, *options, "--url", given[1], "--database", sqlite_url)
    sentence = f"segmented: pool 'default' is open, but Gate({sqlite_url}) has no rows for it: name the database it was opened with\n"
    assert (other_database.exit_code, other_database.errors) == (2, sentence)
    other_stock = sell(tmp_path, file, *options, "--database", given[3])
    assert other_stock.exit_code == 2
    assert "has 1 units of 'default' sold, but the stock's server has no such pool" in other_stock.errors


def test_an_order_that_is_confirmed_in_the_database_alone_is_finished_and_not_sold_again(
    tmp_path: Path, given: tuple[str, ...], valkey: ValkeyServer, postgres_database: str
) -> None:
    """A worker was killed between the commit and the pool: `a` has that state, `b` only holds its units."""
    with RedisStore.from_url(valkey.url) as store, Gate(connect(postgres_database)) as gate:
        pool = Pool(store, "default", ttl=0.5)
        gate.create()
        gate.open("default", [5, 5])
        pool.open(stock=10, segments=2, gated=True)
        grants = {order_id: pool.grant(Order(order_id, 3)) for order_id in ("a", "b")}
        killed = grants["a"]
        assert isinstance(killed, Grant)
        gate.confirm(
            order_id="a",
            sku="default",
            segment=killed.segment,
            quantity=3,
            epoch=killed.epoch,
            fence=killed.fencing_token,
        )
    file = tmp_path / "orders.csv"
    file.write_text("order_id,quantity\na,3\nb,3\nc,3\nd,3\n")
    sold = sell(tmp_path, file, "--stock", "10", "--segments", "2", *given)
    assert sold.exit_code == 0, sold
    assert (sold.counts["confirmed_orders"], sold.counts["refused_orders"], sold.counts["replayed_orders"]) == (3, 1, 0)
    assert (sold.counts["confirmed_units"], sold.counts["sql_units"], sold.counts["audit"]) == (9, 9, "clean")
    assert [line["outcome"] for line in sold.results[:2]] == ["confirmed", "confirmed"]


def test_a_promise_that_does_not_hold_is_said_and_ends_with_one(
    tmp_path: Path, given: tuple[str, ...], valkey: ValkeyServer, postgres_database: str
) -> None:
    file = tmp_path / "orders.csv"
    file.write_text("order_id,quantity\na,1\nb,2\n")
    options = ("--stock", "10", "--segments", "2", *given)
    assert sell(tmp_path, file, *options).exit_code == 0
    with redis.Redis.from_url(valkey.url) as client:
        client.hincrby(shard_keys("default").meta, "confirmed", 1)
    engine = sqlalchemy.create_engine(postgres_database)
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text("DELETE FROM segmented_orders WHERE order_id = 'b'"))
    engine.dispose()
    broken = sell(tmp_path, file, *options)
    assert broken.exit_code == 1
    assert broken.counts["sql_units"] == 1
    assert broken.counts["audit"] == [
        "total differs: confirmed is 4, the ledger says 3",
        "not conserved: opened 10, but 7 available + 0 reserved + 4 confirmed",
        "pool 'default' has 4 units confirmed, the order database has 1",
        "order b is confirmed, but the order database has 0 units confirmed",
    ]
    assert "drift: order b is confirmed" in broken.printed


def test_servers_that_cannot_be_used_are_refused_in_one_sentence(tmp_path: Path, start_valkey: object) -> None:
    file = tmp_path / "orders.csv"
    file.write_text("order_id,quantity\na,1\n")
    assert callable(start_valkey)
    locked = start_valkey(config={"requirepass": "secret"}).url
    evicting = start_valkey(config={"maxmemory-policy": "allkeys-lru"}).url
    wrong = locked.replace("unix://", "unix://:guess@")
    cases = {
        ("--url", "redis://127.0.0.1:1"): "no server answers at redis://127.0.0.1:1: Error 111 connecting to 127.0.0.1:1. Connection refused.",
        ("--url", wrong): f"{wrong.replace('guess', '***')} refused the password or account of the URL",
        ("--url", evicting): f"the server at {evicting} has maxmemory-policy allkeys-lru, which may evict locks and stock; set noeviction",
        ("--url", "http://host"): "--url http://host is not a Redis URL: it should begin with redis://, rediss://, unix://",
        ("--url", "redis://host", "--data", str(tmp_path)): "--data keeps the servers that this command starts, so --url cannot be given with it",
    }  # fmt: skip  # one case a line
    for options, sentence in cases.items():
        refused = sell(tmp_path, file, "--stock", "1", "--segments", "1", *options)
        assert (refused.exit_code, refused.errors, refused.counts) == (2, f"segmented: {sentence}\n", {})


def test_a_broker_that_does_not_answer_is_refused_and_nothing_is_opened(
    tmp_path: Path, given: tuple[str, ...], valkey: ValkeyServer
) -> None:
    file = tmp_path / "orders.csv"
    file.write_text("order_id,quantity\na,1\n")
    refused = sell(tmp_path, file, "--stock", "1", "--segments", "1", *given, "--broker", "redis://:pw@127.0.0.1:1/0")
    assert refused.exit_code == 2
    assert refused.errors.startswith("segmented: no broker answers at redis://:***@127.0.0.1:1/0: ")
    with redis.Redis.from_url(valkey.url) as client:
        assert client.dbsize() == 0


@pytest.mark.parametrize(
    ("option", "value", "sentence"),
    [
        ("--segments", "0", "--segments 0 must be between 1 and 4,096"),
        ("--segments", "4097", "--segments 4097 must be between 1 and 4,096"),
        ("--stock", "0", "--stock 0 must be between 1 and 1,000,000,000,000"),
        ("--workers", "0", "--workers 0 must be between 1 and 64"),
        ("--republish-after", "0", "--republish-after 0 must be 1 second or more"),
        (
            "--results",
            "/nowhere/results.csv",
            "--results /nowhere/results.csv cannot be written: No such file or directory",
        ),
        ("--json", "/", "--json / is a folder, not a file"),
    ],
)
def test_an_option_out_of_range_is_refused(tmp_path: Path, option: str, value: str, sentence: str) -> None:
    file = tmp_path / "orders.csv"
    file.write_text("order_id,quantity\na,1\n")
    refused = sell(tmp_path, file, "--stock", "1", "--segments", "1", option, value)
    assert (refused.exit_code, refused.errors) == (2, f"segmented: {sentence}\n")


def test_the_ledger_tells_what_the_results_file_says(
    tmp_path: Path, given: tuple[str, ...], valkey: ValkeyServer
) -> None:
    sold = sell(tmp_path, first_orders(tmp_path, 100), "--stock", "100", "--segments", "3", "--sku", "cd", *given)
    assert sold.exit_code == 0, sold
    with RedisStore.from_url(valkey.url) as store:
        entries = store.execute(op.ReadLedger("cd", 0, 1_000))
    decided = {entry.order_id: entry for entry in entries if entry.kind in {"confirmed", "refused"}}
    assert len(decided) == 100
    for line in sold.results:
        entry = decided[line["order_id"]]
        assert (line["sku"], line["outcome"], int(line["sequence"])) == ("cd", entry.kind, entry.sequence)
        assert line["segment"] == ("" if entry.segment is None else str(entry.segment))
        assert line["fencing_token"] == ("" if entry.fencing_token is None else str(entry.fencing_token))
