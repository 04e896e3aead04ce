"""Runs that are renewed while their body works, that a child inherits, and whose task is cancelled."""

import asyncio
import os

import pytest

from segmented import Dedup, RedisStore
from segmented.dedup import StoreEffect
from segmented.errors import InFlight, InvalidInput, StoreRefused
from tests.fixtures.stores import ASYNC, FEW_REDIS, AsyncSide, Side
from tests.real.contract.locks.test_keeper_wakes import renewed_twice
from tests.support.contract.dedup.dedup_calls import SOON, Calls
from tests.support.contract.parking import wait_until


@pytest.mark.parametrize("side", FEW_REDIS, ids=str, indirect=True)
def test_a_lease_is_renewed_while_the_body_works(side: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("segmented.locks.lease_state.RENEWALS_PER_TTL", 200)  # and a busy machine is never late
    calls = Calls(side, ttl=60)
    with calls.run("k") as run:
        wait_until(renewed_twice(run))
        with pytest.raises(InFlight):
            calls.begin("k")
        run.finish(1)


@pytest.mark.parametrize("redis_side", FEW_REDIS, ids=str, indirect=True)
def test_a_run_whose_effect_failed_goes_on_and_is_renewed(redis_side: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("segmented.locks.lease_state.RENEWALS_PER_TTL", 200)  # and a busy machine is never late
    calls = Calls(redis_side, ttl=60)
    with calls.run("k") as run:
        with pytest.raises(StoreRefused):
            run.finish_with(StoreEffect("return redis.call('INCRBY', KEYS[1], 'x')", keys=[f"points:{run.hash_tag}"]))
        wait_until(renewed_twice(run))
        assert not run.is_lost
        run.finish("another way")
    assert calls.replay("k").result == "another way"


def test_a_forked_child_cannot_end_the_run_of_its_parent_and_may_call_by_itself(valkey_url: str) -> None:
    with RedisStore.from_url(valkey_url) as store:
        dedup = Dedup(store, f"forked-{os.getpid()}")
        run = dedup.begin("mine")
        read_end, write_end = os.pipe()
        child = os.fork()
        if child == 0:
            words = []
            try:
                run.finish(1)  # type: ignore[union-attr]  # no replay
            except InvalidInput as error:
                words.append(str(error))
            try:
                words.append(str(dedup.call("other", lambda: 7)))
            finally:
                os.write(write_end, "|".join(words).encode())
                os._exit(0)
        os.waitpid(child, 0)
        said = os.read(read_end, 1_000).decode()
        os.close(read_end)
        os.close(write_end)
        assert f"belongs to process {os.getpid()}; acquire in this one|7" in said
        run.finish(2)  # type: ignore[union-attr]  # no replay
        assert (dedup.call("mine", lambda: 0), dedup.call("other", lambda: 0)) == (2, 7)


@pytest.mark.parametrize("waiting_side", ASYNC, ids=str, indirect=True)
def test_a_cancelled_task_leaves_the_key_free(waiting_side: AsyncSide) -> None:
    calls = Calls(waiting_side, keep_failures=60)

    async def scene() -> object:
        began = asyncio.Event()

        async def work() -> None:
            began.set()
            await asyncio.sleep(SOON)

        task = asyncio.create_task(calls.target.call("k", work))
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return await calls.target.call("k", lambda: asyncio.sleep(0, "again"))

    assert waiting_side.wait(scene()) == "again"


@pytest.mark.parametrize("waiting_side", ASYNC, ids=str, indirect=True)
def test_a_task_cancelled_while_its_result_is_being_kept_has_kept_it(waiting_side: AsyncSide) -> None:
    calls = Calls(waiting_side)

    async def scene() -> object:
        run = await calls.target.begin("k")

        async def body() -> None:
            async with run:
                await run.finish("kept")

        task = asyncio.create_task(body())
        await asyncio.sleep(0)  # it has begun, and sent
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return (await calls.target.begin("k")).result

    assert waiting_side.wait(scene()) == "kept"


@pytest.mark.parametrize("waiting_side", ASYNC, ids=str, indirect=True)
def test_a_task_cancelled_while_it_waits_leaves_nothing_behind(waiting_side: AsyncSide) -> None:
    calls = Calls(waiting_side)

    async def scene() -> object:
        first = await calls.target.begin("k")
        waiter = asyncio.create_task(calls.target.begin("k", timeout=None))
        while not waiting_side.store.wakeups.is_waited_for(first.claim.channel):  # noqa: ASYNC110  # nobody tells it
            await asyncio.sleep(0.001)
        waiter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiter
        await first.abandon()
        return (await calls.target.begin("k", timeout=0)).is_replay

    assert waiting_side.wait(scene()) is False
