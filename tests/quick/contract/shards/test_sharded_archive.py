"""A pool in shards is archived as a whole: all of its shards, or none; its directory last."""

import json
from pathlib import Path

import pytest

from segmented import protocol as op
from segmented.errors import InvalidInput, PoolArchived
from segmented.models.pools import Archived
from segmented.stock.archiving import FileArchive
from segmented.stock.archiving.checking import check_archive
from segmented.stock.archiving.file import lines_of
from segmented.stock.archiving.plan import archive_plan, no_progress
from tests.fixtures.stores import Side
from tests.support.contract.shards.sharding import check_all, directory_of, sharded, shards_of, taken


def archived(side: Side, sku: str, file: Path) -> Archived:
    return side.run(archive_plan(sku, FileArchive(file), no_progress))


def sold(side: Side, sku: str, count: int = 30) -> None:
    """Open a pool of 40 units in 8 segments and 3 shards, and sell some."""
    pool = sharded(side, sku)
    pool.open(stock=40, segments=8, shards=3)
    for number in range(count):
        assert taken(pool.reserve(f"order {number}")) == 1
        pool.confirm(f"order {number}")
    pool.finish_transfers()
    check_all(pool)


def test_all_shards_are_in_one_archive(side: Side, tmp_path: Path) -> None:
    """The pool says so to those who know it and to those who do not, and is opened again in a later epoch alone."""
    sku, file = side.name(), tmp_path / "sold.jsonl"
    sold(side, sku)
    known = sharded(side, sku)
    known.close()
    answer = archived(side, sku, file)
    checked = check_archive(lines_of(file), "here")
    assert (answer.orders, checked.orders, checked.confirmed, len(checked.pools)) == (30, 30, 30, 3)
    found = [json.loads(line) for line in lines_of(file)]
    assert {one["shard"] for one in found if one["record"] == "orders"} == {0, 1, 2}
    assert sum(int(one["value"]) for one in found if one["record"] == "stock") == 10
    assert archived(side, sku, file).replay
    for pool in (known, sharded(side, sku)):
        for ask in (pool.state, lambda: pool.reserve("late"), lambda: pool.open(stock=4, segments=4, shards=2)):  # noqa: B023  # called at once
            with pytest.raises(PoolArchived):
                ask()
    pool = sharded(side, sku)
    assert pool.open(stock=4, segments=4, shards=2, epoch=2).state.available == 4
    assert [taken(pool.reserve(f"again {number}")) for number in range(4)] == [1, 1, 1, 1]
    assert directory_of(side, sku).epoch == 2
    check_all(pool)


def test_units_on_the_way_between_shards_are_refused(side: Side, tmp_path: Path) -> None:
    sku = side.name()
    sold(side, sku, 0)
    shard = shards_of(side, sku)[1]
    assert side.execute(op.SendUnits(shard, 2, 3)) is not None
    sharded(side, sku).close()
    with pytest.raises(InvalidInput, match="1 transfer is unfinished between shards: run 'segmented pool repair"):
        archived(side, sku, tmp_path / "sold.jsonl")
    sharded(side, sku).finish_transfers()
    assert archived(side, sku, tmp_path / "sold.jsonl").orders == 0


def test_one_open_shard_keeps_all_of_them_unarchived(side: Side, tmp_path: Path) -> None:
    sku = side.name()
    sold(side, sku)
    first, second, _ = shards_of(side, sku)
    for shard in (first, second):
        side.execute(op.ClosePool(shard))
    with pytest.raises(InvalidInput, match=f"'{sku}' is open: close it first, with 'segmented pool close {sku}'"):
        archived(side, sku, tmp_path / "sold.jsonl")
    assert side.execute(op.ClosePool(first)).replay
    check_all(sharded(side, sku))
    assert list(tmp_path.iterdir()) == []
