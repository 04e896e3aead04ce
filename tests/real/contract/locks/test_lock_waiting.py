"""Waiting for a lock: woken, never polling, never later than asked. The ids are the rows of the catalogue."""

from __future__ import annotations

import threading
import time
from concurrent.futures import wait
from functools import partial
from typing import TYPE_CHECKING

import pytest
import redis

from segmented import protocol as op
from segmented.clock import SystemClock
from segmented.errors import AcquireTimeout, LeaseLost
from segmented.keys import lock_keys
from segmented.locks.lock import LockClaim
from segmented.stores.redis import async_listener, listener
from tests.fixtures.stores import REDIS, Side, make_side
from tests.support.contract.parking import has_come_to_rest, lines_of, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Future

    from segmented.locks import Lease
    from tests.support.contract.parking import CountScripts
    from tests.support.flavour import Flavour

BOTH_COLOURS = [REDIS[0], REDIS[-1]]
LONG = 600.0
PATIENCE = 60.0
SOON = 30.0
"""A bound for what takes milliseconds, generous on a busy machine and far below LONG."""


@pytest.fixture(params=BOTH_COLOURS, ids=str)
def two_sides(request: pytest.FixtureRequest, valkey_url: str) -> Iterator[tuple[Side, Side]]:
    """Two processes' worth of stores on one server."""
    first, second = (make_side(request.param, SystemClock(), valkey_url) for _ in range(2))
    yield first, second
    first.close()
    second.close()


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


def test_a_waiter_is_woken_by_the_release_of_another_process(two_sides: tuple[Side, Side]) -> None:
    ours, theirs = two_sides
    name = ours.name("lock")
    held = theirs.lock(name, ttl=LONG).acquire(timeout=0)
    (waiter,) = start_waiting(ours, name)
    held.release()
    waiter.result(SOON).release()


def test_those_who_wait_in_one_process_are_served_in_the_order_of_their_arrival(waiting_side: Side) -> None:
    name = waiting_side.name("lock")
    held = waiting_side.lock(name, ttl=LONG).acquire(timeout=0)
    waiters = start_waiting(waiting_side, name, 5)
    for index in range(5):
        held.release()
        held = waiters[index].result(SOON)
        assert [waiter.done() for waiter in waiters] == [True] * (index + 1) + [False] * (4 - index)
    held.release()


def test_d3_the_next_in_line_too_learns_when_a_dead_holders_lease_ends(waiting_side: Side) -> None:
    name = waiting_side.name("lock")
    held = waiting_side.lock(name, ttl=LONG).acquire(timeout=0)
    dying = waiting_side.lock(name, ttl=0.5)
    first = waiting_side.start(lambda: dying.acquire(timeout=PATIENCE))
    wait_until(lambda: has_come_to_rest(waiting_side.store, 1))
    second = waiting_side.start(lambda: waiting_side.lock(name, ttl=LONG).acquire(timeout=PATIENCE))
    wait_until(lambda: has_come_to_rest(waiting_side.store, 2))
    held.release()
    assert isinstance(first.exception(SOON), LeaseLost | None)  # on a machine that stood still it ended before it came
    second.result(SOON).release()


@pytest.mark.parametrize("flavour", BOTH_COLOURS, ids=str)
def test_d4_a_wait_ends_on_time_though_races_are_lost_again_and_again(flavour: Flavour, valkey_url: str) -> None:
    side = make_side(flavour, SystemClock(), valkey_url)
    name, ended = side.name("lock"), threading.Event()
    side.lock(name, ttl=LONG).acquire(timeout=0)

    def call_it_free() -> None:
        while not ended.wait(0.003):
            side.raw().publish(lock_keys(name).freed, "freed")

    liar = side.start(call_it_free)
    began = time.monotonic()
    with pytest.raises(AcquireTimeout, match=f"^lock '{name}' was not free within 0.4 s$"):
        side.lock(name, ttl=LONG).acquire(timeout=0.4)
    seconds = time.monotonic() - began
    ended.set()
    liar.result(SOON)
    side.close()
    assert seconds >= 0.4


def test_d4_everyone_in_line_is_told_at_the_deadline(waiting_side: Side) -> None:
    name = waiting_side.name("lock")
    waiting_side.lock(name, ttl=LONG).acquire(timeout=0)
    lock = waiting_side.lock(name, ttl=LONG)
    began = time.monotonic()
    waiters = [waiting_side.start(lambda: lock.acquire(timeout=0.2)) for _ in range(10)]
    errors = [waiter.exception(SOON) for waiter in waiters]
    assert [type(error) for error in errors] == [AcquireTimeout] * 10
    assert time.monotonic() - began >= 0.2
    assert lines_of(waiting_side.store) == {}


def test_d1_a_waiter_asks_when_it_comes_and_once_it_would_hear_of_a_release_and_then_sleeps(
    redis_side: Side, monkeypatch: pytest.MonkeyPatch, count_scripts: CountScripts
) -> None:
    monkeypatch.setattr(LockClaim, "look_seconds", LONG)  # no check for a vanished key is counted
    name = redis_side.name("lock")
    held = redis_side.lock(name, ttl=LONG).acquire(timeout=0)
    scripts = count_scripts(redis_side.raw(), name)
    (waiter,) = start_waiting(redis_side, name)
    assert wait([waiter], timeout=0.1).done == set()
    assert scripts() == 2
    held.release()
    waiter.result(SOON).release()


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


def test_d9_a_waiter_that_lost_its_subscription_does_not_spin(
    redis_side: Side, monkeypatch: pytest.MonkeyPatch, count_scripts: CountScripts
) -> None:
    monkeypatch.setattr(LockClaim, "look_seconds", LONG)  # no check for a vanished key is counted
    name, server = redis_side.name("lock"), redis_side.raw()
    held = redis_side.lock(name, ttl=LONG).acquire(timeout=0)
    (waiter,) = start_waiting(redis_side, name)
    scripts = count_scripts(server, name)
    server.client_kill_filter(_type="pubsub")
    assert wait([waiter], timeout=0.3).done == set()
    assert scripts() <= 2
    held.release()
    waiter.result(SOON).release()


@pytest.mark.parametrize("flavour", BOTH_COLOURS, ids=str)
def test_d10_two_hundred_locks_waited_on_at_once_share_a_subscription_and_leave_none(
    flavour: Flavour, private_valkey_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (listener, async_listener):
        monkeypatch.setattr(module, "LINGER_SECONDS", 0.05)
        monkeypatch.setattr(module, "POLL_SECONDS", 0.02)
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


def test_d16_of_a_hundred_waiters_one_release_wakes_one_and_costs_two_scripts(
    two_sides: tuple[Side, Side], monkeypatch: pytest.MonkeyPatch, count_scripts: CountScripts
) -> None:
    monkeypatch.setattr(LockClaim, "look_seconds", LONG)  # no check for a vanished key is counted
    side, _ = two_sides
    name = side.name("lock")
    held = side.lock(name, ttl=LONG).acquire(timeout=0)
    waiters = start_waiting(side, name, 100)
    scripts = count_scripts(side.raw(), name)
    held.release()
    lease = waiters[0].result(SOON)
    assert wait(waiters[1:], timeout=0.1).done == set()
    assert scripts() == 2
    for waiter in waiters[1:]:
        lease.release()
        lease = waiter.result(SOON)
    lease.release()
    assert scripts() == 2 * 100 + 1


def test_d16_a_release_goes_to_a_waiter_of_its_process_and_wakes_no_other_one(
    two_sides: tuple[Side, Side], monkeypatch: pytest.MonkeyPatch, count_scripts: CountScripts
) -> None:
    monkeypatch.setattr(LockClaim, "look_seconds", LONG)  # no check for a vanished key is counted
    ours, theirs = two_sides
    name = ours.name("lock")
    held = ours.lock(name, ttl=LONG).acquire(timeout=0)
    waiters = [*start_waiting(ours, name, 10), *start_waiting(theirs, name, 10)]
    scripts = count_scripts(ours.raw(), name)
    held.release()
    wait_until(lambda: sum(waiter.done() for waiter in waiters) == 1)
    assert wait(waiters, timeout=0.1, return_when="ALL_COMPLETED").not_done
    assert scripts() == 2
    for _ in range(20):
        (done,) = [waiter for waiter in waiters if waiter.done()]
        waiters.remove(done)
        done.result().release()
        wait_until(lambda: not waiters or any(waiter.done() for waiter in waiters))


def test_a_waiter_whose_turn_comes_as_its_time_ends_passes_the_wake_up_on(waiting_side: Side) -> None:
    name = waiting_side.name("lock")
    held = waiting_side.lock(name, ttl=LONG).acquire(timeout=0)
    hurried = waiting_side.start(lambda: waiting_side.lock(name, ttl=LONG).acquire(timeout=0.1))
    wait_until(lambda: is_at_rest(waiting_side, [hurried]))
    patient = waiting_side.start(lambda: waiting_side.lock(name, ttl=LONG).acquire(timeout=PATIENCE))
    assert isinstance(hurried.exception(SOON), AcquireTimeout)
    held.release()
    patient.result(SOON).release()


def test_nobody_waits_for_a_lock_that_is_free(waiting_side: Side) -> None:
    name, before = waiting_side.name("lock"), listeners(waiting_side)
    waiting_side.lock(name, ttl=LONG).acquire(timeout=PATIENCE).release()
    assert lines_of(waiting_side.store) == {}
    assert listeners(waiting_side) <= before


def listeners(side: Side) -> set[object]:
    """Return the channels of the listeners that a server has; those of earlier tests may only just end."""
    return set() if side.server is None else {*side.server.pubsub_channels("seg:listener:*")}


def test_an_acquire_that_does_not_wait_is_one_script_and_a_release_another(
    redis_side: Side, count_scripts: CountScripts
) -> None:
    name = redis_side.name("lock")
    redis_side.lock(name, ttl=LONG).acquire(timeout=PATIENCE).release()
    scripts = count_scripts(redis_side.raw(), name)
    redis_side.lock(name, ttl=LONG).acquire(timeout=PATIENCE).release()
    assert scripts() == 2


def test_a_waiter_stops_at_the_loss_of_the_server_with_a_clear_error(redis_side: Side) -> None:
    name = redis_side.name("lock")
    redis_side.execute(op.AcquireLock(name, "h", 60_000))
    (waiter,) = start_waiting(redis_side, name, timeout=0.5)
    assert isinstance(waiter.exception(SOON), AcquireTimeout)
