"""A pool in shards about the end of its sale: units that come back, what a refusal costs, and what an audit finds."""

from collections.abc import Callable, Iterator
from typing import Final

import pytest

from segmented import protocol as op
from segmented.errors import PoolDrifted
from segmented.keys import shard_keys
from segmented.models import Order, SoldOut
from segmented.plans import Plan
from segmented.stock.sharded import ShardedPool
from tests.fixtures.stores import Side
from tests.support.contract.interposed import asks, interposed, process_of
from tests.support.contract.shards.sharding import (
    at_home_in,
    check_all,
    refused,
    sharded,
    shards_of,
    taken,
)

SHARDS: Final = 3
STOCK: Final = 11


@pytest.fixture
def pool(side: Side) -> Iterator[ShardedPool]:
    """Eleven units in seven segments of three shards: four, four and three units."""
    made = sharded(side, side.name())
    made.open(stock=STOCK, segments=7, shards=SHARDS)
    yield made
    check_all(made)


# --- what comes back ---


def ways_back(side: Side, pool: ShardedPool) -> dict[str, Callable[[], object]]:
    """Name the ways in which the units of the order `a` come back, or others come in."""
    ways: dict[str, Callable[[], object]] = {
        "cancel": lambda: pool.cancel("a"),
        "cancel_many": lambda: pool.cancel_many(["a"]),
        "restock": lambda: pool.restock(2, restock_id="r"),
    }
    if side.flavour.colour == "sync":
        ways["cancel at its shard"] = lambda: pool.shard_of("a").cancel("a")
        ways["restock at a shard"] = lambda: pool.shard_of("x").restock(2, restock_id="r")
    return ways


@pytest.mark.parametrize("mark", [0.0, 60.0])
def test_what_comes_back_in_this_process_is_buyable_at_once(side: Side, mark: float) -> None:
    ids = [at_home_in(number, SHARDS)[0] for number in range(SHARDS)]
    for way in ways_back(side, sharded(side, "any")):
        pool = sharded(side, side.name(), mark=mark)
        pool.open(stock=STOCK, segments=7, shards=SHARDS)
        pool.reserve("a", quantity=2)
        pool.reserve("b", quantity=STOCK - 2)
        assert all(refused(pool.reserve(order_id)) == (0, STOCK) for order_id in ids), way
        ways_back(side, pool)[way]()
        assert [taken(pool.reserve(order_id)) for order_id in ids[:2]] == [1, 1], way
        assert isinstance(pool.reserve(ids[2]), SoldOut), way
        check_all(pool)


# --- what happens in between ---


def test_units_that_come_in_between_two_looks_are_not_missed(side: Side, pool: ShardedPool) -> None:
    sku = pool.sku  # read here: not inside of the loop of an asyncio pool
    all_of_it, order_id = (at_home_in(number, SHARDS)[0] for number in (1, 2))
    pool.reserve(all_of_it, quantity=STOCK)

    def nothing() -> Plan[None]:
        yield from ()

    def comes_back() -> Plan[None]:
        yield from process_of(side, sku).cancel(op.Cancel(sku, all_of_it), None)

    looks = asks(op.LookAtShard)
    plan = process_of(side, sku).reserve(op.Reserve(sku, Order(order_id, STOCK), 60_000))
    assert taken(side.run(interposed(plan, (looks, nothing), (looks, comes_back)))) == STOCK


def test_units_that_others_have_sent_and_left_are_brought_in(side: Side, pool: ShardedPool) -> None:
    shards = shards_of(side, pool.sku)
    assert side.execute(op.SendUnits(shards[0], 1, 4)) is not None
    sent = side.execute(op.SendUnits(shards[2], 1, 2))
    assert sent is not None
    side.execute(op.ReceiveUnits(shards[1], 2, sent.number, sent.sent, epoch=1))
    report = pool.audit()
    assert (report.is_clean, report.away, report.state.available) == (True, 4, 7)
    assert taken(pool.reserve("a", quantity=STOCK)) == STOCK
    assert pool.finish_transfers() == 0
    assert pool.audit().away == 0


# --- what an audit finds between the shards ---


@pytest.fixture
def plain(plain_redis_side: Side) -> ShardedPool:
    """On Redis, not audited at the end: somebody else writes to it."""
    made = sharded(plain_redis_side, plain_redis_side.name())
    made.open(stock=STOCK, segments=7, shards=SHARDS)
    return made


def found(pool: ShardedPool) -> list[tuple[str, str, str]]:
    report = pool.audit()
    assert not report.is_clean
    assert report.drift_count == len(report.drift)
    return [(one.kind, one.about, one.name) for one in report.drift]


def test_units_that_were_sent_and_forgotten_are_named(plain_redis_side: Side, plain: ShardedPool) -> None:
    shards = shards_of(plain_redis_side, plain.sku)
    plain_redis_side.execute(op.SendUnits(shards[0], 2, 3))
    plain_redis_side.raw().hdel(shard_keys(shards[0]).transfers, "away:2")
    assert found(plain) == [("orphan transfer", "transfer", "0>2")]
    assert plain.audit().by_kind == {"orphan transfer": 1}
    assert plain.audit().transfers[0].detail == (
        "shard 0 knows that 3 of its units arrived at shard 2, which received 0"
    )


def test_a_transfer_to_a_shard_that_is_none_is_refused_as_drift(plain_redis_side: Side, plain: ShardedPool) -> None:
    shards = shards_of(plain_redis_side, plain.sku)
    for other in (0, 7):
        key = shard_keys(shards[0]).transfers
        forged = (f"away:{other}", f"sent:{other}")
        for field in forged:
            plain_redis_side.raw().hset(key, field, "1 5")
        with pytest.raises(PoolDrifted):
            plain.finish_transfers()
        with pytest.raises(PoolDrifted):
            plain.reserve(f"too many {other}", quantity=STOCK + 1)
        plain_redis_side.raw().hdel(key, *forged)
    assert taken(plain.reserve("a", quantity=STOCK)) == STOCK


def test_a_refusal_says_how_old_it_is_and_is_never_older_than_a_tenth_of_a_second(memory: Side) -> None:
    pool = sharded(memory, memory.name())
    pool.open(stock=3, segments=3, shards=SHARDS)
    pool.reserve("a", quantity=3)
    ages = []
    for index in range(6):
        answer = pool.reserve(f"o{index}")
        assert isinstance(answer, SoldOut)
        ages.append(answer.age_ms or 0)
        memory.pass_time(0.04)
    assert ages == pytest.approx([0, 40, 80, 0, 40, 80], abs=1)
