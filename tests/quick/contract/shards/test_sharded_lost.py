"""Pools in shards where a careful reader found a fault: what failovers take, openings at once, and foreign writes."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import pytest

from segmented import protocol as op
from segmented.errors import InvalidInput, PoolFrozen, PoolNotFrozen
from segmented.keys import shard_keys
from segmented.models import Busy, Granted, Order, Received, Reserved, Shard, SoldOut, Thawed, Transfer
from segmented.models.shards import note_of
from segmented.plans import Plan, perform
from segmented.stock import AsyncShardedPool, ShardedPool
from segmented.stores.memory import AsyncMemoryStore
from tests.fixtures.stores import Side, another_process
from tests.support.contract.interposed import asks, interposed, process_of
from tests.support.contract.shards.sharding import at_home_in, check_all, refused, remembered, sharded, shards_of, taken


def free_of_each(side: Side, sku: str) -> list[int]:
    return [side.execute(op.ReadPool(shard)).available for shard in shards_of(side, sku)]


# --- failovers that lose what a shard had acknowledged ---


def test_units_doubled_by_a_sources_failover_are_named_and_mended_by_its_transfer(side: Side) -> None:
    sku = side.name()
    pool = sharded(side, sku)
    pool.open(stock=20_000, segments=2, shards=2)
    x, y, z, big, last = at_home_in(0, 2)[:5]
    elsewhere = at_home_in(1, 2)[0]
    taken(pool.reserve(x, quantity=10_000))
    fail_over = remembered(side, shards_of(side, sku)[1])
    taken(pool.reserve(y))
    assert free_of_each(side, sku) == [4_999, 5_000]
    fail_over()
    assert free_of_each(side, sku) == [4_999, 10_000]
    with another_process(side) as other:  # for this one, which has seen what was lost, the shard would be frozen
        pool = sharded(other, sku)
        assert [taken(pool.reserve(z, quantity=4_999)), taken(pool.reserve(elsewhere, quantity=10_000))] == [
            4_999,
            10_000,
        ]
        report = pool.audit()
        assert (report.state.reserved, report.oversold, report.is_clean) == (25_000, 5_000, False)
        assert [(drift.kind, drift.name) for drift in report.drift] == [("foreign write", "1>0")]
        assert report.drift[0].detail == "shard 0 received 5000 units from shard 1, which sent 0"
        pool.cancel(elsewhere)
        assert refused(pool.reserve(big, quantity=6_000)) == (5_000, 15_000)
        assert pool.audit().drift == ()
        assert taken(pool.reserve(last, quantity=5_000)) == 5_000
        assert (pool.state().available, pool.state().reserved) == (0, 20_000)
        check_all(pool)


def test_units_that_a_target_lost_come_with_the_next_transfer_and_orders_are_served(side: Side) -> None:
    sku = side.name()
    pool = sharded(side, sku)
    pool.open(stock=300, segments=3, shards=3)
    first, second, third, last = at_home_in(0, 3)[:4]
    fail_over = remembered(side, shards_of(side, sku)[0])
    taken(pool.reserve(first, quantity=120))
    assert free_of_each(side, sku) == [0, 80, 100]
    fail_over()  # which forgot the order, too
    assert free_of_each(side, sku) == [100, 80, 100]
    report = pool.audit()
    assert [(drift.kind, drift.name) for drift in report.drift] == [("orphan transfer", "1>0")]
    assert report.drift[0].detail == "shard 1 knows that 20 of its units arrived at shard 0, which received 0"
    with another_process(side) as other:  # for this one, which has seen what was lost, the shard would be frozen
        pool = sharded(other, sku)
        assert taken(pool.reserve(second, quantity=130)) == 130
        assert free_of_each(side, sku) == [0, 80, 70]
        assert taken(pool.reserve(third, quantity=50)) == 50
        assert free_of_each(side, sku) == [20, 30, 70]
        assert taken(pool.reserve(last, quantity=120)) == 120
        check_all(pool)


# --- opening, and what somebody else wrote ---


def test_a_transfer_with_a_shard_that_is_none_is_told_by_audit_and_repair(plain_redis_side: Side) -> None:
    for note in ("sent:7", "away:7", "received:7", "away:0", "sent:0"):
        sku = plain_redis_side.name()
        pool = sharded(plain_redis_side, sku)
        pool.open(stock=20, segments=4, shards=2)
        plain_redis_side.raw().hset(shard_keys(shards_of(plain_redis_side, sku)[0]).transfers, note, "1 5")
        report = pool.audit()
        assert not report.is_clean, note
        done = pool.repair(report, yes=True)
        assert (done.is_clean, done.done_count, len(done.repairs)) == (False, 0, report.drift_count), note
        assert {repair.kind for repair in done.repairs} <= {"foreign write", "orphan transfer"}, note
        assert pool.state().available == 20, note


# Pools in shards where a careful reader found a fault: each test is the proof of one, that it is mended.


LONG_MS: Final = 600_000
STALE: Final = 0.12
"""Longer than what a refusal rests on may be old."""
TURNS: Final = 50
"""Of the event loop: more than any answer without a wait takes."""


def granting(sku: str, order_id: str, *, quantity: int = 1, keep_refusal: bool = False) -> op.Grant:
    return op.Grant(sku, Order(order_id, quantity), f"who-{order_id}", 60_000, LONG_MS, keep_refusal=keep_refusal)


def kept_state(side: Side, shard: Shard, order_id: str) -> str | None:
    (record,) = side.execute(op.ReadOrders(shard, (order_id,)))
    return None if record is None else record.state


# --- refusals that are kept ---
def one_unit_in_hand(side: Side) -> str:
    """Open two shards of a unit and a segment each; the first is granted, the second reserved."""
    sku = side.name()
    sharded(side, sku).open(stock=2, segments=2, shards=2)
    home, other = shards_of(side, sku)
    assert isinstance(side.execute(granting(home, at_home_in(0, 2)[0])), Granted)
    assert isinstance(side.execute(op.Reserve(other, Order(at_home_in(1, 2)[0], 1), LONG_MS)), Reserved)
    return sku


def test_a_refusal_is_not_kept_if_the_last_attempt_finds_units_but_no_segment(side: Side) -> None:
    sku = one_unit_in_hand(side)
    home, _ = shards_of(side, sku)
    late = at_home_in(0, 2)[2]

    def comes_back() -> Plan[None]:
        yield from perform(op.Restock(home, "r0", 1))

    plan = process_of(side, sku).grant(granting(sku, late, keep_refusal=True), 0.0, fair=False)
    answer, _, _ = side.run(interposed(plan, (asks(op.Grant, keeps=True), comes_back)))
    assert isinstance(answer, Busy)
    assert kept_state(side, home, late) is None
    check_all(sharded(side, sku))


# --- the same order, asked for twice ---
class SlowSecond(AsyncMemoryStore):
    """Keeps the second reservation that is asked for alone waiting until `go_on`, after which it is served."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.is_waiting, self.go_on = 0, asyncio.Event(), asyncio.Event()

    async def execute(self, operation: Any, *, deadline: float = float("inf")) -> Any:  # noqa: ANN401  # of any answer
        if isinstance(operation, op.Reserve):
            self.asked += 1
            if self.asked == 2:
                self.is_waiting.set()
                await self.go_on.wait()
        return await super().execute(operation, deadline=deadline)


def test_a_call_cancelled_after_units_were_brought_takes_nothing_from_its_twin() -> None:
    async def twins() -> None:
        store = SlowSecond()
        pool = AsyncShardedPool(store, "p")
        await pool.open(stock=20, segments=2, shards=2)
        first, second = (asyncio.create_task(pool.reserve("o", quantity=15)) for _ in range(2))
        async with asyncio.timeout(60.0):
            await store.is_waiting.wait()
            done, waiting = await asyncio.wait([first, second], return_when=asyncio.FIRST_COMPLETED)
        assert [taken(one.result()) for one in done] == [15]
        (cancelled,) = waiting
        cancelled.cancel()
        store.go_on.set()
        await asyncio.wait([cancelled], timeout=60.0)
        assert cancelled.cancelled()
        for _ in range(TURNS):
            await asyncio.sleep(0)
        assert (await pool.confirm("o")).state == "confirmed"
        assert (await pool.audit()).drift == ()

    asyncio.run(twins())


# --- batches ---
def batch(sku: str, *orders: Order) -> op.ReserveMany:
    return op.ReserveMany(sku, orders, LONG_MS)


def refused_then_served(side: Side, passing: float) -> list[object]:
    """Reserve 60 and 1 where 40 are free elsewhere; while the 1 is brought, 100 come back and some seconds pass."""
    sku = side.name()
    pool = sharded(side, sku)
    pool.open(stock=200, segments=2, shards=2)
    gone, big, small = at_home_in(0, 2)[:3]
    taken(pool.reserve(gone, quantity=100))
    taken(pool.reserve(at_home_in(1, 2)[0], quantity=60))

    def comes_back() -> Plan[None]:
        yield from process_of(side, sku).cancel(op.Cancel(sku, gone), None)
        side.pass_time(passing)

    plan = process_of(side, sku).reserve_many(batch(sku, Order(big, 60), Order(small, 1)))
    answers: list[object] = side.run(interposed(plan, (asks(op.SendUnits), comes_back)))
    check_all(pool)
    return answers


def test_a_refusal_in_a_batch_that_grew_old_while_others_gathered_is_asked_for_again(memory: Side) -> None:
    answers = refused_then_served(memory, STALE)
    assert [taken(answer) for answer in answers] == [60, 1]
    big, small = refused_then_served(memory, 0.09)  # younger than a tenth of a second: it stands
    assert (refused(big), taken(small)) == ((40, 160), 1)


# A shard that is thawed takes over what other shards know of its transfers, so no unit is free twice or nowhere.


STOCK = 40


class Pair:
    """A pool in two shards of 20 units each; five units of shard 0 go to shard 1."""

    def __init__(self, side: Side) -> None:
        self.side, self.sku = side, side.name()
        self.pool: ShardedPool = sharded(side, self.sku)
        self.pool.open(stock=STOCK, segments=4, shards=2)
        self.source, self.target = shards_of(side, self.sku)

    def send(self) -> Transfer:
        sent = self.side.execute(op.SendUnits(self.source, 1, 5))
        assert sent is not None
        return sent

    def receive(self, sent: Transfer) -> Received:
        return self.side.execute(op.ReceiveUnits(self.target, 0, sent.number, sent.sent, sent.epoch))

    def acknowledge(self, sent: Transfer) -> None:
        self.side.execute(op.AcknowledgeUnits(self.source, 1, sent.number, sent.epoch))

    def move(self) -> Transfer:
        sent = self.send()
        assert self.receive(sent).units == 5
        self.acknowledge(sent)
        return sent

    def thaw(self, shard: Shard, *, sold: int = 0) -> Thawed:
        """Thaw a shard that memory does not know to have lost anything."""
        self.side.execute(op.FreezePool(shard, 1))
        return self.side.pool(shard).thaw(sold=sold)

    def free(self) -> tuple[int, int]:
        states = [self.side.execute(op.ReadPool(shard)) for shard in (self.source, self.target)]
        return states[0].available, states[1].available

    def check_sells(self, units: int) -> None:
        """Sell that many units, from whatever shard they are in, and no more."""
        for number in range(units):
            taken(self.pool.reserve(f"last {number}"))
        assert isinstance(self.pool.reserve("none"), SoldOut)
        check_all(self.pool)


@pytest.fixture
def pair(side: Side) -> Pair:
    return Pair(side)


def test_a_source_that_forgot_what_it_sent_has_those_units_no_more_after_its_thaw(pair: Pair) -> None:
    fail_over = remembered(pair.side, pair.source)
    pair.move()
    fail_over()
    thawed = pair.thaw(pair.source)
    assert (pair.free(), thawed.state.sent, thawed.cancelled_count) == ((15, 25), 5, 0)
    pair.check_sells(STOCK)


def test_a_target_that_forgot_what_it_received_has_those_units_after_its_thaw(pair: Pair) -> None:
    fail_over = remembered(pair.side, pair.target)
    pair.move()
    fail_over()
    thawed = pair.thaw(pair.target)
    assert (pair.free(), thawed.state.received) == ((15, 25), 5)
    pair.check_sells(STOCK)


def both_forget(pair: Pair) -> list[Callable[[], None]]:
    """Move units; returns what makes each shard forget it."""
    fail_overs = [remembered(pair.side, shard) for shard in (pair.source, pair.target)]
    pair.move()
    return fail_overs


def test_units_sold_after_a_transfer_that_both_forgot_are_taken_from_the_other_shard(pair: Pair) -> None:
    for fail_over in both_forget(pair):
        fail_over()
    pair.side.execute(op.FreezePool(pair.target, 1))
    with pytest.raises(InvalidInput, match=r"^23 sold units are more than the 20 units that pool"):
        pair.thaw(pair.source, sold=23)  # the other shard is frozen, and has nothing to send
    pair.thaw(pair.source)
    state = pair.thaw(pair.target, sold=23).state
    assert (state.confirmed, state.received, state.available, pair.free()) == (23, 3, 0, (17, 0))
    assert pair.pool.finish_transfers() == 1
    pair.check_sells(17)


def test_a_source_that_forgot_one_transfer_of_two_takes_over_the_second(pair: Pair) -> None:
    pair.move()
    fail_over = remembered(pair.side, pair.source)
    pair.move()
    fail_over()
    with another_process(pair.side) as other:  # it has not seen the loss, and sends again
        again = other.execute(op.SendUnits(pair.source, 1, 2))
        assert again is not None
        assert (again.number, again.units) == (2, 2)
        assert other.execute(op.ReceiveUnits(pair.target, 0, again.number, again.sent, again.epoch)).units == 0
    pair.thaw(pair.source)
    assert pair.free() == (10, 30)
    state = pair.side.execute(op.ReadPool(pair.source))
    assert note_of(state, "sent", 1).units == 10
    assert note_of(state, "away", 1).units == 0
    pair.check_sells(STOCK)


def test_a_transfer_that_was_forgotten_on_its_way_never_arrives(pair: Pair) -> None:
    fail_over = remembered(pair.side, pair.source)
    sent = pair.send()
    fail_over()
    pair.thaw(pair.source)
    assert pair.free() == (20, 20)
    assert pair.receive(sent) == Received(1, 0, later_epoch=2)
    again = pair.send()
    assert (again.number, again.epoch) == (1, 2)
    pair.acknowledge(sent)  # of the forgotten transfer of the same number
    assert note_of(pair.side.execute(op.ReadPool(pair.source)), "away", 1).units == 5
    assert pair.receive(again).units == 5
    pair.acknowledge(again)
    assert pair.free() == (15, 25)
    pair.check_sells(STOCK)


@pytest.mark.parametrize("lost", ["source", "target"])
def test_a_shard_that_another_knows_to_have_lost_a_transfer_is_frozen_at_the_thaw(pair: Pair, lost: str) -> None:
    forgetful, other_shard = (pair.source, pair.target) if lost == "source" else (pair.target, pair.source)
    fail_over = remembered(pair.side, forgetful)
    pair.move()
    fail_over()
    with another_process(pair.side) as other:
        pair.side = other
        pair.thaw(other_shard)
        with pytest.raises(PoolFrozen):
            other.pool(forgetful).reserve("a")
        other.pool(forgetful).thaw(sold=0)
        assert pair.free() == (15, 25)
        check_all(sharded(other, pair.sku))


def test_a_thaw_that_ended_before_its_last_step_is_repeated_in_a_later_epoch(pair: Pair) -> None:
    fail_over = remembered(pair.side, pair.source)
    pair.move()
    fail_over()
    assert pair.side.execute(op.NoteEpoch(pair.target, 0, 2)) == 0  # as a thaw does that goes no further
    state = pair.thaw(pair.source).state
    assert (state.epoch, pair.free()) == (3, (15, 25))
    with pytest.raises(PoolNotFrozen):
        pair.side.pool(pair.source).thaw(sold=0)
    pair.check_sells(STOCK)


def test_a_shard_that_forgot_its_thaw_is_frozen_when_it_sends_units(pair: Pair) -> None:
    pair.side.execute(op.NoteEpoch(pair.target, 0, 2))
    assert pair.receive(pair.send()) == Received(1, 0, later_epoch=2)
    assert pair.pool.finish_transfers() == 1
    with pytest.raises(PoolFrozen):
        pair.side.pool(pair.source).reserve("a")
    assert pair.side.pool(pair.source).thaw(sold=0).state.epoch == 3
    assert pair.pool.finish_transfers() == 1
    assert pair.free() == (15, 25)
    pair.check_sells(STOCK)
