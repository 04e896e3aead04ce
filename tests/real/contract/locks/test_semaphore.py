"""Up to N holders of one name, on every store and in both colours."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
import redis

from segmented import protocol as op
from segmented.clock import SystemClock
from segmented.errors import AcquireTimeout, InvalidInput, LeaseLost, PermitsMismatch, WrongKind
from segmented.keys import lock_keys
from segmented.locks import AsyncSemaphore, Semaphore
from segmented.locks.semaphore import PERMITS_MAX, PermitClaim
from segmented.models import Acquired, Held, Lost
from segmented.stores.memory import MemoryStore
from segmented.stores.redis import AsyncRedisStore, RedisStore
from tests.fixtures.stores import REDIS, Side, make_side
from tests.support.contract.locks.shared import LONG, PATIENCE, SOON, book, let_lapse, room, start_waiting
from tests.support.contract.parking import has_come_to_rest, lines_of, parked, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Future

    from segmented.locks import Lease
    from tests.support.contract.parking import CountScripts
    from tests.support.proxy import RedisProxy

BOTH_COLOURS = [REDIS[0], REDIS[-1]]


@pytest.fixture(params=BOTH_COLOURS, ids=str)
def two_sides(request: pytest.FixtureRequest, valkey_url: str) -> Iterator[tuple[Side, Side]]:
    """Two processes' worth of stores on one server."""
    first, second = (make_side(request.param, SystemClock(), valkey_url) for _ in range(2))
    yield first, second
    first.close()
    second.close()


def release_all(waiters: list[Future[Lease]]) -> None:
    """Release each waiter's lease as soon as it gets one."""
    while waiters:
        wait_until(lambda: any(waiter.done() for waiter in waiters))
        for done in [waiter for waiter in waiters if waiter.done()]:
            waiters.remove(done)
            done.result().release()


# --- permits ---


def test_there_are_as_many_permits_as_were_said_and_no_more(side: Side) -> None:
    semaphore = room(side, side.name("room"), permits=3)
    leases = [semaphore.acquire(timeout=0) for _ in range(3)]
    assert semaphore.try_acquire() is None
    leases[1].release()
    again = semaphore.acquire(timeout=0)
    assert semaphore.try_acquire() is None
    for lease in (leases[0], leases[2], again):
        lease.release()


def test_tokens_order_the_permits(side: Side) -> None:
    semaphore = room(side, side.name("room"), permits=3)
    tokens = []
    for _ in range(2):
        leases = [semaphore.acquire(timeout=0) for _ in range(3)]
        tokens += [lease.fencing_token for lease in leases]
        for lease in leases:
            lease.release()
    assert tokens == sorted(set(tokens))


def test_a_dead_holders_permit_comes_back_at_its_end(side: Side) -> None:
    name = side.name("room")
    living, dead = (room(side, name, permits=2).acquire(timeout=0) for _ in range(2))
    assert room(side, name, permits=2).try_acquire() is None
    let_lapse(side, dead)
    new = room(side, name, permits=2).acquire(timeout=0)
    assert room(side, name, permits=2).try_acquire() is None
    with pytest.raises(LeaseLost):
        dead.release()
    assert room(side, name, permits=2).try_acquire() is None
    living.release()
    new.release()


def test_a_permit_is_renewed_and_its_end_is_pushed_out(side: Side) -> None:
    name = side.name("room")
    lease = room(side, name, permits=1, ttl=60.0).acquire(timeout=0)
    lease.renew(ttl=LONG)
    held = side.execute(op.AcquirePermit(name, "other", 60_000, 1))
    assert isinstance(held, Held)
    assert 500_000 < (held.free_in_ms or 0) <= 600_000
    lease.require()
    assert room(side, name, permits=1).try_acquire() is None
    lease.release()


def test_a_renewal_never_creates_a_permit_again(side: Side) -> None:
    name = side.name("room")
    side.execute(op.AcquirePermit(name, "h", 20, 1))
    side.pass_time(0.03)
    assert side.execute(op.RenewPermit(name, "h", 60_000)) == Lost()
    assert isinstance(side.execute(op.AcquirePermit(name, "other", 60_000, 1)), Acquired)


def test_a_repeat_by_the_same_holder_takes_no_second_permit(side: Side) -> None:
    name = side.name("room")
    answers = [side.execute(op.AcquirePermit(name, "h", 60_000, 2)) for _ in range(3)]
    tokens = [answer.fencing_token for answer in answers if isinstance(answer, Acquired)]
    assert [answer.replay for answer in answers if isinstance(answer, Acquired)] == [False, True, True]
    assert tokens == sorted(set(tokens))
    assert isinstance(side.execute(op.AcquirePermit(name, "other", 60_000, 2)), Acquired)
    assert isinstance(side.execute(op.AcquirePermit(name, "third", 60_000, 2)), Held)
    assert isinstance(side.execute(op.AcquirePermit(name, "h", 60_000, 2)), Acquired)


def test_the_answer_says_when_one_more_may_get_in(side: Side) -> None:
    name = side.name("room")
    first, second = (side.execute(op.AcquirePermit(name, holder, 60_000, 2)) for holder in ("a", "b"))
    held = side.execute(op.AcquirePermit(name, "c", 60_000, 2))
    assert isinstance(first, Acquired)
    assert first.free_in_ms == 0
    for answer in (second, held):
        assert isinstance(answer, Acquired | Held)
        assert answer.free_in_ms is not None
        assert 30_000 < answer.free_in_ms <= 60_000


# --- the number of permits ---


def test_a_handle_that_says_another_number_is_refused_while_permits_are_held(side: Side) -> None:
    name = side.name("room")
    lease = room(side, name, permits=3).acquire(timeout=0)
    for wrong in (2, 4):
        with pytest.raises(PermitsMismatch, match=f"^semaphore '{name}' is in use with 3 permits, not with {wrong}$"):
            room(side, name, permits=wrong).acquire(timeout=0)
    assert isinstance(PermitsMismatch(name, 3, 2), InvalidInput)
    lease.renew()
    lease.release()


def test_at_rest_the_number_of_permits_may_change(side: Side) -> None:
    name = side.name("room")
    room(side, name, permits=3).acquire(timeout=0).release()
    dead = room(side, name, permits=1).acquire(timeout=0)
    with pytest.raises(PermitsMismatch):
        room(side, name, permits=2).acquire(timeout=0)
    let_lapse(side, dead)
    room(side, name, permits=2).acquire(timeout=0).release()


def test_the_number_of_permits_is_remembered_for_as_long_as_one_is_renewed(redis_side: Side) -> None:
    name, server = redis_side.name("room"), redis_side.raw()
    lease = room(redis_side, name, permits=3).acquire(timeout=0)
    server.pexpire(lock_keys(name).fence, 5_000)
    lease.renew()
    assert server.pttl(lock_keys(name).fence) > 24 * 3_600_000
    assert server.hget(lock_keys(name).fence, "kind") == "semaphore"
    lease.release()


@pytest.mark.parametrize("permits", [0, -1, 1.5, "2", True, None, PERMITS_MAX + 1, float("nan")])
def test_what_is_no_number_of_permits_is_refused_at_once(permits: Any) -> None:  # noqa: ANN401  # wrong on purpose
    with pytest.raises(InvalidInput, match=r"^permits of .* is not a number of permits: give 1 to 1,000,000$"):
        Semaphore(MemoryStore(), "x", permits=permits)


# --- waiting ---


def test_a_release_lets_one_waiter_in(waiting_side: Side) -> None:
    semaphore = room(waiting_side, waiting_side.name("room"), permits=2)
    held = [semaphore.acquire(timeout=0) for _ in range(2)]
    waiters = start_waiting(waiting_side, semaphore, 3)
    held[0].release()
    first = waiters[0].result(SOON)
    wait_until(lambda: has_come_to_rest(waiting_side.store, 2))
    assert [waiter.done() for waiter in waiters] == [True, False, False]
    held[1].release()
    waiters[1].result(SOON).release()
    waiters[2].result(SOON).release()
    first.release()


def test_permits_that_come_free_together_all_go_to_those_who_wait(waiting_side: Side) -> None:
    semaphore = room(waiting_side, waiting_side.name("room"), permits=5)
    held = [semaphore.acquire(timeout=0) for _ in range(5)]
    waiters = start_waiting(waiting_side, semaphore, 5)
    for lease in held:
        lease.release()
    for lease in [waiter.result(SOON) for waiter in waiters]:
        lease.release()


def test_permits_of_dead_holders_all_go_to_those_who_wait(waiting_side: Side) -> None:
    name = waiting_side.name("room")
    for index in range(4):
        waiting_side.execute(op.AcquirePermit(name, f"dead {index}", 300, 4))
    waiters = [
        waiting_side.start(lambda: room(waiting_side, name, permits=4).acquire(timeout=PATIENCE)) for _ in range(4)
    ]
    for lease in [waiter.result(SOON) for waiter in waiters]:
        lease.release()


def test_waiters_of_two_processes_all_get_in(two_sides: tuple[Side, Side]) -> None:
    ours, theirs = two_sides
    name = ours.name("room")
    held = [room(ours, name, permits=3).acquire(timeout=0) for _ in range(3)]
    waiters = [waiter for side in two_sides for waiter in start_waiting(side, room(side, name, permits=3), 6)]
    for lease in held:
        lease.release()
    release_all(waiters)
    assert lines_of(ours.store) == lines_of(theirs.store) == {}


def test_d16_of_fifty_waiters_one_release_costs_two_scripts(
    two_sides: tuple[Side, Side], count_scripts: CountScripts
) -> None:
    side, _ = two_sides
    name = side.name("room")
    semaphore = room(side, name, permits=2)
    semaphore.acquire(timeout=0).release()  # the scripts are cached now
    held = [semaphore.acquire(timeout=0) for _ in range(2)]
    waiters = start_waiting(side, semaphore, 50)
    scripts = count_scripts(side.raw(), name)
    held[0].release()
    waiters[0].result(SOON)
    wait_until(lambda: has_come_to_rest(side.store, 49))
    assert scripts() == 2
    held[1].release()
    release_all(waiters)


def test_a_wait_ends_at_its_deadline(waiting_side: Side) -> None:
    semaphore = room(waiting_side, waiting_side.name("room"), permits=1)
    held = semaphore.acquire(timeout=0)
    began = time.monotonic()
    with pytest.raises(AcquireTimeout):
        semaphore.acquire(timeout=0.2)
    assert time.monotonic() - began >= 0.2
    held.release()


def test_forty_threads_are_never_more_than_three_inside(redis_side: Side) -> None:
    semaphore = room(redis_side, redis_side.name("room"), permits=3)
    guard, inside, most = threading.Lock(), 0, 0

    def visit() -> None:
        nonlocal inside, most
        for _ in range(5):
            with semaphore.acquire(timeout=PATIENCE):
                with guard:
                    inside += 1
                    most = max(most, inside)
                time.sleep(0.001)
                with guard:
                    inside -= 1

    for visitor in [redis_side.start(visit) for _ in range(40)]:
        visitor.result(PATIENCE)
    assert most == 3


# --- cancelled, lost, refused ---


def test_d11_an_acquire_cancelled_in_flight_gives_its_permit_back(proxy: RedisProxy, valkey_url: str) -> None:
    name = "room-cancelled"

    async def body() -> None:
        async with await AsyncRedisStore.from_url(proxy.url) as store:
            semaphore = AsyncSemaphore(store, name, permits=2, ttl=LONG)
            await (await semaphore.acquire(timeout=0)).release()
            proxy.hold(b"EVAL")
            task = asyncio.ensure_future(semaphore.acquire(timeout=PATIENCE))
            assert await asyncio.to_thread(proxy.holding.wait, SOON)
            task.cancel()
            await asyncio.sleep(0)
            proxy.let_go()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert lines_of(store) == {}

    asyncio.run(body())
    with redis.Redis.from_url(valkey_url) as server:
        assert server.exists(lock_keys(name).lock) == 0


def test_d12_a_cancelled_waiter_gives_its_place_up(valkey_url: str) -> None:
    async def body() -> None:
        async with await AsyncRedisStore.from_url(valkey_url) as store:
            semaphore = AsyncSemaphore(store, "room-given-up", permits=1, ttl=LONG)
            held = await semaphore.acquire(timeout=0)
            waiters = [asyncio.ensure_future(semaphore.acquire(timeout=PATIENCE)) for _ in range(3)]
            await parked(store, 3)
            for waiter in waiters[:2]:
                waiter.cancel()
            await asyncio.wait(waiters[:2])
            await held.release()
            await (await asyncio.wait_for(waiters[2], SOON)).release()
            assert lines_of(store) == {}

    asyncio.run(body())


def test_e1_and_a7_lost_replies_take_one_permit_and_give_it_back(proxy: RedisProxy, valkey_url: str) -> None:
    name = "room-lost-reply"
    with RedisStore.from_url(proxy.url) as store:
        semaphore = Semaphore(store, name, permits=2, ttl=LONG)
        semaphore.acquire(timeout=0).release()
        proxy.swallow_replies(1, to=b"EVALSHA")
        lease = semaphore.acquire(timeout=0)
        with redis.Redis.from_url(valkey_url, decode_responses=True) as server:
            assert server.zrange(lock_keys(name).lock, 0, -1) == [lease.holder_id]
            proxy.swallow_replies(1, to=b"EVALSHA")
            lease.release()
            assert server.exists(lock_keys(name).lock) == 0
        assert proxy.swallowed == 2


def test_a_name_belongs_to_one_kind_of_lock_at_a_time(side: Side) -> None:
    name = side.name("room")
    with room(side, name, permits=2).acquire(timeout=0):
        for handle in (side.lock(name, ttl=LONG), book(side, name).read, book(side, name).write):
            with pytest.raises(WrongKind):
                handle.acquire(timeout=0)
    with side.lock(name, ttl=LONG).acquire(timeout=0), pytest.raises(WrongKind):
        room(side, name, permits=2).acquire(timeout=0)


def test_a_set_with_nothing_but_lapsed_permits_does_not_keep_others_from_the_name(redis_side: Side) -> None:
    name = redis_side.name("room")
    redis_side.execute(op.AcquirePermit(name, "dead", 200, 2))
    room(redis_side, name, permits=2).acquire(timeout=0).release()
    redis_side.pass_time(0.21)
    redis_side.lock(name, ttl=LONG).acquire(timeout=0).release()


def test_what_it_is_called() -> None:
    assert (PermitClaim.kind, PermitClaim.mode) == ("semaphore", "shared")
    assert repr(Semaphore(MemoryStore(), "x", permits=2, ttl=3)) == "Semaphore('x', ttl=3, permits=2)"
