"""A pool in shards about the end of its sale: units that come back, what a refusal costs, and what an audit finds."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from segmented import protocol as op
from segmented.errors import PoolDrifted, StoreUnavailable
from segmented.keys import shard_keys
from segmented.models import Order, Reserved, Shard, ShardDirectory, SoldOut, TooFew
from segmented.plans import Batch, Plan, perform, substituted
from segmented.stock import ShardedPool
from tests.fixtures.stores import Side, another_process
from tests.support.contract.interposed import asked_by, asks, interposed, process_of
from tests.support.contract.pools.shop import LONG_MS, SHORT_MS, SHORT_PASSES
from tests.support.contract.shards.sharding import (
    SHARDS,
    STOCK,
    at_home_in,
    check_all,
    refused,
    remembered,
    sharded,
    shards_of,
    taken,
)

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


def test_more_units_that_another_process_has_just_sent_the_same_way_are_brought_in(
    side: Side, pool: ShardedPool
) -> None:
    sku, shards = pool.sku, shards_of(side, pool.sku)

    def sends() -> Plan[None]:
        yield from perform(op.SendUnits(shards[0], 1, 4))  # and is killed before they arrive

    order = Order(at_home_in(1, SHARDS)[0], 6)
    plan = process_of(side, sku).reserve(op.Reserve(sku, order, LONG_MS))
    assert taken(side.run(interposed(plan, (asks(op.SendUnits), sends)))) == 6
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


# A pool in shards one of which cannot be asked, or has gone back in time: the others serve what they can.


def is_of(operation: Any, shard: Shard) -> bool:  # noqa: ANN401  # any operation
    return shard in {getattr(operation, "shard", None), getattr(operation, "sku", None)}


def without(plan: Plan[Any], shard: Shard) -> Plan[Any]:
    """Run a plan while the master of one shard is down."""

    def answered(effect: Any) -> Plan[Any]:  # noqa: ANN401  # of any answer
        away = [is_of(one, shard) for one in asked_by(effect)]
        if not any(away):
            return (yield from perform(effect))
        if not isinstance(effect, Batch):
            raise StoreUnavailable("it is down")
        left = tuple(one for one, is_away in zip(effect.operations, away, strict=True) if not is_away)
        answers = iter((yield from perform(Batch(left, effect.deadline))) if left else [])
        return [StoreUnavailable("it is down") if is_away else next(answers) for is_away in away]

    return substituted(plan, answered)


@pytest.fixture
def sku(side: Side) -> str:
    """Open eleven units in three shards: four, four and three."""
    made = sharded(side, side.name())
    made.open(stock=STOCK, segments=7, shards=SHARDS)
    return made.sku


def test_lapsed_holds_of_other_shards_come_back_despite_a_failure_of_one(side: Side, sku: str) -> None:
    """Only a caller that gives nothing back meets the failure."""
    shards = shards_of(side, sku)
    for number, shard in enumerate(shards):
        side.execute(op.Reserve(shard, Order(at_home_in(number, SHARDS)[0], 1), SHORT_MS))
    side.pass_time(SHORT_PASSES)
    process = process_of(side, sku)
    expired = side.run(without(process.expire(100), shards[0]))
    assert [one.order_id for one in expired] == [at_home_in(number, SHARDS)[0] for number in (1, 2)]
    with pytest.raises(StoreUnavailable, match="it is down"):
        side.run(without(process.expire(100), shards[0]))
    assert len(side.run(process.expire(100))) == 1


def test_units_on_the_way_to_a_dead_shard_stop_no_order_that_others_can_serve(side: Side, sku: str) -> None:
    shards = shards_of(side, sku)
    side.execute(op.SendUnits(shards[1], 2, 1))
    order = Order(at_home_in(0, SHARDS)[0], 6)
    answer = side.run(without(process_of(side, sku).reserve(op.Reserve(sku, order, LONG_MS)), shards[2]))
    assert taken(answer) == 6
    assert sharded(side, sku).finish_transfers() == 1
    check_all(sharded(side, sku))


def test_transfers_are_finished_on_demand_even_with_a_shard_that_was_just_down(side: Side, sku: str) -> None:
    shards, process = shards_of(side, sku), process_of(side, sku)
    order = Order(at_home_in(0, SHARDS)[0], 11)
    with pytest.raises(StoreUnavailable, match="it is down"):
        side.run(without(process.reserve(op.Reserve(sku, order, LONG_MS)), shards[2]))
    side.execute(op.SendUnits(shards[2], 1, 2))
    assert side.run(process.finish_transfers()) == 1


def test_an_order_is_not_refused_by_a_shard_that_went_back_in_time_between_two_looks(side: Side, sku: str) -> None:
    shards = shards_of(side, sku)
    pool = sharded(side, sku)
    for number in (0, 2):
        taken(pool.reserve(at_home_in(number, SHARDS)[0], quantity=(4, 4, 3)[number]))
    take_over = remembered(side, shards[1])
    with another_process(side) as other:  # else the shard would be frozen at once
        taken(sharded(other, sku).reserve(at_home_in(1, SHARDS)[0], quantity=4))

    def nothing() -> Plan[None]:
        yield from ()

    def fails_over() -> Plan[None]:
        take_over()
        yield from ()

    looks = asks(op.LookAtShard)
    plan = process_of(side, sku).reserve(op.Reserve(sku, Order(at_home_in(0, SHARDS)[1], 1), LONG_MS))
    assert isinstance(side.run(interposed(plan, (looks, nothing), (looks, fails_over))), Reserved)


def test_a_pool_is_closed_when_all_its_shards_are(side: Side, sku: str) -> None:
    pool = sharded(side, sku)
    side.execute(op.ClosePool(shards_of(side, sku)[0]))
    assert not pool.state().is_closed
    assert pool.close().state.is_closed


@pytest.mark.parametrize("free", [0, 8])
def test_a_partial_order_of_a_batch_gets_what_all_shards_have(side: Side, sku: str, free: int) -> None:
    pool = sharded(side, sku)
    taken_before = pool.reserve("all but some", quantity=STOCK - free)
    assert isinstance(taken_before, Reserved)
    (answer,) = pool.reserve_many([Order("a", 9)], partial=True)
    if free:
        assert taken(answer) == 8
    else:
        assert isinstance(answer, SoldOut)
    check_all(pool)


def test_a_transfer_that_a_shard_lost_is_mended_once(side: Side, sku: str) -> None:
    shards, pool = shards_of(side, sku), sharded(side, sku)
    take_over = remembered(side, shards[1])
    taken(pool.reserve(at_home_in(1, SHARDS)[0], quantity=STOCK))
    take_over()
    report = pool.audit()
    assert sorted(one.kind for one in report.transfers) == ["orphan transfer"] * 2
    with another_process(side) as other:  # for this one, which has seen what was lost, the shard would be frozen
        assert [sharded(other, sku).repair(report, yes=True).done_count for _ in range(2)] == [2, 0]


def test_a_withdrawal_of_more_than_all_shards_have_is_told_what_all_have(side: Side, sku: str) -> None:
    pool = sharded(side, sku)
    answer = pool.withdraw(STOCK + 1, withdraw_id="w")
    assert isinstance(answer, TooFew)
    assert answer.available == STOCK
    check_all(pool)


def test_a_directory_that_says_open_replaces_none_of_another_opening(side: Side) -> None:
    name = side.name()
    first = ShardDirectory(name, ("a", "b"), 10, 2, 1, None, is_open=False)
    assert side.execute(op.WriteDirectory(first, 0)) == first
    assert side.execute(op.WriteDirectory(replace(first, stock=20, is_open=True), 0)) == first
    assert side.execute(op.ReadDirectory(name, 0)) == first
