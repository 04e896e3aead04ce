"""Pools in shards where a careful reader found a fault: each test is the proof of one, that it is mended."""

import asyncio
from typing import Any, Final

from segmented import protocol as op
from segmented.models import Busy, Granted, Order, Reserved, Shard
from segmented.plans import Plan, perform
from segmented.stock.sharded import AsyncShardedPool
from segmented.stores.memory import AsyncMemoryStore
from tests.fixtures.stores import Side
from tests.support.contract.interposed import asks, interposed, process_of
from tests.support.contract.shards.sharding import at_home_in, check_all, refused, sharded, shards_of, taken

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
