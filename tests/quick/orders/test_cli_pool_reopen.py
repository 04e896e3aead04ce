"""`segmented pool reopen`, and the sentences of the commands that recover a pool."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import pytest

from segmented import Order, Pool, RedisStore, Settled
from segmented.errors import PoolFrozen
from segmented.orders import audit_both, open_gated, take_order
from segmented.protocol import FreezePool
from tests.support.command_line import ran

if TYPE_CHECKING:
    from pathlib import Path

    from segmented.orders import Gate
    from segmented.servers import ValkeyServer

SKU: Final = "mug"


@pytest.fixture
def pool(store: RedisStore, gate: Gate) -> Pool:
    """Ten units in two segments, of which three are sold."""
    pool = Pool(store, SKU)
    open_gated(pool, gate, stock=10, segments=2)
    take(pool, gate, "a", 3)
    return pool


def take(pool: Pool, gate: Gate, order_id: str, quantity: int) -> None:
    assert isinstance(take_order(pool, gate, Order(order_id, quantity), timeout=0), Settled)


def lose(store: RedisStore) -> None:
    """Let the server lose its data, and this process what it has seen of it."""
    store.client.flushall()


def reopen(database: str, valkey: ValkeyServer, *more: str) -> tuple[int, str, str]:
    said = ran("pool", "reopen", SKU, "--database", database, "--segments", "4", *more, url=valkey.url)
    return said.returncode, said.stdout, said.stderr


def refused(*words: str, url: str) -> str:
    """Return the one sentence of a command that was not usable."""
    done = ran("pool", *words, url=url)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    return done.stderr.removeprefix("segmented: ").rstrip("\n")


@pytest.mark.usefixtures("pool")
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


@pytest.mark.usefixtures("pool")
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


@pytest.mark.usefixtures("pool")
def test_an_interrupted_reopening_is_finished_in_its_epoch(
    store: RedisStore, gate: Gate, order_database: str, valkey: ValkeyServer
) -> None:
    lose(store)
    gate.stocking.raise_epoch(SKU, 4, epoch=2, opened=1)
    assert reopen(order_database, valkey) == (0, "reopened in epoch 2: 7 free\n", "")


def test_a_sale_whose_opening_was_never_noted_is_reopened_in_a_later_epoch(
    gate: Gate, order_database: str, valkey: ValkeyServer
) -> None:
    gate.open(SKU, [5, 5], 3)
    assert reopen(order_database, valkey) == (0, "reopened in epoch 4: 10 free\n", "")


def test_a_database_without_rows_is_refused(gate: Gate, order_database: str, valkey: ValkeyServer) -> None:
    exit_code, written, error = reopen(order_database, valkey)
    assert (exit_code, written) == (2, "")
    assert error == (
        f"segmented: {gate.where} has no rows for 'mug', so it is not opened again: name the database that it was "
        "opened with, or open a new sale with 'segmented pool open'\n"
    )


@pytest.mark.usefixtures("gate")
def test_rebuild_and_verify_of_a_pool_without_an_order_database_name_thaw(
    store: RedisStore, order_database: str, valkey: ValkeyServer
) -> None:
    Pool(store, SKU).open(stock=10, segments=2)
    for command in ("rebuild", "verify"):
        assert refused(command, SKU, "--database", order_database, url=valkey.url) == (
            f"pool 'mug' was opened without an order database, which {command} needs: "
            "'segmented pool thaw mug' lets it sell again once it is frozen"
        )


def test_a_frozen_pool_names_the_command_that_fits(pool: Pool, store: RedisStore, valkey: ValkeyServer) -> None:
    plain = Pool(store, "plain")
    plain.open(stock=1, segments=1)
    for one, command in ((pool, "rebuild"), (plain, "thaw")):
        one.store.execute(FreezePool(one.sku, 1))
        with pytest.raises(PoolFrozen, match=rf"was seen\. Run 'segmented pool {command}'$"):
            one.reserve("next")
    assert refused("thaw", SKU, "--sold", "3", "--yes", url=valkey.url) == (
        "pool 'mug' is gated: its order database knows what is sold, so use 'segmented pool rebuild mug --database URL'"
    )


def test_an_archive_of_a_pool_whose_ledger_is_not_relayed_names_the_relay(
    pool: Pool, gate: Gate, order_database: str, valkey: ValkeyServer, tmp_path: Path
) -> None:
    words = ("relay", SKU, "--database", order_database)
    assert ran("pool", *words, url=valkey.url).returncode == 0
    take(pool, gate, "later", 1)
    pool.close()
    told = refused("archive", SKU, "--to", str(tmp_path / "mug.jsonl"), "--yes", url=valkey.url)
    assert told == (
        "pool 'mug' cannot be archived: 3 changes are not in the order database yet: run 'segmented pool relay mug "
        "--database URL'"
    )
