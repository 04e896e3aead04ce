"""Locustfiles that load a pool or a shop: the page shows the pool, and the books decide at the end."""

from __future__ import annotations

import json
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest
import redis

from segmented import Order, Pool, RedisStore, Reserved
from tests.support.bench.locusts import LOOK_SECONDS, WAIT_SECONDS, asked, got, locust, said
from tests.support.servers.nodes import free_ports

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


def test_the_page_shows_the_pool_while_it_sells_and_the_verdict_after_it(valkey_url: str, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    options = ("--web-port", str(port), "--sku", "shown", "--stock", "300", "--segments", "4")
    with locust("take_orders", *options, url=valkey_url, folder=tmp_path):
        page = got(port, "/").decode()
        assert '"missing_host_warning": false' in page.lower()
        assert asked(port, "POST", "/swarm", {"user_count": "4", "spawn_rate": "4"}) == 200
        row = until(port, lambda row: row.get("confirmed") == 300)
        assert (row["stocked"], row["available"], row["held"]) == (300, 0, "0 of 4")
        assert row["verdict"] == "audited when the test stops"
        assert [one["left"] for one in json.loads(got(port, "/segmented/segments"))] == [0, 0, 0, 0]
        assert [one["key"] for one in json.loads(got(port, "/stats/requests"))["extended_stats"]] == [
            "pool",
            "segments",
        ]
        assert asked(port, "POST", "/stop", {}) == 200
        verdict = until(port, lambda row: row["verdict"] != "audited when the test stops")["verdict"]
    assert verdict == "300 of 300 units sold, 0 on hold, 0 left: none oversold, no drift"
    assert f"pool shown: {verdict}\n" in said(tmp_path)
    assert "PoolState(" not in said(tmp_path)


def test_a_pool_that_was_changed_behind_its_back_ends_the_test_with_1(valkey_url: str, tmp_path: Path) -> None:
    with RedisStore.from_url(valkey_url) as store:
        Pool(store, "changed").open(stock=50, segments=1)
    with redis.Redis.from_url(valkey_url) as raw:
        (stock,) = list(raw.scan_iter("*changed*:stock"))
        raw.hincrby(stock, "0", 5)
    options = ("--headless", "-u", "2", "-r", "2", "--run-time", "2", "--sku", "changed")
    with locust("take_orders", *options, url=valkey_url, folder=tmp_path) as process:
        assert process.wait(WAIT_SECONDS) == 1, said(tmp_path)
    assert "differences between the ledger and the pool, the first: " in said(tmp_path)


def test_a_shop_that_answers_as_its_pool_has_it_ends_with_0(valkey_url: str, tmp_path: Path) -> None:
    port = str(free_ports(1)[0])
    with shop(valkey_url, "honest", stock=40, lies=0) as address:
        options = ("--headless", "--processes", "2", "-u", "4", "-r", "4", "--run-time", "4", "--sku", "honest")
        places = ("--host", address, "--master-bind-port", port, "--master-port", port)
        with locust("own_endpoint", *options, *places, "--header", "X-Shop: {order_id}",
                    url=valkey_url, folder=tmp_path) as process:  # fmt: skip
            assert process.wait(WAIT_SECONDS) == 0, said(tmp_path)
    assert "answers: 40 sold, " in said(tmp_path)
    assert "pool honest: 40 of 40 units sold, 0 on hold, 0 left: none oversold, no drift\n" in said(tmp_path)


def test_a_shop_that_says_sold_and_sells_nothing_ends_with_1(valkey_url: str, tmp_path: Path) -> None:
    with shop(valkey_url, "liar", stock=40, lies=3) as address:
        options = ("--headless", "-u", "2", "-r", "2", "--run-time", "3", "--sku", "liar", "--settles", "0")
        with locust("own_endpoint", *options, "--host", address, url=valkey_url, folder=tmp_path) as process:
            assert process.wait(WAIT_SECONDS) == 1, said(tmp_path)
    assert "pool liar: 3 orders were answered as sold, and the pool has not sold them: locust-" in said(tmp_path)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--body", "{order_id}"), "--body is not JSON"),
        (("--header", "X-Key"), "--header 'X-Key' is not of the form 'NAME: VALUE'"),
        ((), "pool 'none' is not open"),
    ],
)
def test_bad_input_is_one_sentence_before_anything_is_sent(
    valkey_url: str, tmp_path: Path, options: tuple[str, ...], why: str
) -> None:
    with locust("own_endpoint", "--headless", "--host", "http://127.0.0.1:9", "--sku", "none", *options,
                url=valkey_url, folder=tmp_path) as process:  # fmt: skip
        assert process.wait(WAIT_SECONDS) == 2, said(tmp_path)
    starting, sentence = said(tmp_path).strip().splitlines()
    assert "Starting Locust" in starting
    assert why in sentence


@contextmanager
def shop(url: str, sku: str, *, stock: int, lies: int) -> Iterator[str]:
    """A shop that sells a pool over HTTP; of its first orders, so many are called sold and only reserved."""
    store = RedisStore.from_url(url)
    pool = Pool(store, sku)
    pool.open(stock=stock, segments=4)
    told_lies = iter(range(lies))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            order = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            answer = pool.reserve(Order(order["order_id"], order["quantity"]))
            is_sold = isinstance(answer, Reserved)
            if is_sold and next(told_lies, None) is None:
                pool.confirm(order["order_id"])
            self.send_response(200 if is_sold else 409)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        serving.join()
        server.server_close()
        store.close()


def until(port: int, is_so: Callable[[dict[str, object]], bool]) -> dict[str, object]:
    """The page's row of the pool, once it is as asked."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        (row,) = json.loads(got(port, "/segmented/pool"))
        if is_so(row):
            return dict(row)
        assert time.monotonic() < deadline, row
        threading.Event().wait(LOOK_SECONDS)
