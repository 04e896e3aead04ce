"""Waiting for a fair lock: the gap before the subscription, and connections that break."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import redis

from segmented.clock import SystemClock
from segmented.errors import AcquireTimeout, LockUnreachable, StoreUnavailable
from segmented.keys import fair_keys
from segmented.locks.fair import TIMES
from tests.fixtures.stores import Side, make_side
from tests.real.contract.locks import test_fair_waiting
from tests.real.contract.locks.test_fair_waiting import (
    BOTH_COLOURS,
    PATIENCE,
    SLOW,
    SOON,
    let_times_be,
    made,
    start_waiting,
)
from tests.support.contract.parking import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.flavour import Flavour
    from tests.support.proxy import RedisProxy

CLAIM_SECONDS = TIMES.claim_ms / 1000

slow_times = test_fair_waiting.slow_times


@pytest.fixture(params=BOTH_COLOURS, ids=str)
def far_side(request: pytest.FixtureRequest, proxy: RedisProxy, valkey_url: str) -> Iterator[Side]:
    """A store behind the proxy."""
    flavour: Flavour = request.param
    side = make_side(flavour, SystemClock(), proxy.url)
    side.raw().close()
    side.server = redis.Redis.from_url(valkey_url, decode_responses=True)
    yield side
    proxy.let_go()
    side.close()


def test_d1_a_release_before_the_subscription_is_not_missed_and_costs_no_place(
    far_side: Side, proxy: RedisProxy, plain_redis_side: Side
) -> None:
    name = far_side.name("lock")
    near = plain_redis_side
    held = made(near, name).acquire(timeout=0)
    proxy.hold(rb"\nSUBSCRIBE\r")
    first = far_side.start(lambda: made(far_side, name).acquire(timeout=PATIENCE))
    assert proxy.holding.wait(SOON)
    second = start_waiting(near, made(near, name))
    held.release()
    threading.Event().wait(0.1)
    proxy.let_go()
    lease = first.result(SOON)
    assert not second.done()
    lease.release()
    second.result(SOON).release()


def test_a_waiter_in_the_gap_that_never_comes_costs_the_claim_and_no_more(
    far_side: Side, proxy: RedisProxy, plain_redis_side: Side, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_times_be(replace(SLOW, claim_ms=TIMES.claim_ms), monkeypatch)
    name = far_side.name("lock")
    near = plain_redis_side
    held = made(near, name).acquire(timeout=0)
    proxy.hold(rb"\nSUBSCRIBE\r")
    lost = far_side.start(lambda: made(far_side, name).acquire(timeout=12.0))
    assert proxy.holding.wait(SOON)
    second = start_waiting(near, made(near, name))
    proxy.vanish()
    began = time.monotonic()
    held.release()
    second.result(SOON).release()
    assert time.monotonic() - began > CLAIM_SECONDS - 0.5
    assert isinstance(lost.exception(PATIENCE), StoreUnavailable | AcquireTimeout)


def test_dead_waiters_at_the_head_are_passed_over_in_the_step_of_the_release(
    far_side: Side, proxy: RedisProxy, plain_redis_side: Side
) -> None:
    name = far_side.name("lock")
    near, server = plain_redis_side, plain_redis_side.raw()
    held = made(near, name).acquire(timeout=0)
    dead = [start_waiting(far_side, made(far_side, name), timeout=12.0) for _ in range(50)]
    living = start_waiting(near, made(near, name))
    turns = f"{fair_keys(name).turn}:*"
    assert len(server.pubsub_channels(turns)) == 51
    proxy.vanish()
    wait_until(lambda: len(server.pubsub_channels(turns)) == 1)
    held.release()
    lease = living.result(SOON)
    assert server.zcard(fair_keys(name).queue) == 0
    lease.release()
    assert {type(waiter.exception(PATIENCE)) for waiter in dead} <= {LockUnreachable, AcquireTimeout}


def test_d9_a_waiter_whose_subscription_broke_and_was_made_again_has_its_place(
    far_side: Side, proxy: RedisProxy, plain_redis_side: Side
) -> None:
    name = far_side.name("lock")
    near, server = plain_redis_side, plain_redis_side.raw()
    held = made(near, name).acquire(timeout=0)
    first = start_waiting(far_side, made(far_side, name))
    second, third = (start_waiting(near, made(near, name)) for _ in range(2))
    turns = f"{fair_keys(name).turn}:*"
    proxy.vanish()
    wait_until(lambda: len(server.pubsub_channels(turns)) == 2)
    held.release()
    held = second.result(SOON)  # the first could not be reached
    proxy.come_back()
    wait_until(lambda: len(server.pubsub_channels(turns)) == 3 or first.done())
    wait_until(lambda: server.zrange(fair_keys(name).queue, 0, -1, withscores=True)[0][1] == 1.0)
    held.release()
    held = first.result(SOON)
    assert not third.done()
    held.release()
    third.result(SOON).release()


def test_an_acquire_whose_reply_was_lost_keeps_its_place_and_its_turn(
    far_side: Side, proxy: RedisProxy, plain_redis_side: Side
) -> None:
    name = far_side.name("lock")
    near = plain_redis_side
    held = made(near, name).acquire(timeout=0)
    lock = made(far_side, name)
    proxy.swallow_replies(1, to=b"EVAL")
    first = start_waiting(far_side, lock)
    second = start_waiting(near, made(near, name))
    proxy.swallow_replies(1, to=b"EVAL")
    held.release()
    lease = first.result(SOON)
    assert proxy.swallowed == 2
    assert not second.done()
    proxy.swallow_replies(1, to=b"EVAL")
    lease.release()
    assert not lease.is_lost
    second.result(SOON).release()
