"""Concurrent calls of one event loop go to the server in batches, and nobody can tell by the answers."""

from __future__ import annotations

import asyncio
import logging

import pytest

from segmented.errors import InvalidInput, OrderMismatch, OrderUnknown, PoolMissing, StoreUnavailable
from segmented.models import Order, Reserved, Settled, SoldOut
from segmented.stock import AsyncPool
from tests.support.contract.pools.merged import Run, Watched, turns, until


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


def test_five_hundred_gathered_calls_do_not_wait_for_the_batch_before_them(run: Run) -> None:
    async def scenario(pool: AsyncPool, store: Watched) -> None:
        store.hold()
        first = asyncio.create_task(pool.reserve("first"))
        await until(lambda: store.batches == [1])
        crowd = [asyncio.create_task(pool.reserve(f"o{index}")) for index in range(1_250)]
        await until(lambda: store.batches == [1, 500])
        await turns()
        assert store.batches == [1, 500]  # two at a time
        store.let_go()
        answers = await asyncio.gather(first, *crowd)
        assert sum(isinstance(answer, Reserved) for answer in answers) == 10
        assert max(store.batches) == 500
        assert sum(store.batches) == 1_251

    run(scenario)


def test_an_order_that_comes_twice_in_a_batch_is_a_repeat_and_a_mismatch_is_its_own(run: Run) -> None:
    async def scenario(pool: AsyncPool, store: Watched) -> None:
        calls = (pool.reserve("a"), pool.reserve("a"), pool.reserve("a", quantity=2), pool.reserve("b"))
        first, second, third, fourth = await asyncio.gather(*calls, return_exceptions=True)
        assert store.batches == [4]
        assert isinstance(first, Reserved)
        assert isinstance(second, Reserved)
        assert (first.replay, second.replay) == (False, True)
        assert isinstance(third, OrderMismatch)
        assert isinstance(fourth, Reserved)
        unknown, confirmed = await asyncio.gather(pool.confirm("nobody's"), pool.confirm("b"), return_exceptions=True)
        assert isinstance(unknown, OrderUnknown)
        assert isinstance(confirmed, Settled)

    run(scenario)


def test_a_store_that_is_away_is_every_callers_own_failure_and_the_next_call_works(run: Run) -> None:
    async def scenario(pool: AsyncPool, store: Watched) -> None:
        store.is_away = True
        found = await asyncio.gather(*(pool.reserve(f"o{index}") for index in range(3)), return_exceptions=True)
        assert [type(error) for error in found] == [StoreUnavailable] * 3
        assert len({id(error) for error in found}) == 3
        assert len({str(error) for error in found}) == 1
        store.is_away = False
        assert isinstance(await pool.reserve("o0"), Reserved)

    run(scenario)


def test_a_pool_that_is_not_open_is_named_to_every_caller(run: Run) -> None:
    async def scenario(_: AsyncPool, store: Watched) -> None:
        missing = AsyncPool(store, "never-opened")
        found = await asyncio.gather(missing.reserve("a"), missing.reserve("b"), return_exceptions=True)
        assert [(type(error), error.sku) for error in found] == [(PoolMissing, "never-opened")] * 2  # type: ignore[union-attr]  # PoolMissing has it
        assert str(found[0]) == str(found[1])

    run(scenario)


def test_orders_that_lapsed_holds_keep_waiting_are_asked_for_again(run: Run) -> None:
    async def scenario(_: AsyncPool, store: Watched) -> None:
        brief, pool = AsyncPool(store, "lapsing", ttl=0.001, hold=0.001), AsyncPool(store, "lapsing")
        await pool.open(stock=400, segments=3)
        await brief.reserve_many([Order(f"brief-{index}", 1) for index in range(400)])
        store.clock.advance(0.01)
        store.batches.clear()
        answers = await asyncio.gather(*(pool.reserve(f"o{index}") for index in range(400)))
        assert {type(answer) for answer in answers} == {Reserved}
        assert store.batches[0] == 400
        assert len(store.batches) > 1  # one step gives back 160
        assert (await pool.audit()).is_clean

    run(scenario)


# --- callers that are cancelled ---


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


def test_what_was_reserved_for_a_cancelled_call_is_given_back_and_logged(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "segmented.stock")

    async def scenario(pool: AsyncPool, store: Watched) -> None:
        store.hold()
        gone = asyncio.create_task(pool.reserve("gone", quantity=9))
        stays = asyncio.create_task(pool.reserve("stays"))
        await until(lambda: store.batches == [2])
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone  # at once: the server has not answered yet
        store.let_go()
        assert isinstance(await stays, Reserved)
        await until(lambda: "reservations.given_back" in caplog.text)
        assert store.cancelled == [("gone",)]
        state = await pool.state()
        assert (state.available, state.reserved) == (9, 1)

    run(scenario)


def test_another_living_caller_for_the_same_order_keeps_it(run: Run) -> None:
    async def scenario(pool: AsyncPool, store: Watched) -> None:
        store.hold()
        gone, beside = (asyncio.create_task(pool.reserve("shared")) for _ in range(2))
        await until(lambda: store.batches == [2])
        again = asyncio.create_task(pool.reserve("later"))
        lost = asyncio.create_task(pool.reserve("later"))
        await turns()
        gone.cancel()
        store.let_go()
        assert isinstance(await beside, Reserved)
        lost.cancel()
        assert isinstance(await again, Reserved)
        await turns()
        assert store.cancelled == []
        assert (await pool.state()).reserved == 2

    run(scenario)


def test_a_repeat_that_waits_takes_over_what_its_cancelled_call_got(run: Run) -> None:
    async def scenario(pool: AsyncPool, store: Watched) -> None:
        store.hold()
        gone = asyncio.create_task(pool.reserve("a", quantity=10))
        await until(lambda: store.batches == [1])
        again = asyncio.create_task(pool.reserve("a", quantity=10))
        await turns()
        gone.cancel()
        store.let_go()
        answer = await again
        assert isinstance(answer, Reserved)
        assert answer.replay
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


def test_callers_whose_batch_is_shut_down_do_not_wait_for_ever(run: Run) -> None:
    async def scenario(pool: AsyncPool, store: Watched) -> None:
        store.hold()
        before = asyncio.all_tasks()
        calls = [asyncio.create_task(pool.reserve("under way"))]
        await until(lambda: store.batches == [1])
        calls.append(asyncio.create_task(pool.reserve("gathered")))
        await turns()
        for task in asyncio.all_tasks() - before - {*calls}:
            task.cancel()
        found = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(error) for error in found] == [asyncio.CancelledError] * 2
        store.let_go()
        assert isinstance(await pool.reserve("afterwards"), Reserved)

    run(scenario)
