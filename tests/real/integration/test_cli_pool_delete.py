"""`segmented pool delete` as its user sees it."""

import json

import pytest

from segmented.errors import PoolArchived
from segmented.models import Cart
from segmented.servers import ValkeyServer
from segmented.stock import Carts, Pool
from segmented.stores.redis import RedisStore
from tests.support.command_line import on_a_terminal, ran


@pytest.fixture
def pool(store: RedisStore) -> Pool:
    """An open pool of 100 units, of which 3 are sold."""
    pool = Pool(store, "concert")
    pool.open(stock=100, segments=4)
    pool.reserve("sold", quantity=3)
    pool.confirm("sold")
    return pool


def keys_of(store: RedisStore) -> list[str]:
    return [key.decode() for key in store.client.keys("*") if b"concert" in key]


def test_a_closed_pool_is_deleted_once_with_its_entries_in_the_index(
    pool: Pool, store: RedisStore, valkey: ValkeyServer
) -> None:
    pool.close()
    words = ["pool", "delete", "concert"]
    tried = ran(*words, "--dry-run", url=valkey.url)
    assert tried.stdout == "would be deleted: 1 order, 4 changes of the ledger, 3 units sold\n"
    assert pool.state().confirmed == 3
    assert ran(*words, "--yes", url=valkey.url).stdout == "deleted: 1 order, 4 changes of the ledger, 3 units sold\n"
    again = json.loads(ran(*words, "--yes", "--json", "-", url=valkey.url).stdout)
    assert (again["is_changed"], again["replay"]) == (False, True)
    assert (keys_of(store), ran("pool", "list", url=valkey.url).stdout) == (["seg:{concert:0}:meta"], "")
    with pytest.raises(PoolArchived, match="was deleted: open it again in epoch 2 or a later one"):
        pool.reserve("late")
    assert pool.open(stock=5, segments=1, epoch=2).state.available == 5


def test_a_pool_that_is_not_finished_is_refused_by_name_and_changes_nothing(pool: Pool, valkey: ValkeyServer) -> None:
    words = ["pool", "delete", "concert", "--yes"]
    anyway = "; unfinished=True, or --unfinished, deletes it as it is\n"
    is_open = ran(*words, url=valkey.url)
    assert (is_open.returncode, is_open.stderr.endswith(f"with 'segmented pool close concert'{anyway}")) == (2, True)
    pool.reserve("held", quantity=2)
    pool.close()
    for dry in ([], ["--dry-run"]):
        held = ran(*words, *dry, url=valkey.url)
        assert (held.returncode, "cannot be deleted: 2 units are reserved" in held.stderr) == (2, True)
    assert (pool.state().reserved, pool.confirm("held").state) == (2, "confirmed")


def test_an_open_pool_with_holds_and_carts_is_deleted_as_it_is_if_asked(
    pool: Pool, store: RedisStore, valkey: ValkeyServer
) -> None:
    pool.reserve("held", quantity=2)
    Carts(store).reserve(Cart("basket", [("concert", 1)]))
    done = ran("pool", "delete", "concert", "--unfinished", "--yes", url=valkey.url)
    assert done.stdout.splitlines() == [
        "deleted: 3 orders, 5 changes of the ledger, 3 units sold",
        "3 units were still reserved",
    ]
    assert keys_of(store) == ["seg:{concert:0}:meta"]


def test_a_frozen_pool_is_deleted_if_asked(pool: Pool, store: RedisStore, valkey: ValkeyServer) -> None:
    store.client.delete("seg:{concert:0}:ledger")
    refused = ran("pool", "delete", "concert", "--yes", url=valkey.url)
    assert (refused.returncode != 0, "frozen" in refused.stderr) == (True, True)
    assert ran("pool", "delete", "concert", "--unfinished", "--yes", url=valkey.url).returncode == 0
    with pytest.raises(PoolArchived):
        pool.reserve("late")


def test_a_terminal_is_asked_first(pool: Pool, valkey: ValkeyServer) -> None:
    pool.close()
    code, shown = on_a_terminal("pool", "delete", "concert", url=valkey.url, typed="n\n")
    assert (code, "Delete concert for good: 1 order, 4 changes of the ledger?" in shown) == (1, True)
    assert pool.state().confirmed == 3
    assert "needs --yes without a terminal" in ran("pool", "delete", "concert", url=valkey.url).stderr
