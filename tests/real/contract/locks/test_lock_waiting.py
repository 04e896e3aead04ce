"""Waiting for a lock: woken, never polling, never later than asked. The ids are the rows of the catalogue."""

from concurrent.futures import Future
from functools import partial

import pytest
import redis

from segmented.clock import SystemClock
from segmented.keys import lock_keys
from segmented.locks import Lease
from segmented.stores.redis import listener
from tests.fixtures.stores import REDIS, Side, make_side
from tests.support.contract.parking import has_come_to_rest, wait_until
from tests.support.flavour import Flavour

BOTH_COLOURS = [REDIS[0], REDIS[-1]]
LONG = 600.0
PATIENCE = 600.0
SOON = 120.0
"""A bound for what takes milliseconds, generous on a busy machine and far below LONG."""


def start_waiting(side: Side, name: str, waiters: int = 1, *, timeout: float = PATIENCE) -> list[Future[Lease]]:
    """Start acquires that find the lock taken, one after another, and return once they have all come to rest."""
    lock = side.lock(name, ttl=LONG)
    started: list[Future[Lease]] = []
    for _ in range(waiters):
        started.append(side.start(lambda: lock.acquire(timeout=timeout)))
        wait_until(partial(is_at_rest, side, started))
    return started


def is_at_rest(side: Side, started: list[Future[Lease]]) -> bool:
    """Return whether all have come to rest. One whose time was over before that has ended, on a busy machine."""
    return has_come_to_rest(side.store, len(started)) or started[-1].done()


def test_a_waiter_is_woken_by_the_release(waiting_side: Side) -> None:
    name = waiting_side.name("lock")
    held = waiting_side.lock(name, ttl=LONG).acquire(timeout=0)
    (waiter,) = start_waiting(waiting_side, name)
    held.release()
    lease = waiter.result(SOON)
    assert lease.fencing_token > held.fencing_token


@pytest.mark.parametrize("is_heard", [True, False], ids=["release-after", "release-at-once"])
def test_d9_a_waiter_survives_the_loss_of_its_subscription(redis_side: Side, *, is_heard: bool) -> None:
    name, server = redis_side.name("lock"), redis_side.raw()
    held = redis_side.lock(name, ttl=LONG).acquire(timeout=0)
    (waiter,) = start_waiting(redis_side, name)
    channel = lock_keys(name).freed
    assert server.client_kill_filter(_type="pubsub") >= 1
    if is_heard:
        wait_until(lambda: dict(server.pubsub_numsub(channel)) == {channel: 1})
    held.release()
    waiter.result(SOON).release()


@pytest.mark.parametrize("flavour", BOTH_COLOURS, ids=str)
def test_d10_two_hundred_locks_waited_on_at_once_share_a_subscription_and_leave_none(
    flavour: Flavour, private_valkey_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "LINGER_SECONDS", 0.05)
    monkeypatch.setattr(listener, "POLL_SECONDS", 0.02)
    side = make_side(flavour, SystemClock(), private_valkey_url)
    server, names = side.raw(), [side.name("lock") for _ in range(200)]
    held = [side.lock(name, ttl=LONG).acquire(timeout=0) for name in names]
    waiters = [side.start(lambda name=name: side.lock(name, ttl=LONG).acquire(timeout=PATIENCE)) for name in names]  # type: ignore[misc]  # a default argument
    wait_until(lambda: has_come_to_rest(side.store, 200))
    assert len(server.pubsub_channels("*")) == 201
    assert len(server.client_list(_type="pubsub")) == 1
    for lease in held:
        lease.release()
    for waiter in waiters:
        waiter.result(SOON).release()
    wait_until(lambda: len(server.pubsub_channels("*")) == 1)
    side.close()
    wait_until(lambda: server_is_left_alone(private_valkey_url))


def server_is_left_alone(url: str) -> bool:
    with redis.Redis.from_url(url) as server:
        return not server.pubsub_channels("*") and not server.client_list(_type="pubsub")
