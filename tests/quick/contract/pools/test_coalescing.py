"""Calls that are merged into one batch, and their ends."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from math import inf
from typing import Any

import pytest

from segmented import protocol as op
from segmented.errors import InvalidInput, PoolMissing
from segmented.models import Order, Reserved, Settled, SoldOut
from segmented.plans.drivers import AsyncStore
from segmented.stock import AsyncGrant, AsyncPool
from segmented.stores.memory import AsyncMemoryStore
from tests.support.contract.pools.merged import SOON, Run, Watched, turns, until


def test_calls_that_begin_together_are_one_batch_and_have_their_own_answers(run: Run) -> None:
    async def scenario(pool: AsyncPool, store: Watched) -> None:
        before = asyncio.all_tasks()
        answers = await asyncio.gather(*(pool.reserve(f"o{index}", quantity=2) for index in range(6)))
        assert store.batches == [6]
        assert [type(answer) for answer in answers] == [Reserved] * 5 + [SoldOut]
        assert [answer.order_id for answer in answers] == [f"o{index}" for index in range(6)]
        ended = await asyncio.gather(*(pool.confirm(f"o{index}") for index in range(3)), pool.cancel("o3"))
        assert store.batches == [6, 3, 1]
        assert [answer.state for answer in ended] == ["confirmed"] * 3 + ["cancelled"]
        with pytest.raises(InvalidInput):
            await pool.reserve("bad", quantity=0)
        await turns()
        assert (store.batches, asyncio.all_tasks()) == ([6, 3, 1], before)

    run(scenario)


def test_an_idle_call_goes_out_at_once_and_the_next_gather_behind_it(run: Run) -> None:
    async def scenario(pool: AsyncPool, store: Watched) -> None:
        store.hold()
        first = asyncio.create_task(pool.reserve("first"))
        await until(lambda: store.batches == [1])
        others = [asyncio.create_task(pool.reserve(f"o{index}")) for index in range(4)]
        await turns()
        assert store.batches == [1]
        store.let_go()
        await asyncio.gather(first, *others)
        assert store.batches == [1, 4]

    run(scenario)


# --- callers that are cancelled ---


def test_those_who_were_just_answered_are_in_one_batch_with_those_who_waited(run: Run) -> None:
    async def scenario(pool: AsyncPool, store: Watched) -> None:
        async def twice(name: str) -> None:
            assert [type(await pool.reserve(name + number)) for number in "12"] == [Reserved, Reserved]

        store.hold()
        tasks = [asyncio.create_task(twice(name)) for name in "abc"]
        await until(lambda: len(store.batches) == 1)
        everybody = asyncio.gather(pool.reserve("d"), *tasks)
        store.let_go()
        await everybody
        assert store.batches == [3, 4]

    run(scenario)


def test_a_pool_that_is_not_open_is_named_to_every_caller(run: Run) -> None:
    async def scenario(_: AsyncPool, store: Watched) -> None:
        missing = AsyncPool(store, "never-opened")
        found = await asyncio.gather(missing.reserve("a"), missing.reserve("b"), return_exceptions=True)
        assert [(type(error), error.sku) for error in found] == [(PoolMissing, "never-opened")] * 2  # type: ignore[union-attr]  # PoolMissing has it
        assert str(found[0]) == str(found[1])

    run(scenario)


def test_a_call_cancelled_before_its_batch_is_not_sent(run: Run) -> None:
    async def scenario(pool: AsyncPool, store: Watched) -> None:
        store.hold()
        first = asyncio.create_task(pool.reserve("first"))
        await until(lambda: store.batches == [1])
        gone = asyncio.create_task(pool.reserve("gone", quantity=9))
        await turns()
        gone.cancel()
        store.let_go()
        await asyncio.gather(first, return_exceptions=True)
        assert isinstance(await pool.reserve("last", quantity=9), Reserved)
        assert store.cancelled == []

    run(scenario)


def test_an_order_that_was_reserved_before_is_not_taken_back(run: Run) -> None:
    async def scenario(pool: AsyncPool, store: Watched) -> None:
        await pool.reserve("mine")
        store.hold()
        gone = asyncio.create_task(pool.reserve("mine"))
        await until(lambda: store.batches == [1, 1])
        gone.cancel()
        store.let_go()
        await turns()
        await pool.reserve("other")
        assert store.cancelled == []
        assert (await pool.state()).reserved == 2

    run(scenario)


def test_a_loop_that_ends_in_the_middle_of_a_batch_ends(run: Run) -> None:
    calls: list[asyncio.Task[object]] = []

    async def scenario(pool: AsyncPool, store: Watched) -> None:
        store.hold()
        calls.append(asyncio.create_task(pool.reserve("under way")))
        await until(lambda: store.batches == [1])
        calls.append(asyncio.create_task(pool.reserve("gathered")))
        await turns()

    run(scenario)
    assert [call.cancelled() for call in calls] == [True, True]


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
