"""A pool in shards about the end of its sale: units that come back, what a refusal costs, and what an audit finds."""

from __future__ import annotations

from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import pytest

from segmented import protocol as op
from segmented.errors import PoolDrifted, PoolGated
from segmented.keys import shard_keys
from segmented.models import Order, Received, Reserved, SoldOut
from segmented.plans import Join
from segmented.stock.sharded.audit import sharded_audit_plan
from tests.support.contract.interposed import NeverReachedError, asks, interposed, process_of
from tests.support.contract.pools.shop import verified
from tests.support.contract.shards.sharding import (
    at_home_in,
    check_all,
    directory_of,
    refused,
    sharded,
    shards_of,
    taken,
)
from tests.support.pools.carting import one_by_one

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from segmented.plans import Plan
    from segmented.stock.sharded import ShardedPool
    from tests.fixtures.stores import Side
    from tests.support.contract.parking import CountScripts

SHARDS: Final = 3
STOCK: Final = 11
SOON: Final = 0.11
"""Longer than a process may refuse by what it has found out."""


@pytest.fixture
def pool(side: Side) -> Iterator[ShardedPool]:
    """Eleven units in seven segments of three shards: four, four and three units."""
    made = sharded(side, side.name())
    made.open(stock=STOCK, segments=7, shards=SHARDS)
    yield made
    check_all(made)


def test_a_shard_that_an_order_database_decides_confirms_nothing_alone(redis_side: Side) -> None:
    pool = sharded(redis_side, redis_side.name())
    pool.open(stock=STOCK, segments=7, shards=SHARDS)
    pool.reserve("a")
    meta = shard_keys(pool.shard_of("a").sku).meta
    redis_side.raw().hset(meta, "gated", "1")
    verified(redis_side, pool.shard_of("a").sku)
    with pytest.raises(PoolGated):
        pool.confirm("a")
    assert [type(answer) for answer in pool.confirm_many(["a"])] == [PoolGated]
    redis_side.raw().hset(meta, "gated", "0")
    assert pool.confirm("a").state == "confirmed"
    check_all(pool)


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


def test_what_comes_back_in_another_process_is_buyable_within_a_tenth_of_a_second(side: Side) -> None:
    for mark in (0.0, 0.1):
        sku = side.name()
        here, there = sharded(side, sku, mark=mark), sharded(side, sku)
        here.open(stock=STOCK, segments=7, shards=SHARDS)
        taken(there.reserve("all", quantity=STOCK))
        assert isinstance(here.reserve("early"), SoldOut)
        there.cancel("all")
        side.pass_time(SOON)
        assert taken(here.reserve("late", quantity=STOCK)) == STOCK
        check_all(here)


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


@pytest.mark.parametrize("is_many", [False, True])
def test_the_sold_out_mark_counts_a_refusals_age_from_its_shards_answers(memory: Side, *, is_many: bool) -> None:
    pool = sharded(memory, memory.name(), mark=0.05)
    pool.open(stock=3, segments=3, shards=SHARDS)
    pool.reserve("all", quantity=3)
    found = []
    for index, seconds in enumerate((0.0, 0.0625, 0.046875)):
        memory.pass_time(seconds)
        order_id = f"o{index}"
        answer = pool.reserve_many([Order(order_id)])[0] if is_many else pool.reserve(order_id)
        assert isinstance(answer, SoldOut)
        found.append((answer.by_mark, answer.age_ms))
    assert found == [(False, 0), (False, 63), (False, 0)]


# --- what a refusal costs ---


def test_the_sold_out_mark_refuses_without_a_command_and_counts(
    plain_redis_side: Side, count_scripts: CountScripts
) -> None:
    pool = sharded(plain_redis_side, plain_redis_side.name(), mark=60.0)
    pool.open(stock=STOCK, segments=7, shards=SHARDS)
    pool.reserve("a", quantity=STOCK - 1)
    assert refused(pool.reserve("first", quantity=2)) == (1, STOCK - 1)
    scripts = count_scripts(plain_redis_side.raw(), pool.sku)
    answers: list[object] = [pool.reserve(f"o{index}", quantity=2) for index in range(50)]
    answers += pool.reserve_many([Order(f"m{index}", 3) for index in range(50)])
    assert all(isinstance(answer, SoldOut) and answer.by_mark for answer in answers)
    assert scripts() == 0
    assert pool.refused_by_mark == 100
    assert taken(pool.reserve("last")) == 1
    assert isinstance(pool.reserve("a", quantity=STOCK - 1), Reserved)
    check_all(pool)


def test_two_hundred_who_are_refused_together_look_at_the_shards_once(memory: Side) -> None:
    pool, looks = sharded(memory, memory.name()), list[int]()
    pool.open(stock=STOCK, segments=7, shards=SHARDS)
    taken(pool.reserve("all", quantity=STOCK))
    process = process_of(memory, pool.sku)

    def counted(plan: Plan[Any]) -> Plan[Any]:
        effect = next(plan)
        while True:
            looks.extend([1] * asks(op.LookAtShard)(effect))
            try:
                effect = plan.send((yield effect))
            except StopIteration as stop:
                return stop.value

    for index in range(200):
        order = op.Reserve(pool.sku, Order(f"o{index}", 1), 60_000)
        assert refused(memory.run(counted(process.reserve(order)))) == (0, STOCK)
    assert len(looks) == 2  # before it asks for the lock, and with the lock
    check_all(pool)


# --- what happens in between ---


def test_a_twin_that_was_served_in_between_is_a_repeat_not_sold_out(side: Side, pool: ShardedPool) -> None:
    sku = pool.sku  # read here: not inside of the loop of an asyncio pool

    def twin() -> Plan[None]:
        yield from process_of(side, sku).reserve(op.Reserve(sku, Order("a", STOCK), 60_000))

    plan = process_of(side, sku).reserve(op.Reserve(sku, Order("a", STOCK), 60_000))
    answer = side.run(interposed(plan, (lambda effect: isinstance(effect, Join), twin)))
    assert isinstance(answer, Reserved)
    assert answer.replay


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


def test_an_audit_while_orders_gather_gives_no_false_alarm(memory: Side) -> None:
    """Another process gathers units before any step of the audit."""
    reached: list[int] = []
    with suppress(NeverReachedError):
        for step in count(1):
            pool, steps = sharded(memory, memory.name()), count(1)
            pool.open(stock=60, segments=7, shards=SHARDS)

            def gathers(sku: str = pool.sku) -> Plan[None]:
                process = process_of(memory, sku)
                yield from process.reserve(op.Reserve(sku, Order("a", 25), 60_000))
                yield from process.reserve(op.Reserve(sku, Order("b", 25), 60_000))
                yield from process.cancel(op.Cancel(sku, "a"), None)

            plan = one_by_one(sharded_audit_plan(directory_of(memory, pool.sku)))
            report = memory.run(interposed(plan, (lambda _, step=step, steps=steps: next(steps) == step, gathers)))  # type: ignore[misc]  # its default arguments
            assert report.drift == (), step
            reached.append(step)
    assert len(reached) > 3 * SHARDS


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


def test_transfers_are_finished_on_demand_also_into_a_closed_pool(side: Side, pool: ShardedPool) -> None:
    shards = shards_of(side, pool.sku)
    side.execute(op.SendUnits(shards[0], 1, 4))
    side.execute(op.SendUnits(shards[1], 0, 2))
    pool.close()
    assert [pool.finish_transfers() for _ in range(2)] == [2, 0]
    assert [side.execute(op.ReadPool(shard)).available for shard in shards] == [2, 6, 3]


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


def test_a_receipt_that_was_edited_is_named_in_its_shard_and_between_both(
    plain_redis_side: Side, plain: ShardedPool
) -> None:
    shards = shards_of(plain_redis_side, plain.sku)
    plain_redis_side.execute(op.SendUnits(shards[0], 2, 3))
    plain.finish_transfers()
    key = shard_keys(shards[2]).transfers
    plain_redis_side.raw().hset(key, "received:0", "2 6")
    assert found(plain) == [("foreign write", "transfer", "received:0"), ("foreign write", "transfer", "0>2")]
    assert plain.audit().transfers[0].detail == "shard 2 received 6 units from shard 0, which sent 3"
    plain_redis_side.raw().hset(key, "received:0", "1 2")
    assert found(plain) == [("foreign write", "transfer", "received:0"), ("orphan transfer", "transfer", "0>2")]


def test_a_transfer_that_was_received_twice_with_its_ledger_is_named(
    plain_redis_side: Side, plain: ShardedPool
) -> None:
    shards = shards_of(plain_redis_side, plain.sku)
    plain_redis_side.execute(op.SendUnits(shards[0], 2, 3))
    plain.finish_transfers()
    again = plain_redis_side.execute(op.ReceiveUnits(shards[2], 0, 2, 6, epoch=1))
    assert again == Received(2, 3)
    assert found(plain) == [("foreign write", "transfer", "0>2")]


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
