"""Submitted orders of a gated pool, and ends that are owed."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

import pytest
from sqlalchemy import Engine, event
from sqlalchemy.exc import OperationalError

from segmented import (
    AsyncMemoryStore,
    AsyncPool,
    Decided,
    MemoryStore,
    Order,
    Pool,
    RedisStore,
    Reserved,
    Settled,
    SoldOut,
)
from segmented.errors import OrderMismatch, OrderUnknown
from segmented.orders import AsyncGate, Gate, connect, reopen_gated, take_envelope
from segmented.servers import ValkeyServer
from segmented.stock import AsyncGrant, Grant
from segmented.stock.outbox import Outbox
from tests.quick.contract.pools.test_owed_ends import STATES, SYNC, CutStore, awaited
from tests.support.pools.both_sides import UNITS, judged, sql_rows
from tests.support.pools.gated_shop import check

SKU: Final = "mug"


@pytest.fixture
def pool(store: RedisStore, gate: Gate) -> Pool:
    """A pool of 20 units that sold 2 of them."""
    pool = Pool(store, SKU, gate=gate, outbox=Outbox(publish_after=600))
    pool.open(stock=20, segments=2)
    pool.reserve("sold", quantity=2)
    pool.confirm("sold")
    return pool


def reopen(store: RedisStore, gate: Gate) -> None:
    store.client.flushdb()
    reopen_gated(Pool(store, SKU), gate, segments=2, epoch=2)


def is_sold(answer: object) -> bool:
    return isinstance(answer, Decided | Settled) and (answer.state, answer.quantity, answer.replay) == (
        "confirmed",
        2,
        True,
    )


def test_an_order_that_only_the_database_knows_takes_no_units(
    store: RedisStore, gate: Gate, pool: Pool, order_database: str
) -> None:
    reopen(store, gate)
    fresh = Pool(store, SKU, outbox=Outbox(), gate=gate)
    assert is_sold(fresh.reserve("sold", quantity=2))
    first, second, third = fresh.reserve_many([Order("new"), Order("sold", 2), Order("sold", 5)])
    assert isinstance(first, Reserved)
    assert is_sold(second)
    assert isinstance(third, OrderMismatch)
    with pytest.raises(OrderMismatch):
        fresh.reserve("sold", quantity=5)
    assert is_sold(fresh.submit("sold", quantity=2).outcome)
    assert pool.state().available == 17
    fresh.confirm("new")
    (row,) = sql_rows(order_database, UNITS)
    assert tuple(row) == (SKU, 20, 3, 2)
    state = pool.state()
    assert (state.stocked, state.confirmed, state.available) == (18, 1, 17)


def test_a_sold_order_is_not_refused_as_sold_out(store: RedisStore, gate: Gate, pool: Pool) -> None:
    del pool
    reopen(store, gate)
    fresh = Pool(store, SKU, outbox=Outbox(), gate=gate)
    fresh.reserve("rest", quantity=18)
    assert is_sold(fresh.reserve("sold", quantity=2))
    assert isinstance(fresh.reserve("late"), SoldOut)


def test_a_process_that_knew_the_first_epoch_gives_the_units_of_a_sold_order_back(
    store: RedisStore, gate: Gate, pool: Pool
) -> None:
    reopen(store, gate)
    assert is_sold(pool.reserve("sold", quantity=2))
    assert (pool.state().available, pool.state().reserved) == (18, 0)


def test_a_handle_has_the_databases_decision_on_an_order_that_the_pool_does_not_know(
    store: RedisStore, gate: Gate, pool: Pool
) -> None:
    handle = pool.submit("sold", quantity=2)
    assert is_sold(handle.wait(0))
    reopen(store, gate)
    assert pool.handle("sold").refresh() == "confirmed"
    assert is_sold(pool.handle("sold").wait(0))
    assert pool.handle("nobody's").refresh() == "unknown"
    for unknown in (pool.handle("nobody's"), pool.plain.handle("sold")):
        with pytest.raises(OrderUnknown):
            unknown.wait(0)


def test_submitted_orders_end_on_both_sides(gate: Gate, pool: Pool, valkey: ValkeyServer, order_database: str) -> None:
    queue = Pool(pool.store, SKU, gate=gate, outbox=Outbox(decides="in the worker", publish_after=600))
    handles = [pool.submit("accepted"), queue.submit("queued"), pool.submit("cancelled", quantity=3)]
    pool.cancel("cancelled")
    queue.submit("cancelled in the queue")
    queue.cancel("cancelled in the queue")
    take_envelope(pool, ["accepted", "queued", "cancelled", "cancelled in the queue"], gate=gate)
    outcomes = [handle.wait(0) for handle in [*handles, queue.handle("cancelled in the queue")]]
    states = [outcome.state for outcome in outcomes if isinstance(outcome, Decided | Settled)]
    assert states == ["confirmed", "confirmed", "cancelled", "cancelled"]
    assert judged(valkey.url, order_database) == (20, 4, 16)


STEPS_MAX: Final = 40


class Statements:
    """Counts an engine's statements, and raises before or after one of them; 0: at none."""

    def __init__(self, engine: Engine, *, is_performed: bool) -> None:
        self.at = self.count = 0
        self.strike: Callable[[], object] | None = None
        """Called before each statement fails from there on; without it a signal's exception comes once."""
        event.listen(engine, "after_cursor_execute" if is_performed else "before_cursor_execute", self._count)

    def _count(self, *_: Any) -> None:  # noqa: ANN401  # every event has other arguments
        self.count += 1
        if self.strike is None and self.count == self.at:
            raise KeyboardInterrupt
        if self.strike is not None and self.count >= self.at > 0:
            self.strike()
            raise OperationalError(None, None, Exception(), connection_invalidated=True)


@pytest.mark.parametrize("end", STATES)
@pytest.mark.parametrize("is_performed", [False, True], ids=["unsent", "unanswered"])
@pytest.mark.parametrize("of_database", [False, True], ids=["store", "database"])
def test_a_signal_at_any_step_of_a_gated_end_leaves_the_order_ended(
    order_database: str, end: str, *, is_performed: bool, of_database: bool
) -> None:
    engine = connect(order_database)
    statements = Statements(engine, is_performed=is_performed)
    with Gate(engine) as gate:
        for at in range(1, STEPS_MAX):
            store = CutStore(MemoryStore(), KeyboardInterrupt, is_performed=is_performed)
            pool = Pool(store, f"mug-{at}", ttl=30, hold=60, gate=gate)
            pool.open(stock=5, segments=1)
            grant = pool.grant("a", timeout=0).__enter__()
            assert isinstance(grant, Grant)
            statements.count = store.calls = 0
            statements.at, store.at = (at, 0) if of_database else (0, at)
            with suppress(KeyboardInterrupt):
                SYNC[end](grant)
            is_over = (statements.count if of_database else store.calls) < at
            statements.at = store.at = 0
            record = pool.order("a")
            assert record is not None
            assert (at, record.state) == (at, STATES[end])
            is_sold = STATES[end] == "confirmed"
            check(pool, gate, confirmed=int(is_sold), available=5 - is_sold)
            if is_over:
                return
    pytest.fail(f"an end takes {STEPS_MAX} steps")


CALLS: Final[dict[str, tuple[str, Callable[[AsyncPool, AsyncGrant], Awaitable[object]]]]] = {
    "end of a grant": ("confirmed", lambda _, grant: grant.confirm()),
    "end of a failed grant": ("cancelled", lambda _, grant: grant.cancel()),
    "confirm": ("confirmed", lambda pool, _: pool.confirm("a")),
    "cancel": ("cancelled", lambda pool, _: pool.cancel("a")),
    "confirm_many": ("confirmed", lambda pool, _: pool.confirm_many(["a"])),
    "cancel_many": ("cancelled", lambda pool, _: pool.cancel_many(["a"])),
}


@pytest.mark.parametrize("end", CALLS)
def test_a_gated_end_cancelled_while_its_database_fails_is_repeated(
    monkeypatch: pytest.MonkeyPatch, order_database: str, end: str
) -> None:
    monkeypatch.setattr("segmented.plans.tasks.REPEAT_SECONDS", 0.0)
    state, call = CALLS[end]
    engine = connect(order_database)
    statements = Statements(engine, is_performed=False)

    async def scene(gate: AsyncGate, at: int) -> bool:
        pool = AsyncPool(AsyncMemoryStore(), f"mug-{at}", ttl=30, hold=60, gate=gate)
        await pool.open(stock=5, segments=1)
        grant = await pool.grant("a", timeout=0)
        assert isinstance(grant, AsyncGrant)
        ending = asyncio.create_task(awaited(call(pool, grant)))
        loop = asyncio.get_running_loop()
        statements.strike = lambda: loop.call_soon_threadsafe(ending.cancel)
        statements.at, statements.count = at, 0
        await asyncio.wait([ending])
        is_over, statements.at = statements.count < at, 0
        async with asyncio.timeout(10):
            while (await pool.order("a")).state != state:  # type: ignore[union-attr]  # noqa: ASYNC110  # it is known
                await asyncio.sleep(0)
        rows = await asyncio.to_thread(gate.gate.orders, pool.sku, ["a"])
        assert rows["a"].state == ("confirmed" if state == "confirmed" else "void")
        return is_over

    async def scenes() -> None:
        async with AsyncGate(engine) as gate:
            for at in range(1, STEPS_MAX):
                if await scene(gate, at):
                    return
        pytest.fail(f"an end takes {STEPS_MAX} steps")

    asyncio.run(scenes())
