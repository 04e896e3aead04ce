"""Shards of a pool with an order database."""

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final

import pytest

from segmented import Order, RedisStore, Reserved, SoldOut, protocol as op
from segmented.errors import (
    AnotherDatabase,
    ChangeDiverged,
    ChangeGated,
    DatabaseUnavailable,
    InvalidInput,
    PoolFrozen,
    RowsMissing,
    SegmentedError,
    ShardVanished,
    TransferGated,
)
from segmented.models import AlreadyOpen, Shard, TooFew
from segmented.models.shards import note_of
from segmented.orders import Gate, audit_both, rebuild, reopen_gated
from segmented.orders.stocking import Change
from segmented.servers import ValkeyServer
from segmented.stock import ShardedPool
from segmented.stock.sharded.opening import home_of
from tests.support.contract.shards.sharding import at_home_in
from tests.support.dying import Died, DyingStore, StepCounter, let_die
from tests.support.pools.both_sides import judged
from tests.support.pools.engines import engine_of
from tests.support.pools.forgetting import SKU, forgotten

Judge = Callable[[], tuple[int, int, int]]

pytestmark = pytest.mark.usefixtures("patient_shards")

OPENING: Final[dict[str, Any]] = {"stock": 20, "segments": 4, "shards": 2}
HERE: Final = at_home_in(0, 2)
"""Orders whose home is shard 0."""
THERE: Final = at_home_in(1, 2)
STEPS_MAX: Final = 200


@pytest.fixture
def pool(store: RedisStore, gate: Gate) -> ShardedPool:
    """Ten units in each of two shards, on both sides."""
    pool = ShardedPool(store, SKU, gate=gate)
    pool.open(**OPENING)
    return pool


@pytest.fixture
def other_store(valkey: ValkeyServer) -> Iterator[RedisStore]:
    """Another process, which has seen nothing of the pool."""
    with RedisStore(valkey.url) as made:
        yield made


@pytest.fixture
def judge(valkey: ValkeyServer, order_database: str) -> Judge:
    return lambda: judged(valkey.url, order_database, forgets=True)


def names(pool: ShardedPool) -> tuple[Shard, ...]:
    return tuple(shard.sku for shard in pool.shards)  # type: ignore[misc]  # each is the name of a shard


def sold(pool: ShardedPool, order_id: str, quantity: int) -> None:
    assert isinstance(pool.reserve(order_id, quantity=quantity), Reserved)
    assert pool.confirm(order_id).state == "confirmed"


def sent(pool: ShardedPool, source: int, target: int, units: int) -> op.SendUnits:
    """Take units out of a shard, as a process does that dies then."""
    operation = op.SendUnits(names(pool)[source], target, units, is_stored=True)
    assert pool.store.execute(operation) is not None
    return operation


def check_sells_the_rest(pool: ShardedPool, judge: Judge) -> None:
    """Every unit is sold once, from whatever shard it is in, and none is left."""
    pool.finish_transfers()
    stocked, _, free = judge()
    for number in range(free):
        sold(pool, f"rest-{number}", 1)
    assert isinstance(pool.reserve("too many"), SoldOut)
    assert judge() == (stocked, stocked, 0)
    assert pool.audit().is_clean


def test_units_go_to_another_shard_on_both_sides_and_every_unit_is_sold(
    pool: ShardedPool, gate: Gate, judge: Judge
) -> None:
    sold(pool, HERE[0], 15)
    assert judge() == (20, 15, 5)
    moved = [gate.totals(name).quota for name in names(pool)]
    assert (sum(moved), moved[0] >= 15) == (20, True)
    refused = pool.reserve(THERE[0], quantity=6)
    assert isinstance(refused, SoldOut)
    assert refused.available == 5
    with pool.grant(THERE[1], quantity=4, timeout=60) as grant:
        assert grant.quantity == 4
    check_sells_the_rest(pool, judge)


def test_a_process_that_dies_at_any_step_of_a_transfer_loses_and_doubles_no_unit(
    store: RedisStore, gate: Gate, judge: Judge
) -> None:
    counter = StepCounter()
    let_die(gate, counter)
    for steps in range(1, STEPS_MAX):
        sku, order = f"mug-{steps}", at_home_in(0, 2, f"{steps}-")[0]
        pool = ShardedPool(store, sku, gate=gate)
        pool.open(**OPENING)
        counter.counted, counter.steps = 0, steps
        try:
            ShardedPool(DyingStore(store, counter), sku, gate=gate).reserve(order, quantity=15)
            has_died = False
        except Died:
            has_died = True
        counter.steps = None
        pool.finish_transfers()
        state = pool.state()
        assert (state.available + state.reserved, state.away) == (20, 0)
        sold(pool, order, 15)
        if not has_died:
            break
    assert judge() == (20 * steps, 15 * steps, 5 * steps)
    assert 10 < steps < STEPS_MAX - 1


def test_while_the_database_hangs_units_stay_on_the_way(
    store: RedisStore, pool: ShardedPool, gate: Gate, open_gate: Callable[..., Gate], order_database: str, judge: Judge
) -> None:
    hasty = ShardedPool(store, SKU, gate=open_gate(order_database, timeout=0.1))
    gate.open("other", [1])
    slow = gate.transaction(order_id="slow", sku="other", segment=0, quantity=1, epoch=1)  # SQLite has one writer
    with slow, pytest.raises(DatabaseUnavailable):
        hasty.reserve(HERE[0], quantity=15)
    with engine_of(open_gate(order_database)).begin() as connection:  # the judge knows no other sku
        for table in ("segmented_orders", "segmented_segments"):
            connection.exec_driver_sql(f"DELETE FROM {table} WHERE sku = 'other'")  # noqa: S608  # names of ours
    assert pool.state().away > 0
    bare = ShardedPool(store, SKU)
    for ask in (bare.finish_transfers, lambda: bare.reserve(HERE[0], quantity=15)):
        with pytest.raises(TransferGated, match="gate=gate"):
            ask()
    assert pool.finish_transfers() == 1
    assert judge() == (20, 0, 20)
    sold(pool, HERE[0], 15)
    check_sells_the_rest(pool, judge)


def test_a_late_or_repeated_transfer_moves_nothing_twice(pool: ShardedPool, gate: Gate, judge: Judge) -> None:
    source, target = names(pool)
    sent(pool, 0, 1, 3)
    for _ in range(2):
        assert gate.move_units(source, target, sent=3, epoch=1)
    assert [gate.totals(name).quota for name in (source, target)] == [7, 13]
    assert gate.move_units(source, target, sent=2, epoch=1)
    assert pool.finish_transfers() == 1
    assert judge() == (20, 0, 20)
    sent(pool, 0, 1, 2)
    assert gate.move_units(source, target, sent=5, epoch=1)
    assert pool.finish_transfers() == 1
    assert [gate.totals(name).quota for name in (source, target)] == [5, 15]
    judge()
    with pytest.raises(ChangeDiverged, match="no rows"):
        gate.move_units(source, type(source)("another", 1, "a"), sent=6, epoch=1)
    with pytest.raises(ChangeDiverged, match="epoch 1"):
        gate.move_units(source, target, sent=6, epoch=2)


# --- what a failover forgets ---


def test_a_source_that_forgot_its_sales_sends_no_sold_unit(
    pool: ShardedPool, other_store: RedisStore, gate: Gate, judge: Judge
) -> None:
    with forgotten(pool.shards[1].plain):
        sold(pool, THERE[0], 10)
    another = ShardedPool(other_store, SKU, gate=gate)  # it has not seen what was lost
    with pytest.raises(PoolFrozen):
        another.reserve(HERE[0], quantity=15)
    assert note_of(another.shards[1].state(), "away", 0).units > 0
    assert [gate.totals(name).quota for name in names(pool)] == [10, 10]
    rebuild(another.shards[1].plain, gate)
    assert note_of(another.shards[1].state(), "away", 0).units == 0
    assert judge()[:2] == (20, 10)
    assert isinstance(another.reserve(HERE[1], quantity=11), SoldOut)
    check_sells_the_rest(another, judge)


@pytest.mark.parametrize("is_stored", [False, True], ids=["sent", "stored"])
@pytest.mark.parametrize("rebuilt", [1, 0], ids=["source", "target"])
def test_a_shard_is_rebuilt_while_units_are_on_the_way(
    pool: ShardedPool, gate: Gate, judge: Judge, *, rebuilt: int, is_stored: bool
) -> None:
    sold(pool, HERE[0], 12)  # an earlier transfer from shard 1 to shard 0 has arrived
    sold(pool, THERE[0], 1)
    sent(pool, 1, 0, 2)
    target, source = names(pool)
    if is_stored:
        assert gate.move_units(source, target, sent=4, epoch=1)
    pool.store.execute(op.FreezePool(names(pool)[rebuilt], 1))
    rebuild(pool.shards[rebuilt].plain, gate)
    assert pool.finish_transfers() == (0 if rebuilt and not is_stored else 1)
    assert judge() == (20, 13, 7)
    if rebuilt and not is_stored:  # the transfer has never happened, and the next one arrives
        sent(pool, 1, 0, 1)
        assert pool.finish_transfers() == 1
        assert judge() == (20, 13, 7)
    check_sells_the_rest(pool, judge)


def test_a_withdrawal_that_a_rebuild_has_undone_is_refused_at_once(pool: ShardedPool, gate: Gate, judge: Judge) -> None:
    change = Change(names(pool)[home_of("w", 2)], "w", "withdrawn", 5, 1)
    gate.stocking.begin(change, 1)
    gate.stocking.undo(change)
    assert pool.withdraw(5, withdraw_id="w") == TooFew("w", 5, 10)
    assert judge() == (20, 0, 20)


# --- opening ---


@pytest.mark.parametrize("rebuilt", [0, 1])
def test_the_program_that_opened_the_sale_opens_it_again_after_a_shard_was_rebuilt(
    pool: ShardedPool, gate: Gate, judge: Judge, rebuilt: int
) -> None:
    with forgotten(pool.shards[rebuilt].plain):
        home = (HERE, THERE)[rebuilt][0]
        change = next(f"r-{number}" for number in range(100) if home_of(f"r-{number}", 2) == rebuilt)
        sold(pool, home, 2)
        pool.restock(4, restock_id=change)
    with pytest.raises(PoolFrozen):
        pool.reserve(home)
    rebuild(pool.shards[rebuilt], gate)
    again = ShardedPool(pool.store, SKU, gate=gate).open(**OPENING)
    assert isinstance(again, AlreadyOpen)
    assert again.state.available == 22
    check_sells_the_rest(pool, judge)


def is_begun(store: RedisStore, sku: str) -> bool:
    """Return whether the first shard is open, and the pool is not."""
    directory = store.execute(op.ReadDirectory(sku, 0))
    if directory is None or directory.is_open:
        return False
    with suppress(ShardVanished):
        return store.execute(op.ReadPool(directory.shards[0])).gated
    return False


def test_an_opening_that_died_at_any_step_is_finished_and_never_without_the_gate(
    store: RedisStore, gate: Gate, judge: Judge
) -> None:
    counter = StepCounter()
    let_die(gate, counter)
    begun_count = 0
    for steps in range(1, STEPS_MAX):
        sku = f"mug-{steps}"
        counter.counted, counter.steps = 0, steps
        try:
            ShardedPool(DyingStore(store, counter), sku, gate=gate).open(**OPENING)
            has_died = False
        except Died:
            has_died = True
        counter.steps = None
        if is_begun(store, sku):
            begun_count += 1
            with pytest.raises(ChangeGated):
                ShardedPool(store, sku).open(**OPENING)
        pool = ShardedPool(store, sku, gate=gate)
        pool.open(**OPENING)
        with pytest.raises(ChangeGated):
            ShardedPool(store, sku).open(**OPENING)
        if not has_died:
            break
    assert judge() == (20 * steps, 0, 20 * steps)
    assert (10 < steps < STEPS_MAX - 1, begun_count > 2) == (True, True)


def test_another_database_is_refused_and_a_shard_is_not_opened_again_alone(
    pool: ShardedPool, store: RedisStore, open_gate: Callable[..., Gate], gate: Gate, sqlite_url: str
) -> None:
    other = open_gate(f"{sqlite_url}-other")
    with pytest.raises((AnotherDatabase, RowsMissing)):
        ShardedPool(store, SKU, gate=other).open(**OPENING)
    with pytest.raises(InvalidInput, match="opened again alone"):
        reopen_gated(pool.shards[0].plain, gate, segments=2, epoch=2)


# --- workers ---


@pytest.mark.parametrize("seed", range(2))
def test_any_calls_in_any_order_with_deaths_in_between_leave_both_sides_agreeing(
    store: RedisStore, gate: Gate, valkey: ValkeyServer, order_database: str, seed: int
) -> None:
    chance = random.Random(seed)
    counter = StepCounter()
    let_die(gate, counter)
    ShardedPool(store, SKU, gate=gate).open(stock=60, segments=6, shards=3)
    orders: list[str] = []

    def one(pool: ShardedPool, number: int) -> Any:  # noqa: ANN401  # any answer
        known = chance.choice(orders) if orders else "none"
        calls: list[Callable[[], Any]] = [
            lambda: pool.reserve(f"o-{number}", quantity=chance.randint(1, 12)),
            lambda: pool.reserve_many([Order(f"m-{number}-{each}", chance.randint(1, 6)) for each in range(2)]),
            lambda: pool.confirm(known),
            lambda: pool.cancel(known),
            lambda: pool.confirm_many([known]),
            lambda: pool.restock(chance.randint(1, 5), restock_id=f"r-{number}"),
            lambda: pool.withdraw(chance.randint(1, 9), withdraw_id=f"w-{number}"),
            lambda: pool.resize(chance.randint(3, 9)),
            pool.finish_transfers,
            pool.expire,
        ]
        orders.extend([f"o-{number}", *(f"m-{number}-{each}" for each in range(2))])
        return chance.choice(calls)()

    for number in range(60):
        counter.counted, counter.steps = 0, chance.choice([None, chance.randint(1, 60)])
        with suppress(Died, SegmentedError):
            one(ShardedPool(DyingStore(store, counter), SKU, gate=gate), number)
        counter.steps = None
    pool = ShardedPool(store, SKU, gate=gate)
    for shard in pool.shards:  # a change that died is finished by its id
        for change in gate.unfinished_changes(shard.sku):
            if change.kind == "restocked":
                shard.restock(change.units, restock_id=change.change_id)
            else:
                shard.withdraw(change.units, withdraw_id=change.change_id)
    for order in pool.orders(state="reserved"):
        pool.cancel(order.order_id)
    pool.finish_transfers()
    stocked, _, _ = judged(valkey.url, order_database)
    assert stocked == pool.state().stocked
    assert pool.audit().is_clean
    for shard in pool.shards:
        assert shard.state().frozen is None


def test_an_audit_of_both_sides_knows_the_units_on_the_way(pool: ShardedPool, gate: Gate) -> None:
    sold(pool, HERE[0], 12)
    sent(pool, 1, 0, 2)
    for _ in range(2):
        reports = [audit_both(shard, gate) for shard in pool.shards]
        assert [one.differences for one in reports] == [(), ()]
        source, target = names(pool)[::-1]
        gate.move_units(source, target, sent=note_of(pool.shards[1].state(), "sent", 0).units, epoch=1)
    pool.finish_transfers()
    assert all(audit_both(shard, gate).is_clean for shard in pool.shards)


def test_a_source_that_forgot_what_it_sent_is_rebuilt_and_sells_exactly_the_rest(
    pool: ShardedPool, gate: Gate, judge: Judge
) -> None:
    with forgotten(pool.shards[1].plain):
        sold(pool, HERE[0], 15)
    assert [gate.totals(name).quota for name in names(pool)] == [15, 5]
    sold(pool, THERE[0], 5)  # the shard has five units that it gave away before
    assert isinstance(pool.reserve(THERE[1]), Reserved)
    with pytest.raises(PoolFrozen):
        pool.confirm(THERE[1])
    rebuild(pool.shards[1].plain, gate)
    assert judge() == (20, 20, 0)
    check_sells_the_rest(pool, judge)


def test_a_target_that_forgot_what_it_received_is_rebuilt_with_it(pool: ShardedPool, gate: Gate, judge: Judge) -> None:
    with forgotten(pool.shards[0].plain):
        sold(pool, HERE[0], 15)
    with pytest.raises(PoolFrozen):
        pool.reserve(HERE[1])
    rebuild(pool.shards[0], gate)
    assert judge()[:2] == (20, 15)
    check_sells_the_rest(pool, judge)


def test_a_transfer_of_an_earlier_epoch_is_never_stored(pool: ShardedPool, gate: Gate, judge: Judge) -> None:
    sent(pool, 0, 1, 2)
    source, target = names(pool)
    pool.store.execute(op.FreezePool(source, 1))
    rebuild(pool.shards[0].plain, gate)
    assert not gate.move_units(source, target, sent=2, epoch=1)
    assert judge() == (20, 0, 20)
