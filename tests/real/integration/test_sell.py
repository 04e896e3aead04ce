"""`segmented sell` as its user sees it, on real servers with real workers."""

import json
import os
import subprocess
from pathlib import Path

import redis
import sqlalchemy

from segmented.celery.selling.sale import ORDERS_PER_TASK
from segmented.keys import shard_keys
from segmented.models import Order
from segmented.orders import Gate, connect
from segmented.servers import ValkeyServer
from segmented.stock import Grant, Pool
from segmented.stores.redis import RedisStore
from tests.support.workers.selling import COMMAND, SALE_SECONDS, first_orders, sell

STOCK_OF_3000 = ("--stock", "3000", "--segments", "20")


def test_2000_orders_and_a_stock_of_3000_end_with_3000_units_sold(tmp_path: Path, data_folder: Path) -> None:
    file = first_orders(tmp_path, 2_000)
    sold = sell(tmp_path, file, *STOCK_OF_3000, "--data", str(data_folder))
    assert sold.exit_code == 0, sold
    counts = sold.counts
    assert counts["orders"] == counts["confirmed_orders"] + counts["refused_orders"] == 2_000
    assert (counts["confirmed_units"], counts["sql_units"], counts["replayed_orders"]) == (3_000, 3_000, 0)
    assert (counts["oversold"], counts["refused_wrongly"], counts["audit"]) == (0, 0, "clean")
    assert sold.errors == f"{file}: columns not used: ordered_on\n"
    assert len(sold.results) == 2_000
    confirmed = [line for line in sold.results if line["outcome"] == "confirmed"]
    assert len(confirmed) == counts["confirmed_orders"]
    assert sum(int(line["quantity"]) for line in confirmed) == 3_000
    leases = {line["fencing_token"]: line["segment"] for line in confirmed}
    assert all(leases[line["fencing_token"]] == line["segment"] for line in confirmed)  # one segment a message
    assert len(leases) >= len(confirmed) / ORDERS_PER_TASK
    assert {int(line["segment"]) for line in confirmed} <= set(range(20))
    refused = [line for line in sold.results if line["outcome"] == "refused"]
    assert {(line["segment"], line["fencing_token"]) for line in refused} == {("", "")}

    again = sell(tmp_path, file, *STOCK_OF_3000, "--data", str(data_folder))
    assert again.exit_code == 0, again
    assert again.counts["replayed_orders"] == 2_000
    assert again.counts["selling_seconds"] == 0
    told = ("confirmed_orders", "confirmed_units", "refused_orders", "sql_units", "audit")
    assert [again.counts[key] for key in told] == [counts[key] for key in told]
    assert again.results == sold.results


def test_with_a_sku_column_each_sku_has_a_stock_of_its_own(tmp_path: Path, own_servers: tuple[str, ...]) -> None:
    file = tmp_path / "orders.csv"
    lines = [f"{sku}-{number},{sku},1\n" for number in range(60) for sku in ("mug", "cup", "jug")]
    file.write_text("order_id,sku,quantity\n" + "pair,mug,1\npair,cup,1\n" + "".join(lines) + "jug-0,jug,1\n")
    sold = sell(tmp_path, file, "--stock", "40", "--segments", "4", "--workers", "1", "--split-skus", *own_servers)
    assert sold.exit_code == 0, sold
    assert sold.errors == f"{file}: 1 line repeats an order of an earlier line; each counts once\n"
    assert (sold.counts["orders"], sold.counts["confirmed_orders"], sold.counts["refused_orders"]) == (182, 120, 62)
    assert (sold.counts["confirmed_units"], sold.counts["sql_units"]) == (120, 120)
    assert {line["sku"] for line in sold.results if line["order_id"] == "pair"} == {"mug", "cup"}
    for sku in ("mug", "cup", "jug"):
        assert sum(line["outcome"] == "confirmed" for line in sold.results if line["sku"] == sku) == 40


def test_an_order_confirmed_only_in_the_database_is_finished_and_not_sold_again(
    tmp_path: Path, own_servers: tuple[str, ...], valkey: ValkeyServer, postgres_database: str
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
    sold = sell(tmp_path, file, "--stock", "10", "--segments", "2", "--workers", "1", *own_servers)
    assert sold.exit_code == 0, sold
    assert (sold.counts["confirmed_orders"], sold.counts["refused_orders"], sold.counts["replayed_orders"]) == (3, 1, 0)
    assert (sold.counts["confirmed_units"], sold.counts["sql_units"], sold.counts["audit"]) == (9, 9, "clean")
    assert [line["outcome"] for line in sold.results[:2]] == ["confirmed", "confirmed"]


def test_a_promise_that_does_not_hold_is_said_and_ends_with_one(
    tmp_path: Path, own_servers: tuple[str, ...], valkey: ValkeyServer, postgres_database: str
) -> None:
    file = tmp_path / "orders.csv"
    file.write_text("order_id,quantity\na,1\nb,2\n")
    options = ("--stock", "10", "--segments", "2", "--workers", "1", *own_servers)
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
    sold = "sum: the pool says 4 units confirmed, the order database says 3 units sold"
    assert broken.counts["audit"] == [
        "foreign write: confirmed is 4, the ledger says 3",
        "foreign write: stocked 10, but 7 available + 0 reserved + 4 confirmed",
        "pool only: order b: the pool says confirmed with 2 units, the order database says nothing",
        sold,
        f"{sold} by its segments' rows, 1 by its orders' rows",
        "order b is confirmed, but the order database has 0 units confirmed",
    ]
    assert "drift: pool only: order b: the pool says confirmed" in broken.printed


def test_a_sale_whose_reader_goes_away_ends_with_141_and_a_second_run_finishes(
    tmp_path: Path, valkey: ValkeyServer, sqlite_url: str
) -> None:
    file = tmp_path / "orders.csv"
    file.write_text("order_id,quantity\n" + "".join(f"o{number},1\n" for number in range(60)))
    words = [*COMMAND, str(file), "--stock", "50", "--segments", "4", "--workers", "1"]
    words += ["--url", valkey.url, "--database", sqlite_url]
    read, write = os.pipe()
    with subprocess.Popen(words, cwd=tmp_path, stdout=write, stderr=subprocess.PIPE) as run:
        os.close(write)
        os.close(read)  # before the first line
        _, said = run.communicate(timeout=SALE_SECONDS)
    assert (run.returncode, said) == (141, b"")
    second = subprocess.run(
        [*words, "--json", "-"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=SALE_SECONDS
    )
    assert second.returncode == 0, second.stderr
    assert json.loads(second.stdout)["confirmed_units"] == 50  # the counts are alone on standard output
    assert "refused wrongly" in second.stderr
    assert {one.name for one in tmp_path.iterdir()} == {file.name, "orders.sqlite"}  # and no file "-"
