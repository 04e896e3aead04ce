"""Deduplicated calls whose replies get lost, through a proxy before the real server."""

import asyncio

import pytest
import redis

from segmented import AsyncRedisStore
from segmented.dedup import AsyncDedup
from segmented.errors import InFlight, StoreUnavailable
from segmented.protocol.wire import load_script
from segmented.servers import ValkeyServer
from tests.fixtures.stores import REDIS, AsyncSide, Side
from tests.support.contract.dedup.dedup_calls import SOON, Calls, Work
from tests.support.proxy import Proxy

BEGIN, FINISH, ABANDON = (load_script(name).sha.encode() for name in ("begin_run", "finish_run", "abandon_run"))


def test_a_beginning_whose_reply_was_lost_is_one_run(far_side: Side, proxy: Proxy) -> None:
    calls, work = Calls(far_side), Work()
    proxy.swallow_replies(1, to=BEGIN)
    assert (calls.call("k", work), calls.call("k", work), proxy.swallowed, work.done) == (1, 1, 1, 1)


def test_a_beginning_that_is_never_answered_raises_and_leaves_the_key_free(far_side: Side, proxy: Proxy) -> None:
    calls, work = Calls(far_side), Work()
    proxy.swallow_replies(100, to=BEGIN)
    with pytest.raises(StoreUnavailable):
        calls.call("k", work)
    proxy.swallow_replies(0, to=BEGIN)
    assert work.done == 0
    assert calls.call("k", work) == 1


def test_a_finish_whose_reply_was_lost_is_no_loss(far_side: Side, proxy: Proxy) -> None:
    calls, work = Calls(far_side), Work()
    proxy.swallow_replies(1, to=FINISH)
    assert (calls.call("k", work), proxy.swallowed, calls.call("k", work), work.done) == (1, 1, 1, 1)


def test_a_call_whose_finish_is_never_answered_is_done_and_its_outcome_stands(far_side: Side, proxy: Proxy) -> None:
    """Nothing else may be said of the run then: neither that it failed, nor that it was abandoned."""
    calls, work = Calls(far_side, keep_failures=60, ttl=2), Work()
    proxy.swallow_replies(100, to=FINISH)
    assert calls.call("k", lambda: "first") == "first"
    proxy.swallow_replies(0, to=FINISH)
    assert (calls.call("k", work), work.done) == ("first", 0)


def test_a_finish_may_be_tried_again_after_it_was_not_answered(far_side: Side, proxy: Proxy) -> None:
    calls = Calls(far_side, ttl=2)
    run = calls.run("k")
    proxy.swallow_replies(100, to=FINISH)
    with pytest.raises(StoreUnavailable):
        run.finish(7)
    proxy.swallow_replies(0, to=FINISH)
    run.finish(7)
    assert (run.has_ended, calls.replay("k").result) == (True, 7)


@pytest.mark.parametrize("way", ["finish", "abandon"])
def test_an_end_that_never_arrived_is_not_followed_by_a_failure_that_would_be_kept(
    far_side: Side, proxy: Proxy, way: str
) -> None:
    calls, work = Calls(far_side, keep_failures=60, ttl=2), Work()
    with pytest.raises(StoreUnavailable), calls.run("k") as run:  # noqa: PT012  # the body is what is tested
        proxy.vanish()
        try:
            getattr(run, way)()
        finally:
            proxy.come_back()
    assert calls.call("k", work, timeout=SOON) == (None if way == "finish" else 1)


@pytest.mark.parametrize("far_side", [REDIS[-1]], ids=str, indirect=True)
def test_a_task_cancelled_while_its_finish_waits_for_the_reply_has_kept_it(far_side: AsyncSide, proxy: Proxy) -> None:
    calls = Calls(far_side)

    async def scene() -> None:
        run = await calls.target.begin("k")
        proxy.hold_replies(FINISH)
        task = asyncio.create_task(run.finish("kept"))
        await asyncio.to_thread(proxy.holding.wait, SOON)
        task.cancel()
        await asyncio.sleep(0)
        proxy.let_go()
        with pytest.raises(asyncio.CancelledError):
            await task

    far_side.wait(scene())
    assert calls.replay("k").result == "kept"


def test_a_call_is_refused_while_the_store_is_away_and_nothing_runs(far_side: Side, proxy: Proxy) -> None:
    calls, work = Calls(far_side), Work()
    proxy.vanish()
    with pytest.raises(StoreUnavailable):
        calls.call("k", work)
    proxy.come_back()
    assert work.done == 0
    with calls.run("k"), pytest.raises(InFlight):
        calls.begin("k")


def test_a_finish_that_is_cancelled_while_the_server_is_slow_is_kept_all_the_same(valkey: ValkeyServer) -> None:
    async def work() -> str:
        return "second"

    async def repeated() -> str:
        async with await AsyncRedisStore.from_url(valkey.url) as store:
            dedup = AsyncDedup(store, "app", ttl=6)
            run = await dedup.begin("k")
            assert not run.is_replay
            with redis.Redis.from_url(valkey.url) as server:
                server.client_pause(1_500)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(run.finish("first"), 0.3)
            return await dedup.call("k", work, timeout=100)

    assert asyncio.run(repeated()) == "first"
