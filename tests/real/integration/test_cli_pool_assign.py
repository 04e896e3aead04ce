"""A pool's queue and step by command: opened, shown, changed, kept by a rebuild, and respected by `segmented sell`."""

import json
from pathlib import Path
from typing import Any, Final

import pytest

from segmented.orders import Gate, rebuild
from segmented.protocol import FreezePool
from segmented.servers import ValkeyServer
from segmented.stock import Pool, find_pool
from segmented.stores.redis import RedisStore
from tests.real.integration.test_sell_refuses import TEN_IN_TWO, one_order
from tests.support.command_line import ran
from tests.support.workers.selling import sell

SKU: Final = "concert"
STEP: Final = "shop.steps:charge"
NAMES: Final = ("--queue", "concerts", "--step", STEP)
OPEN: Final = ("open", SKU, "--stock", "10", "--segments", "4")


@pytest.fixture
def order_database(sqlite_url: str) -> str:
    return sqlite_url


def rows_of(shown: str) -> dict[str, str]:
    return dict(line.split("\t") for line in shown.splitlines() if line.count("\t") == 1)


def names_of(valkey: ValkeyServer) -> tuple[str | None, str | None]:
    with RedisStore.from_url(valkey.url) as store:
        state = find_pool(store, SKU).state()
    return state.queue, state.step


@pytest.mark.parametrize("shards", [(), ("--shards", "2")], ids=["in one slot", "in shards"])
def test_a_pool_names_its_workers_and_other_ones_later(valkey: ValkeyServer, shards: tuple[str, ...]) -> None:
    first = ran("pool", *OPEN, *shards, *NAMES, url=valkey.url)
    rows = rows_of(first.stdout)
    assert (rows["queue of its workers"], rows["step of its workers"]) == ("concerts", STEP)
    assert names_of(valkey) == ("concerts", STEP)
    found: dict[str, Any] = json.loads(ran("pool", "show", SKU, "--json", "-", url=valkey.url).stdout)
    assert (found["queue"], found["step"]) == ("concerts", STEP)
    words = ("pool", "assign", SKU, "--queue", "tickets", "--any-step")
    assert [ran(*words, url=valkey.url).stdout for _ in range(2)] == [
        "queue tickets, step any now\n",
        "queue tickets, step any before: nothing is changed\n",
    ]
    assert names_of(valkey) == ("tickets", None)


def test_a_pool_that_is_open_with_other_names_is_left_alone_and_said(valkey: ValkeyServer) -> None:
    ran("pool", *OPEN, *NAMES, url=valkey.url)
    done = ran("pool", *OPEN, "--queue", "mugs", url=valkey.url)
    assert (done.returncode, done.stderr) == (
        1,
        "segmented: open already, with queue concerts instead of mugs: nothing is changed\n",
    )
    assert ran("pool", *OPEN, url=valkey.url).returncode == 0
    assert names_of(valkey) == ("concerts", STEP)


def test_an_assignment_that_is_not_whole_is_refused(valkey: ValkeyServer) -> None:
    for words, sentence in (
        (("--queue", "q"), "give either --step NAME or --any-step: the command sets both queue and step of 'concert'"),
        (
            ("--step", STEP),
            "give either --queue NAME or --any-queue: the command sets both queue and step of 'concert'",
        ),
        (
            ("--queue", "q", "--any-queue", "--any-step"),
            "give either --queue NAME or --any-queue: the command sets both queue and step of 'concert'",
        ),
        (
            ("--queue", "q", "--step", "charge"),
            "step 'charge' should be module:function, as SEGMENTED_STEP names it",
        ),
    ):
        ran("pool", *OPEN, *NAMES, url=valkey.url)
        done = ran("pool", "assign", SKU, *words, url=valkey.url)
        assert (done.returncode, done.stdout, done.stderr) == (2, "", f"segmented: {sentence}\n")
        assert names_of(valkey) == ("concerts", STEP)


def test_a_gated_pool_keeps_its_names_through_a_rebuild(valkey: ValkeyServer, gate: Gate, order_database: str) -> None:
    database = ("--database", order_database)
    assert ran("pool", *OPEN, "--gated", *database, *NAMES, url=valkey.url).returncode == 0
    with RedisStore.from_url(valkey.url) as store:
        pool = Pool(store, SKU)
        store.execute(FreezePool(SKU, 1))
        rebuild(pool, gate)
        assert names_of(valkey) == ("concerts", STEP)
        pool.assign(queue="tickets", step=STEP)
        store.client.flushall()
    again = ran("pool", "reopen", SKU, *database, "--segments", "4", "--queue", "tickets", url=valkey.url)
    assert again.stdout == "reopened in epoch 3: 10 free\n"
    assert names_of(valkey) == ("tickets", STEP)  # which the sale's row keeps


def test_a_sale_of_a_file_refuses_a_pool_that_names_other_workers(
    tmp_path: Path, valkey: ValkeyServer, gate: Gate, order_database: str
) -> None:
    with RedisStore.from_url(valkey.url) as store:
        Pool(store, "mug", gate=gate).open(stock=10, segments=2, step=STEP)
        sold = sell(
            tmp_path,
            one_order(tmp_path),
            *TEN_IN_TWO,
            *("--sku", "mug", "--url", valkey.url, "--database", order_database),
        )
        assert sold.exit_code == 2
        assert f"pool 'mug' names step {STEP!r} for its orders, so this sale cannot sell them" in sold.errors
        assert Pool(store, "mug").state().order_count == 0
