"""Deduplicated calls whose replies get lost, through a proxy before the real server."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from segmented.dedup import RunLost, StoreEffect
from segmented.errors import InFlight, StoreRefused, StoreUnavailable
from segmented.protocol.wire import load_script
from tests.fixtures.stores import REDIS, AsyncSide, Side
from tests.real.contract.locks.test_keeper_wakes import renewed_twice
from tests.support.contract.dedup.dedup_calls import SOON, Calls, Work
from tests.support.contract.parking import wait_until

if TYPE_CHECKING:
    from tests.support.proxy import Proxy

BEGIN, FINISH, ABANDON = (load_script(name).sha.encode() for name in ("begin_run", "finish_run", "abandon_run"))
ADD = "return redis.call('INCRBY', KEYS[1], ARGV[1])"


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


def test_a_finish_that_is_never_answered_raises_and_the_outcome_stands(far_side: Side, proxy: Proxy) -> None:
    """Nothing else may be said of the run then: neither that it failed, nor that it was abandoned."""
    calls, work = Calls(far_side, keep_failures=60, ttl=2), Work()
    proxy.swallow_replies(100, to=FINISH)
    with pytest.raises(StoreUnavailable):
        calls.call("k", lambda: "first")
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


def test_a_finish_that_never_arrives_leaves_the_key_to_its_lease(far_side: Side, proxy: Proxy) -> None:
    calls, work = Calls(far_side, ttl=2), Work()
    run = calls.run("k")
    proxy.vanish()
    with pytest.raises(StoreUnavailable):
        run.finish(7)
    proxy.come_back()
    assert calls.call("k", work, timeout=SOON) == 1
    with pytest.raises(RunLost):
        run.finish(7)


def test_an_effect_whose_reply_was_lost_is_done_once(far_side: Side, proxy: Proxy) -> None:
    calls = Calls(far_side)
    with calls.run("k") as run:
        name = f"points:{run.hash_tag}"
        proxy.swallow_replies(1, to=name.encode())
        assert run.finish_with(StoreEffect(ADD, keys=[name], arguments=[10])) == 10
    assert (proxy.swallowed, far_side.raw().get(name), calls.replay("k").result) == (1, "10", 10)


def test_an_abandon_that_was_not_answered_is_not_followed_by_another_word(far_side: Side, proxy: Proxy) -> None:
    calls = Calls(far_side, keep_failures=60, ttl=2)
    proxy.swallow_replies(100, to=ABANDON)
    with pytest.raises(StoreUnavailable), calls.run("k") as run:
        run.abandon()
    proxy.swallow_replies(0, to=ABANDON)
    calls.run("k").abandon()  # no failure was kept


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
    assert calls.call("k", work, timeout=SOON) == 1


def test_a_run_whose_effect_was_refused_late_is_renewed_again(
    far_side: Side, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The keeper has looked meanwhile, and found nothing to renew."""
    monkeypatch.setattr("segmented.locks.lease_state.RENEWALS_PER_TTL", 40)  # every 1.5 s
    calls = Calls(far_side, ttl=60)
    with calls.run("k") as run:
        name = f"points:{run.hash_tag}"
        proxy.hold_next(name.encode())
        effect = StoreEffect("return redis.call('INCRBY', KEYS[1], 'x')", keys=[name])
        refused = far_side.start(lambda: run.finish_with(effect))
        assert proxy.holding.wait(SOON)
        far_side.pass_time(2.4)
        proxy.let_go()
        with pytest.raises(StoreRefused):
            refused.result(SOON)
        wait_until(renewed_twice(run))
        assert not run.is_lost
        run.finish("another way")


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
