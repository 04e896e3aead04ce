"""Merged calls whose callers or whose event loop end early: nothing is kept for nobody, nothing taken from somebody."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Any

import pytest

from segmented import protocol as op
from segmented.errors import InvalidInput, OrderMismatch
from segmented.models import Order, Reserved, Settled
from segmented.stock import AsyncGrant, AsyncPool
from segmented.stores.memory import AsyncMemoryStore
from tests.support.contract.pools.merged import SOON, Run, Watched, turns, until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from segmented.plans.drivers import AsyncStore

GATES_MAX = 3


class Gated(Watched):
    """A store that keeps the answer of each batch of reservations, and no cancel, until its gate is open."""

    def __init__(self, store: AsyncStore) -> None:
        super().__init__(store)
        self.gates = [asyncio.Event() for _ in range(GATES_MAX)]
        self.may_cancel, self.would_cancel = asyncio.Event(), asyncio.Event()
        self.sent = 0

    async def execute(self, operation: op.Operation[Any], *, deadline: float = inf) -> Any:  # noqa: ANN401  # the operation's own answer
        match operation:
            case op.ReserveMany():
                gate = self.gates[self.sent]
                self.sent += 1
                answer = await super().execute(operation, deadline=deadline)
                await gate.wait()
                return answer
            case op.SettleMany(state="cancelled"):
                self.would_cancel.set()
                await self.may_cancel.wait()
        return await super().execute(operation, deadline=deadline)


class Stuck(Watched):
    """A store that never answers while told so."""

    is_stuck = False

    async def execute(self, operation: op.Operation[Any], *, deadline: float = inf) -> Any:  # noqa: ANN401  # the operation's own answer
        if self.is_stuck:
            await asyncio.get_running_loop().create_future()
        return await super().execute(operation, deadline=deadline)


async def cancelling(call: Awaitable[object], others: list[asyncio.Task[Any]]) -> None:
    """Cancel others when the call is answered: in that pass of the loop those behind it in the batch are answered."""
    await call
    for other in others:
        other.cancel()


def test_a_call_cancelled_in_the_pass_that_brings_its_answer_gives_it_back(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "segmented.stock")

    async def scenario(pool: AsyncPool, store: Watched) -> None:
        gone: list[asyncio.Task[Any]] = []
        first = asyncio.create_task(cancelling(pool.reserve("first"), gone))
        gone += [asyncio.create_task(pool.reserve(f"gone-{index}", quantity=3)) for index in range(3)]
        ends = await asyncio.gather(first, *gone, return_exceptions=True)
        assert [type(end) for end in ends] == [type(None), *[asyncio.CancelledError] * 3]
        assert store.batches[0] == 4
        await until(lambda: "reservations.given_back" in caplog.text)
        assert store.cancelled == [("gone-0", "gone-1", "gone-2")]
        state = await pool.state()
        assert (state.available, state.reserved) == (9, 1)

    run(scenario)


def test_an_order_asked_for_again_before_its_units_go_back_leaves_nothing_to_give(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(pool: AsyncPool, store: Watched) -> None:
        async def twice() -> object:
            await pool.reserve("b")
            return await pool.reserve("a")  # in the pass of the loop in which a's first caller is found gone

        store.hold()
        gone, stays = asyncio.create_task(pool.reserve("a")), asyncio.create_task(twice())
        await until(lambda: store.batches == [2])
        gone.cancel()
        store.let_go()
        assert isinstance(await stays, Reserved)
        await turns()
        assert (store.cancelled, (await pool.state()).reserved) == ([], 2)

    run(scenario)
    assert caplog.text == ""


def test_the_second_caller_of_an_order_keeps_it_when_the_first_ends_with_the_answer(run: Run) -> None:
    async def scenario(pool: AsyncPool, store: Watched) -> None:
        gone: list[asyncio.Task[Any]] = []
        first = asyncio.create_task(cancelling(pool.reserve("first"), gone))
        gone.append(asyncio.create_task(pool.reserve("shared")))
        stays = asyncio.create_task(pool.reserve("shared"))
        await asyncio.gather(first, *gone, return_exceptions=True)
        assert isinstance(await stays, Reserved)
        await turns()
        assert store.cancelled == []
        assert (await pool.state()).reserved == 2

    run(scenario)


def test_an_order_whose_callers_all_ended_one_after_the_other_is_given_back(run: Run) -> None:
    async def scenario(pool: AsyncPool, store: Watched) -> None:
        store.hold()
        late: list[asyncio.Task[Any]] = []
        first = asyncio.create_task(cancelling(pool.reserve("first"), late))
        early = asyncio.create_task(pool.reserve("shared"))
        late.append(asyncio.create_task(pool.reserve("shared")))
        other = asyncio.create_task(pool.reserve("shared", quantity=2))
        await until(lambda: store.batches == [4])
        early.cancel()
        store.let_go()
        ends = await asyncio.gather(first, early, *late, other, return_exceptions=True)
        assert [type(end) for end in ends[1:]] == [asyncio.CancelledError] * 2 + [OrderMismatch]
        await until(lambda: store.cancelled == [("shared",)])
        await turns()
        assert (await pool.state()).reserved == 1

    run(scenario)


def test_a_repeat_in_the_other_batch_under_way_keeps_the_order(run: Run) -> None:
    for first, second in ((0, 1), (1, 0)):

        async def scenario(opened: AsyncPool, watched: Watched, first: int = first, second: int = second) -> None:
            store = Gated(watched)
            pool = AsyncPool(store, opened.sku)
            store.may_cancel.set()
            gone = asyncio.create_task(pool.reserve("shared"))
            rest = [asyncio.create_task(pool.reserve(f"a{index}")) for index in range(499)]
            await until(lambda: store.batches == [500])
            repeat = asyncio.create_task(pool.reserve("shared"))
            rest += [asyncio.create_task(pool.reserve(f"b{index}")) for index in range(499)]
            await until(lambda: store.batches == [500, 500])
            gone.cancel()
            store.gates[first].set()
            if first == 1:
                await until(repeat.done)  # and the cancelled call has its answer later
            store.gates[second].set()
            assert isinstance(await repeat, Reserved)
            await asyncio.gather(*rest)
            await turns()
            assert store.cancelled == []
            settled = await pool.confirm("shared")
            assert settled.state == "confirmed"

        run(scenario)


def test_an_order_granted_meanwhile_is_not_cancelled_under_its_holder(run: Run) -> None:
    async def scenario(pool: AsyncPool, store: Watched) -> None:
        store.hold()
        gone = asyncio.create_task(pool.reserve("shared"))
        await until(lambda: store.batches == [1])
        grant = await pool.grant("shared", timeout=30)
        assert isinstance(grant, AsyncGrant)
        gone.cancel()
        store.let_go()
        await asyncio.gather(gone, return_exceptions=True)
        await pool.reserve("other")
        await turns(100)
        assert store.cancelled == []
        assert (await grant.confirm()).state == "confirmed"

    run(scenario)


def test_a_repeat_waits_while_its_order_is_being_given_back_and_gets_units_anew(run: Run) -> None:
    async def scenario(opened: AsyncPool, watched: Watched) -> None:
        store = Gated(watched)
        pool = AsyncPool(store, opened.sku)
        gone = asyncio.create_task(pool.reserve("gone"))
        await until(lambda: store.batches == [1])
        gone.cancel()
        store.gates[0].set()
        store.gates[1].set()
        await store.would_cancel.wait()  # the look at the record is over, and the cancel is kept back
        again = asyncio.create_task(pool.reserve("gone"))
        await turns()
        assert store.sent == 1
        store.may_cancel.set()
        answer = await again
        assert isinstance(answer, Reserved)
        assert not answer.replay
        assert store.cancelled == [("gone",)]

    run(scenario)


def test_a_confirm_and_a_cancel_happen_if_their_callers_end_before_the_batch_is_sent(run: Run) -> None:
    async def scenario(pool: AsyncPool, store: Watched) -> None:
        await asyncio.gather(*(pool.reserve(f"o{index}") for index in range(4)))
        store.hold()
        under_way = [asyncio.create_task(pool.confirm("o0")), asyncio.create_task(pool.cancel("o2"))]
        await until(lambda: store.batches == [4, 1, 1])
        gone = [asyncio.create_task(pool.confirm("o1")), asyncio.create_task(pool.cancel("o3"))]
        await turns()
        for call in gone:
            call.cancel()
        store.let_go()
        await asyncio.gather(*under_way)
        await until(lambda: store.batches == [4, 1, 1, 1, 1])
        await turns()
        await asyncio.gather(pool.reserve("last"), return_exceptions=True)
        state = await pool.state()
        assert (state.reserved, state.confirmed) == (1, 2)

    run(scenario)


def test_a_decision_that_failed_for_nobody_is_logged(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(pool: AsyncPool, store: Watched) -> None:
        await asyncio.gather(pool.reserve("first"), pool.reserve("mine"))
        store.hold()
        first = asyncio.create_task(pool.confirm("first"))
        await until(lambda: store.batches == [2, 1])
        gone = asyncio.create_task(pool.confirm("mine"))
        await turns()
        gone.cancel()
        store.is_away = True
        store.let_go()
        assert (await first).state == "confirmed"
        await until(lambda: "decisions.unknown count=1" in caplog.text)

    run(scenario)


# --- event loops ---


def test_decisions_that_wait_when_their_loop_ends_are_carried_out() -> None:
    memory = AsyncMemoryStore()

    async def end_early() -> None:
        store = Watched(memory)
        pool = AsyncPool(store, "ending")
        await pool.open(stock=10, segments=2)
        await asyncio.gather(*(pool.reserve(name) for name in ("first", "paid", "dropped")))
        store.hold()
        calls = [asyncio.create_task(pool.confirm("first"))]
        await until(lambda: store.batches == [3, 1])
        calls += [asyncio.create_task(pool.confirm("paid")), asyncio.create_task(pool.cancel("dropped"))]
        await turns()
        store.let_go()  # the batch is answered, and the loop ends before the next one is sent

    async def states() -> list[str]:
        pool = AsyncPool(memory, "ending")
        found = [await pool.order(name) for name in ("first", "paid", "dropped")]
        return [order.state for order in found if order is not None]

    asyncio.run(end_early())
    assert asyncio.run(states()) == ["confirmed", "confirmed", "cancelled"]


def test_a_loop_closed_during_a_batch_leaves_the_pool_usable_in_the_next(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "asyncio")  # which tells of the tasks that were left
    store = Stuck(AsyncMemoryStore())
    pool = AsyncPool(store, "two-loops")

    async def leave() -> None:
        await pool.open(stock=10, segments=2)
        await pool.reserve("before")
        store.is_stuck = True
        for _ in range(2):
            left.append(asyncio.ensure_future(pool.reserve("left")))
            await turns()

    async def go_on() -> None:
        store.is_stuck = False
        async with asyncio.timeout(SOON):
            assert isinstance(await pool.reserve("after"), Reserved)
            assert (await pool.confirm("before")).state == "confirmed"
            assert isinstance(await pool.cancel("after"), Settled)
            assert isinstance(await pool.grant("granted"), AsyncGrant)

    left: list[asyncio.Task[Any]] = []
    loop = asyncio.new_event_loop()
    loop.run_until_complete(leave())
    loop.close()
    asyncio.run(go_on())


def test_two_loops_at_a_time_are_refused_with_one_sentence() -> None:
    store = AsyncMemoryStore()
    pool = AsyncPool(store, "two-loops")

    async def begin() -> None:
        await pool.open(stock=10, segments=2)
        await pool.reserve("mine")

    async def intrude() -> None:
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: pool.reserve("theirs"),
            lambda: pool.confirm("mine"),
            lambda: pool.cancel("mine"),
            lambda: pool.grant("theirs"),
        ]
        for call in calls:
            with pytest.raises(InvalidInput, match=r"^pool 'two-loops' is in use by another event loop: make an Async"):
                await call()

    loop = asyncio.new_event_loop()
    loop.run_until_complete(begin())
    asyncio.run(intrude())
    state = loop.run_until_complete(pool.state())
    loop.close()
    assert (state.reserved, state.confirmed) == (1, 0)


def test_a_loop_that_ends_while_a_call_is_new_still_sends_the_call_of_its_cleanup(run: Run) -> None:
    async def scenario(pool: AsyncPool, _: Watched) -> None:
        async def main() -> None:
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            await pool.cancel("w")

        await pool.reserve_many([Order("v"), Order("w")])
        others, buyer = asyncio.all_tasks(), asyncio.create_task(main())
        await asyncio.sleep(0)
        asked = asyncio.create_task(pool.cancel("v"))
        await asyncio.sleep(0)
        for task in asyncio.all_tasks() - others:  # as asyncio.run does at its end
            task.cancel()
        await asyncio.gather(buyer, asked, return_exceptions=True)
        assert (await pool.state()).reserved == 0

    run(scenario)
