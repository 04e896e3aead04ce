"""A signal at any statement or store call of a gated grant's end: the order ends as its body did, on both sides."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import pytest
from sqlalchemy import event
from sqlalchemy.exc import OperationalError

from segmented import AsyncMemoryStore, AsyncPool, MemoryStore, Pool
from segmented.orders import AsyncGate, Gate, connect
from segmented.stock import AsyncGrant, Grant
from tests.quick.contract.pools.test_owed_ends import STATES, SYNC, CutStore, awaited
from tests.support.pools.gated_shop import check

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sqlalchemy import Engine

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
