"""A process that archives or deletes a pool is killed at every step; the next run of the same command finishes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Final

import pytest

from segmented import protocol as op
from segmented.errors import PoolArchived
from segmented.models import Cart
from segmented.servers import ValkeyServer
from segmented.stock import Carts, Pool, ShardedPool, delete
from segmented.stock.archive_checks import check_archive
from segmented.stock.archiving import FileArchive, archive, lines_of
from segmented.stores.redis import RedisStore
from tests.support.dying import DyingStore, StepCounter, was_killed
from tests.support.long_run import in_the_long_run

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]

SKU: Final = "concert"
ORDERS: Final = 7
PHASES: Final = ["whole", "removing", "archived"]


class KilledFile(FileArchive):
    """A file whose writer may be killed just before it is complete, and just after."""

    def __init__(self, file: Path, counter: StepCounter) -> None:
        super().__init__(file)
        self._counter = counter

    @contextmanager
    def writing(self) -> Iterator[Callable[[str], None]]:
        with super().writing() as write:
            yield write
            self._counter.count()
        self._counter.count()


@pytest.fixture
def store(private_valkey: ValkeyServer) -> Iterator[RedisStore]:
    with RedisStore.from_url(private_valkey.url) as store:
        yield store


def pool_of(store: RedisStore | DyingStore, shards: int) -> Pool | ShardedPool:
    return Pool(store, SKU) if shards == 1 else ShardedPool(store, SKU)


def sold(store: RedisStore, shards: int) -> Pool | ShardedPool:
    """Open a pool, sell some orders and a cart, and close it."""
    store.client.flushdb()
    pool = pool_of(store, shards)
    if isinstance(pool, Pool):
        pool.open(stock=40, segments=4)
        carts, cart = Carts(store), Cart("basket", [(SKU, 2)])
        carts.reserve(cart)
        carts.confirm(cart.cart_id, home=SKU)
    else:
        pool.open(stock=40, segments=4, shards=shards)
        pool.reserve("basket")
        pool.confirm("basket")
    for number in range(ORDERS - 1):
        pool.reserve(f"order {number}")
        pool.confirm(f"order {number}")
    pool.restock(3, restock_id="more")
    pool.close()
    return pool


def what_is_left(store: RedisStore, pool: Pool | ShardedPool) -> str:
    """Judge what a killed process has left: a whole pool, or a part of one that is being removed, or a note."""
    phases = {
        str((store.client.hget(name, "archive") or b"whole -").decode()).split(" ")[0]
        for name in store.client.keys("*:meta")
    }
    if phases <= {"whole", "exporting"}:
        report = pool.audit()
        return "whole" if report.is_clean and report.state.order_count == ORDERS else "damaged"
    return "removing" if phases != {"archived"} else "archived"


def check_removed(store: RedisStore, pool: Pool | ShardedPool) -> None:
    """Look that a note alone is left of the pool."""
    with pytest.raises(PoolArchived) as refused:
        pool.reserve("late")
    assert refused.value.is_removed
    assert [name for name in store.client.keys("*") if not name.endswith((b":directory", b":meta"))] == []


@pytest.mark.parametrize(("shards", "least"), [(1, 100), *in_the_long_run((2, 200))])
def test_a_kill_at_any_step_leaves_a_whole_pool_or_a_removal_that_is_finished(
    store: RedisStore, private_valkey: ValkeyServer, tmp_path: Path, shards: int, least: int
) -> None:
    found: list[str] = []
    for step in count(1):
        pool, file = sold(store, shards), tmp_path / f"{step}.jsonl.gz"

        def work(counter: StepCounter, file: Path = file) -> None:
            with RedisStore.from_url(private_valkey.url) as own:
                archive(pool_of(DyingStore(own, counter), shards), KilledFile(file, counter))

        is_killed = was_killed(work, step)
        found.append(what_is_left(store, pool))
        assert file.exists() or found[-1] == "whole", step
        again, repeated = (archive(pool, file) for _ in range(2))
        checked = check_archive(lines_of(file), str(file))
        assert (again.orders, checked.orders, repeated.replay) == (ORDERS, ORDERS, True), step
        assert again.digest == checked.digest == repeated.digest, step
        assert [one.name for one in tmp_path.iterdir() if one.name.startswith(".")] == [], step
        check_removed(store, pool)
        if not is_killed:
            break
    assert len(found) >= least
    assert found == sorted(found, key=PHASES.index)
    assert set(found) == set(PHASES)


@pytest.mark.parametrize("shards", [1, 2])
def test_a_kill_at_any_step_leaves_a_whole_pool_or_one_whose_deletion_is_finished(
    store: RedisStore, private_valkey: ValkeyServer, shards: int
) -> None:
    found: list[str] = []
    for step in count(1):
        pool = sold(store, shards)

        def work(counter: StepCounter) -> None:
            with RedisStore.from_url(private_valkey.url) as own:
                delete(pool_of(DyingStore(own, counter), shards))

        is_killed = was_killed(work, step)
        found.append(what_is_left(store, pool))
        delete(pool)
        assert delete(pool).replay, step
        check_removed(store, pool)
        assert SKU not in store.execute(op.ListPools()), step
        if not is_killed:
            break
    assert found == sorted(found, key=PHASES.index)
    assert set(found) == set(PHASES)
