"""A pool in shards about the end of its sale: units that come back, what a refusal costs, and what an audit finds."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final

import pytest

from segmented import protocol as op
from segmented.errors import PoolDrifted, PoolGated
from segmented.keys import shard_keys
from segmented.models import Order, Received, Reserved, SoldOut
from segmented.stock.sharded import AsyncShardedPool, ShardedPool
from segmented.stock.sharded.plans import FRESH_SECONDS
from tests.support.contract.pools.shop import verified
from tests.support.contract.shards.sharding import at_home_in, check_all, refused, sharded, shards_of, taken
from tests.support.flavour import Flavour

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from segmented.models import Shard
    from segmented.stores.redis import RedisStore
    from tests.fixtures.stores import AsyncSide, Side, SyncSide
    from tests.support.contract.parking import CountScripts

SHARDS: Final = 3
STOCK: Final = 11
SOON: Final = 0.11
"""Longer than a process may refuse by what it has found out."""
REFUSED: Final = 200
LOOK_COMMANDS: Final = 1 + 2 * SHARDS


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


def ways_back(pool: ShardedPool) -> dict[str, Callable[[], object]]:
    """Name the ways in which the units of the order `a` come back, or others come in."""
    return {
        "cancel": lambda: pool.cancel("a"),
        "cancel_many": lambda: pool.cancel_many(["a"]),
        "cancel at its shard": lambda: pool.shard_of("a").cancel("a"),
        "restock": lambda: pool.restock(2, restock_id="r"),
        "restock at a shard": lambda: pool.shard_of("x").restock(2, restock_id="r"),
    }


@pytest.mark.parametrize("way", ["cancel", "cancel_many", "cancel at its shard", "restock", "restock at a shard"])
@pytest.mark.parametrize("mark", [0.0, 60.0])
def test_what_comes_back_in_this_process_is_buyable_at_once(waiting_side: Side, way: str, mark: float) -> None:
    pool = sharded(waiting_side, waiting_side.name(), mark=mark)
    pool.open(stock=STOCK, segments=7, shards=SHARDS)
    pool.reserve("a", quantity=2)
    pool.reserve("b", quantity=STOCK - 2)
    ids = [at_home_in(number, SHARDS)[0] for number in range(SHARDS)]
    assert all(refused(pool.reserve(order_id)) == (0, STOCK) for order_id in ids)
    if way.endswith("shard") and waiting_side.flavour.colour == "async":
        with_shards = waiting_side.wait(pool._target.shard_of("a" if way.startswith("c") else "x"))  # type: ignore[attr-defined]  # noqa: SLF001  # the asyncio object itself
        waiting_side.wait(with_shards.cancel("a") if way.startswith("c") else with_shards.restock(2, restock_id="r"))  # type: ignore[attr-defined]  # as above
    else:
        ways_back(pool)[way]()
    assert [taken(pool.reserve(order_id)) for order_id in ids[:2]] == [1, 1]
    assert isinstance(pool.reserve(ids[2]), SoldOut)
    check_all(pool)


def test_a_grant_that_is_given_back_is_buyable_at_once(pool: ShardedPool) -> None:
    pool.reserve("b", quantity=STOCK - 2)
    grant: Any = pool.grant("a", quantity=2, timeout=0)
    assert isinstance(pool.reserve("c"), SoldOut)
    grant.cancel()
    assert taken(pool.reserve("d", quantity=2)) == 2


def test_what_comes_back_in_another_process_is_buyable_within_a_tenth_of_a_second(side: Side) -> None:
    sku = side.name()
    here, there = sharded(side, sku), sharded(side, sku)
    here.open(stock=STOCK, segments=7, shards=SHARDS)
    for index in range(3):
        taken(there.reserve(f"all {index}", quantity=STOCK))
        assert isinstance(here.reserve(f"early {index}"), SoldOut)
        there.cancel(f"all {index}")
        side.pass_time(SOON)
        assert taken(here.reserve(f"late {index}")) == 1
        here.cancel(f"late {index}")
    check_all(here)


def test_a_refusal_says_how_old_it_is_and_is_never_older_than_a_tenth_of_a_second(side: Side) -> None:
    pool = sharded(side, side.name())
    pool.open(stock=3, segments=3, shards=SHARDS)
    pool.reserve("a", quantity=3)
    ages = []
    for index in range(6):
        began = time.monotonic()
        answer = pool.reserve(f"o{index}")
        took_ms = 1_000 * (time.monotonic() - began)
        assert isinstance(answer, SoldOut)
        ages.append(answer.age_ms or 0)
        assert ages[-1] < 100 + took_ms  # the age counts until the answer
        side.pass_time(0.04)
    if side.flavour.store == "memory":
        assert ages == pytest.approx([0, 40, 80, 0, 40, 80], abs=1)


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


def test_a_mark_of_a_tenth_of_a_second_ends_by_itself(side: Side) -> None:
    sku = side.name()
    here, there = sharded(side, sku, mark=0.1), sharded(side, sku)
    here.open(stock=3, segments=3, shards=SHARDS)
    there.reserve("a", quantity=3)
    assert isinstance(here.reserve("b"), SoldOut)
    there.cancel("a")
    side.pass_time(SOON)
    assert taken(here.reserve("c", quantity=3)) == 3
    check_all(here)


@pytest.mark.parametrize("many", [False, True])
def test_after_the_sell_out_a_refusal_costs_two_commands_at_most(
    redis_side: Side, count_scripts: CountScripts, *, many: bool
) -> None:
    pool = sharded(redis_side, redis_side.name())
    pool.open(stock=STOCK, segments=7, shards=SHARDS)
    taken(pool.reserve("all", quantity=STOCK))
    scripts, began = count_scripts(redis_side.raw(), pool.sku), time.monotonic()
    if many:
        answers = pool.reserve_many([Order(f"o{index}", 1) for index in range(REFUSED)])
    else:
        answers = [pool.reserve(f"o{index}") for index in range(REFUSED)]
    looks = 1 + (time.monotonic() - began) / FRESH_SECONDS
    assert [refused(answer) for answer in answers] == [(0, STOCK)] * REFUSED
    assert scripts() <= REFUSED + looks * LOOK_COMMANDS  # fewer than two each, unless the machine is slow
    check_all(pool)


@pytest.mark.parametrize("waiting_side", [Flavour("redis", "async", 3, is_text=True)], indirect=True, ids=str)
def test_a_thousand_who_are_refused_together_look_at_the_shards_once(
    waiting_side: AsyncSide, count_scripts: CountScripts
) -> None:
    pool = AsyncShardedPool(waiting_side.store, waiting_side.name())

    async def refuse_many() -> list[object]:
        await pool.open(stock=STOCK, segments=7, shards=SHARDS)
        await pool.reserve("all", quantity=STOCK)
        return list(await asyncio.gather(*(pool.reserve(f"o{index}") for index in range(1_000))))

    scripts, began = count_scripts(waiting_side.raw(), pool.sku), time.monotonic()
    answers = waiting_side.wait(refuse_many())
    assert [refused(answer) for answer in answers] == [(0, STOCK)] * 1_000
    seconds = time.monotonic() - began
    assert scripts() < 100 + LOOK_COMMANDS * seconds / FRESH_SECONDS  # and again when what was found is old
    check_all(sharded(waiting_side, pool.sku))


# --- what happens in between ---


class Meddled:
    """A store where something else happens before the next look at all shards, or before its lock is asked for."""

    def __init__(self, store: RedisStore) -> None:
        self.store, self.clock = store, store.clock
        self.meddle: Callable[[], object] | None = None
        self.meddle_first: Callable[[], object] | None = None

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # stands for the store
        return getattr(self.store, name)

    def execute(self, operation: Any, **options: Any) -> Any:  # noqa: ANN401  # as the store
        if self.meddle_first and isinstance(operation, op.AcquireLock):
            self.meddle_first()
        return self.store.execute(operation, **options)

    def execute_many(self, operations: Any, **options: Any) -> Any:  # noqa: ANN401  # as the store
        if self.meddle and isinstance(operations[0], op.LookAtShard):
            meddle, self.meddle = self.meddle, None
            meddle()
        return self.store.execute_many(operations, **options)


@pytest.fixture
def meddled(plain_redis_side: SyncSide) -> Meddled:
    return Meddled(plain_redis_side.store)  # type: ignore[arg-type]  # of Redis


def test_a_twin_that_was_served_in_between_is_a_repeat_not_sold_out(plain_redis_side: Side, meddled: Meddled) -> None:
    sku = plain_redis_side.name()
    twin, pool = sharded(plain_redis_side, sku), ShardedPool(meddled, sku)
    twin.open(stock=STOCK, segments=7, shards=SHARDS)
    meddled.meddle_first = lambda: twin.reserve("a", quantity=STOCK)
    answer = pool.reserve("a", quantity=STOCK)
    assert isinstance(answer, Reserved)
    assert answer.replay
    check_all(pool)


def test_units_that_come_in_between_two_looks_are_not_missed(plain_redis_side: Side, meddled: Meddled) -> None:
    sku = plain_redis_side.name()
    other, pool = sharded(plain_redis_side, sku), ShardedPool(meddled, sku)
    other.open(stock=STOCK, segments=7, shards=SHARDS)
    all_of_it, order_id = (at_home_in(number, SHARDS)[0] for number in (1, 2))
    other.reserve(all_of_it, quantity=STOCK)

    def later() -> None:
        meddled.meddle = lambda: other.cancel(all_of_it)

    meddled.meddle = later
    assert taken(pool.reserve(order_id, quantity=STOCK)) == STOCK
    check_all(pool)


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


def transfers_of(side: Side, shard: Shard) -> str:
    del side
    return shard_keys(shard).transfers


def found(pool: ShardedPool) -> list[tuple[str, str, str]]:
    report = pool.audit()
    assert not report.is_clean
    assert report.drift_count == len(report.drift)
    return [(one.kind, one.about, one.name) for one in report.drift]


def test_units_that_were_sent_and_forgotten_are_named(plain_redis_side: Side, plain: ShardedPool) -> None:
    shards = shards_of(plain_redis_side, plain.sku)
    plain_redis_side.execute(op.SendUnits(shards[0], 2, 3))
    plain_redis_side.raw().hdel(transfers_of(plain_redis_side, shards[0]), "away:2")
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
    key = transfers_of(plain_redis_side, shards[2])
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
        key = transfers_of(plain_redis_side, shards[0])
        forged = (f"away:{other}", f"sent:{other}")
        for field in forged:
            plain_redis_side.raw().hset(key, field, "1 5")
        with pytest.raises(PoolDrifted):
            plain.finish_transfers()
        with pytest.raises(PoolDrifted):
            plain.reserve(f"too many {other}", quantity=STOCK + 1)
        plain_redis_side.raw().hdel(key, *forged)
    assert taken(plain.reserve("a", quantity=STOCK)) == STOCK


def test_units_on_the_way_that_were_edited_are_named_before_they_arrive(
    plain_redis_side: Side, plain: ShardedPool
) -> None:
    shards = shards_of(plain_redis_side, plain.sku)
    plain_redis_side.execute(op.SendUnits(shards[0], 2, 3))
    plain_redis_side.raw().hset(transfers_of(plain_redis_side, shards[0]), "away:2", "1 30")
    assert ("foreign write", "transfer", "away:2") in found(plain)


def test_an_audit_while_orders_gather_gives_no_false_alarm(waiting_side: Side) -> None:
    sku = waiting_side.name()
    pool = sharded(waiting_side, sku)
    pool.open(stock=60, segments=7, shards=SHARDS)

    def sell(name: str) -> None:
        seller = sharded(waiting_side, sku)
        for count in range(60):
            if isinstance(seller.reserve(f"{name}{count}", quantity=25), Reserved):
                seller.cancel(f"{name}{count}")

    sellers = [waiting_side.start(lambda name=name: sell(name)) for name in "abc"]  # type: ignore[misc]  # a thunk
    reports = [pool.audit()]
    while not all(seller.done() for seller in sellers):
        reports.append(pool.audit())
    for seller in sellers:
        seller.result(0)
    assert [report.drift for report in reports] == [()] * len(reports)
    pool.finish_transfers()
    assert pool.state().available == 60
    check_all(pool)
