"""Opening a pool in shards: once, whatever is cut short or comes in between; and what is left when keys vanish."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from segmented import protocol as op
from segmented.errors import (
    InvalidInput,
    PoolArchived,
    PoolDrifted,
    PoolInShards,
    PoolMissing,
    SegmentedError,
    ShardVanished,
)
from segmented.keys import directory_copy, shard_keys
from segmented.models import AlreadyOpen, Opened, Order, PoolState, Shard
from segmented.models.pools import Archived
from segmented.plans import Plan
from segmented.stock import ShardedPool
from segmented.stock.archive_checks import check_archive
from segmented.stock.archiving import FileArchive, archive_plan, lines_of, no_progress
from segmented.stock.sharded.opening import COPIES, home_of, open_plan
from tests.fixtures.stores import Side, SyncSide
from tests.support.contract.shards.sharding import check_all, delete_shard, directory_of, sharded, shards_of, taken

STEPS: Final = range(1, 15)


def opening(sku: str, stock: int, segments: int, shards: int) -> Plan[Opened | AlreadyOpen]:
    return open_plan(op.OpenPool(sku, stock, segments, gated=False, epoch=3), shards)


class ByHand:
    """A plan of opening, step by step."""

    def __init__(self, side: SyncSide, plan: Plan[Any]) -> None:
        self.side, self.plan = side, plan
        self.answer: object = None
        self.is_over = False
        self._reply: Any = None

    def step(self) -> None:
        """Ask for the next effect, and perform it."""
        try:
            effect = self.plan.send(self._reply)
        except StopIteration as stop:
            self.answer, self.is_over = stop.value, True
            return
        self._reply = self.side.run(alone(effect))

    def finish(self) -> object:
        while not self.is_over:
            self.step()
        return self.answer


def alone(effect: Any) -> Plan[Any]:  # noqa: ANN401  # any effect
    return (yield effect)


def totals(state: PoolState) -> tuple[int, int, int]:
    return state.opened, state.segment_count, state.epoch


def test_of_two_openings_that_interleave_the_first_written_counts_for_both(memory: SyncSide) -> None:
    for steps in STEPS:
        sku = memory.name()
        first, second = ByHand(memory, opening(sku, 11, 7, 3)), ByHand(memory, opening(sku, 50, 10, 2))
        for plan in (*[first] * steps, second, second):
            plan.step()
        while not (first.is_over and second.is_over):
            for plan in (first, second):
                if not plan.is_over:
                    plan.step()
        found = [plan.answer for plan in (first, second)]
        states = [answer.state for answer in found if isinstance(answer, Opened | AlreadyOpen)]
        assert (len(states), len({totals(state) for state in states})) == (2, 1), steps
        assert states[0].available == states[0].opened, steps
        check_all(sharded(memory, sku))


def test_a_sku_is_sold_in_shards_or_in_one_slot_but_not_in_both(side: Side) -> None:
    sku = side.name()
    side.pool(sku).open(stock=3, segments=1)
    said = f"'{sku}' is sold in one hash slot already: opening a ShardedPool beside would sell its units twice"
    with pytest.raises(PoolInShards) as caught:
        sharded(side, sku).open(stock=3, segments=2, shards=2)
    assert str(caught.value) == said
    with pytest.raises(PoolMissing):
        sharded(side, sku).state()

    other = side.name()
    sharded(side, other).open(stock=3, segments=2, shards=2)
    with pytest.raises(PoolInShards, match=f"'{other}' is sold in shards already: opening a Pool beside"):
        side.pool(other).open(stock=3, segments=1)
    with pytest.raises(PoolMissing):
        side.pool(other).state()


# --- keys that vanish ---


def asked_of(pool: ShardedPool) -> dict[str, Callable[[], object]]:
    """Name everything that can be asked of a pool: each reaches shard 0, where `o0`, whose home it is, is asked for."""
    return {
        "state": pool.state,
        "reserve": lambda: pool.reserve("o0"),
        "reserve from all": lambda: pool.reserve("o3", quantity=11),
        "grant": lambda: pool.grant("o0", timeout=0),
        "reserve_many": lambda: raised(pool.reserve_many([Order("o0", 1)])),
        "confirm": lambda: pool.confirm("o0"),
        "cancel": lambda: pool.cancel("o0"),
        "confirm_many": lambda: raised(pool.confirm_many(["o0"])),
        "cancel_many": lambda: raised(pool.cancel_many(["o0"])),
        "expire": pool.expire,
        "restock": lambda: pool.restock(1, restock_id="o0"),
        "withdraw": lambda: pool.withdraw(1, withdraw_id="o0"),
        "withdraw from all": lambda: pool.withdraw(11, withdraw_id="o1"),
        "resize": lambda: pool.resize(9),
        "close": pool.close,
        "finish_transfers": pool.finish_transfers,
        "audit": pool.audit,
        "open": lambda: pool.open(stock=11, segments=7, shards=3),
    }


def raised(answers: object) -> object:
    (answer,) = answers if isinstance(answers, list) else [answers]
    if isinstance(answer, SegmentedError):
        raise answer
    return answer


def test_a_shard_without_keys_is_refused_by_every_operation_and_never_opened_again(redis_side: Side) -> None:
    pool = sharded(redis_side, redis_side.name())
    pool.open(stock=11, segments=7, shards=3)
    home = home_of("o0", 3)
    assert home_of("o1", 3) != home
    shard = shards_of(redis_side, pool.sku)[home]
    delete_shard(redis_side, shard)
    said = f"shard {home} of '{pool.sku}' was open and its keys are gone: bring its data back; opening it again"
    assert taken(pool.reserve("o1")) == 1
    for ask in asked_of(pool).values():
        with pytest.raises(ShardVanished) as caught:
            ask()
        assert str(caught.value).startswith(said)
    keys = shard_keys(shard).listed()
    assert redis_side.raw().exists(*keys) == 0


def test_without_its_directory_a_pool_sells_on_by_a_copy_and_is_not_opened_again(redis_side: Side) -> None:
    side, sku = redis_side, redis_side.name()
    sharded(side, sku).open(stock=11, segments=7, shards=3)
    before = directory_of(side, sku)
    for copy in range(COPIES - 1):
        side.raw().delete(directory_copy(sku, copy))
        pool = sharded(side, sku)
        assert taken(pool.reserve(f"o{copy}", quantity=2)) == 2
        with pytest.raises(ShardVanished, match=f"'{sku}' was open and its keys are gone"):
            pool.open(stock=11, segments=7, shards=3)
        assert directory_of(side, sku) == before
        check_all(pool)
    side.raw().delete(directory_copy(sku, COPIES - 1))
    with pytest.raises(PoolMissing):
        sharded(side, sku).state()


def test_a_directory_that_cannot_be_read_is_refused_and_left_alone(plain_redis_side: Side) -> None:
    side, sku = plain_redis_side, plain_redis_side.name()
    sharded(side, sku).open(stock=11, segments=7, shards=3)
    key = directory_copy(sku, 0)
    for said in ("", "x", "open", "open a", "open a 1 1 1", "ajar a 1 1 1 0", "open a x 1 1 0"):
        side.raw().set(key, said)
        pool = sharded(side, sku)
        for call in (lambda: pool.reserve("a"), lambda: pool.open(stock=11, segments=7, shards=3)):  # noqa: B023  # called at once
            with pytest.raises(PoolDrifted):
                call()
        assert side.raw().get(key) == said


def test_an_opening_that_lost_its_directory_is_not_continued_with_other_numbers(plain_redis_side: SyncSide) -> None:
    side, sku = plain_redis_side, plain_redis_side.name()
    first = ByHand(side, opening(sku, 11, 7, 3))
    while not (side.raw().exists(shard_keys(Shard(sku, 0, "a")).meta)):
        first.step()
    side.raw().delete(directory_copy(sku, 0))
    with pytest.raises(ShardVanished):
        sharded(side, sku).open(stock=50, segments=10, shards=2)


# --- input ---


def test_what_cannot_be_split_is_refused_in_one_sentence_and_nothing_is_written(plain_redis_side: Side) -> None:
    side, sku = plain_redis_side, plain_redis_side.name()
    bad: tuple[tuple[int, int, Any, str], ...] = (
        (9, 9, 0, f"shard count 0 of '{sku}' must be between 1 and 64"),
        (99, 99, 65, f"shard count 65 of '{sku}' must be between 1 and 64"),
        (9, 9, True, f"shard count True of '{sku}' is not a whole number"),
        (9, 9, "3", f"shard count '3' of '{sku}' is not a whole number"),
        (2, 9, 3, f"stock 2 of '{sku}' must be between 3 and 1,000,000,000,000"),
        (9, 2, 3, f"segment count 2 of '{sku}' must be between 3 and 4,096"),
    )
    for stock, segments, shards, said in bad:
        with pytest.raises(InvalidInput) as caught:
            sharded(side, sku).open(stock=stock, segments=segments, shards=shards)
        assert str(caught.value) == said
    assert list(side.raw().scan_iter(f"*{sku}*")) == []


def test_no_sku_is_the_name_of_a_shard(plain_redis_side: Side) -> None:
    sku = plain_redis_side.name()
    for make in (sharded, lambda side, sku: side.pool(sku)):
        with pytest.raises(InvalidInput, match="has characters that cannot be printed"):
            make(plain_redis_side, f"{sku}\x1f0a")
    with pytest.raises(InvalidInput, match="has characters that cannot be printed"):
        sharded(plain_redis_side, Shard(sku, 0, "a"))


# A pool in shards is archived as a whole: all of its shards, or none; its directory last.


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
