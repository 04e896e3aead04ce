"""The lease of a lock: acquired, renewed, adopted, lost and released."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from inspect import signature
from math import inf, nan
from typing import Any

import pytest
import redis

from segmented import AsyncLock, AsyncPool, Lock, RedisStore, protocol as op
from segmented.clock import ManualClock
from segmented.errors import AcquireTimeout, InvalidInput, LeaseLost
from segmented.keys import lock_keys
from segmented.locks.durations import DEFAULT_TIMEOUT
from segmented.locks.lease_state import LeaseState, trusted_until
from segmented.locks.lock import LockClaim
from segmented.models import Acquired, Held, Lost, Renewed
from segmented.stores.memory import AsyncMemoryStore, MemoryStore
from tests.fixtures.stores import Side
from tests.support.contract.bodies import let_lapse
from tests.support.contract.parking import lines_of


class LeapingClock:
    """A clock on which 40 s pass between any two of its next looks."""

    leaps, seconds = 0, 1_000.0

    def now(self) -> float:
        if self.leaps:
            self.leaps, self.seconds = self.leaps - 1, self.seconds + 40.0
        return self.seconds


# --- operations ---


def test_e1_an_acquire_that_is_repeated_keeps_its_token_and_counts_its_life_anew(side: Side) -> None:
    name = side.name("lock")
    first = side.execute(op.AcquireLock(name, "h", 5_000))
    again = side.execute(op.AcquireLock(name, "h", 60_000))
    assert isinstance(first, Acquired)
    assert again == Acquired(first.fencing_token, 60_000, replay=True)
    held = side.execute(op.AcquireLock(name, "other", 1_000))
    assert isinstance(held, Held)
    assert held.free_in_ms is not None
    assert 30_000 < held.free_in_ms <= 60_000


# --- leases ---


def test_b4_an_acquire_whose_answer_comes_after_the_leases_end_fails_and_cleans_up(valkey_url: str) -> None:
    clock = LeapingClock()
    with RedisStore(redis.Redis.from_url(valkey_url), clock=clock) as store:
        clock.leaps = 4  # those of an acquire until its answer is there
        with pytest.raises(LeaseLost):
            Lock(store, "late", ttl=30).acquire(timeout=1_000)
        assert store.client.exists(lock_keys("late").lock) == 0
        store.client.close()


def test_one_try_gives_the_server_two_seconds() -> None:
    deadlines: list[float] = []

    class Noting(MemoryStore):
        def execute(self, operation: op.Operation[Any], *, deadline: float = inf) -> Any:  # noqa: ANN401  # its own answer
            deadlines.append(deadline)
            return super().execute(operation, deadline=deadline)

    store = Noting(clock=ManualClock(100.0))
    assert Lock(store, "door", ttl=600).try_acquire() is not None
    assert deadlines == [102.0]


def test_a_lost_lease_tells_its_holder_once_and_refuses_the_next_step(side: Side) -> None:
    lease = side.lock(side.name("lock"), ttl=60).acquire(timeout=30)
    told: list[str] = []
    lease.on_lost(lambda: told.append("lost"))
    lease.require()
    let_lapse(side, lease)
    for _ in range(2):
        with pytest.raises(LeaseLost):
            lease.renew()
    assert told == ["lost"]
    assert lease.lost.is_set()
    with pytest.raises(LeaseLost):
        lease.require()
    lease.on_lost(lambda: told.append("at once"))
    assert told == ["lost", "at once"]


MAKERS: list[Callable[..., object]] = [partial(Lock, MemoryStore()), partial(AsyncLock, AsyncMemoryStore())]


@pytest.mark.parametrize("make", MAKERS, ids=["threads", "asyncio"])
def test_b2_a_time_to_live_that_is_none_is_refused_before_anything_is_sent(make: Callable[..., object]) -> None:
    for ttl in (True, "30", None):
        with pytest.raises(InvalidInput, match=f"^ttl is a number of seconds or a timedelta, not {type(ttl).__name__}"):
            make("door", ttl=ttl)
    for seconds in (0, -1, 0.0009, nan, inf, -inf, 2**53):
        with pytest.raises(InvalidInput, match=r"^ttl of .* s is not a duration: give between 0.001 and 9007199254740"):
            make("door", ttl=seconds)


def test_j8_a_lost_lease_closes_the_name_for_its_delay_and_is_told_apart_from_held(side: Side) -> None:
    name = side.name("lock")
    lease = side.lock(name, ttl=60, lock_delay=60).acquire(timeout=0)
    with pytest.raises(AcquireTimeout) as held:
        side.lock(name, ttl=60).acquire(timeout=0)
    assert not held.value.is_delayed
    side.execute(lease.claim.renewing(300))
    side.pass_time(0.31)
    with pytest.raises(AcquireTimeout, match=r"its last lease was lost, and the lock-delay still runs$") as delayed:
        side.lock(name, ttl=60).acquire(timeout=0)
    assert delayed.value.is_delayed


def test_a_release_in_time_ends_the_delay_with_the_lease(side: Side) -> None:
    name = side.name("lock")
    side.lock(name, ttl=60, lock_delay=60).acquire(timeout=0).release()
    side.lock(name, ttl=60).acquire(timeout=0)
    with pytest.raises(AcquireTimeout) as held:
        side.lock(name, ttl=60).acquire(timeout=0)
    assert not held.value.is_delayed


def test_a_renewed_lease_is_trusted_for_its_ttl_and_its_key_lives_on_for_the_delay(redis_side: Side) -> None:
    name = redis_side.name("lock")
    lease = redis_side.lock(name, ttl=200, lock_delay=100).acquire(timeout=0)
    assert 200_000 < redis_side.raw().pttl(lock_keys(name).lock) <= 300_000
    assert lease.remaining() < 200
    lease.renew(ttl=400)
    assert 400_000 < redis_side.raw().pttl(lock_keys(name).lock) <= 500_000
    assert 200 < lease.remaining() < 400
    lease.release()


def test_a_lease_whose_delay_runs_is_neither_renewed_nor_released(side: Side) -> None:
    name = side.name("lock")
    delay_claim = side.lock(name, ttl=60, lock_delay=60).acquire(timeout=0).claim
    side.execute(delay_claim.renewing(300))
    side.pass_time(0.31)
    assert type(side.execute(delay_claim.renewing(60_000))).__name__ == "Lost"
    assert type(side.execute(delay_claim.releasing())).__name__ == "Lost"
    with pytest.raises(AcquireTimeout) as delayed:
        side.lock(name, ttl=60).acquire(timeout=0)
    assert delayed.value.is_delayed


def test_a_number_of_replicas_that_is_none_is_refused() -> None:
    wrong: list[Any] = [-1, 101, 1.5, True, "2"]
    for replicas in wrong:
        with pytest.raises(InvalidInput, match=r"is not a number of replicas: give 0 to 100$"):
            Lock(MemoryStore(), "door", replicas=replicas)


def a_lease(clock: ManualClock) -> LeaseState:
    return LeaseState(LockClaim("door", "h", 1_000), Acquired(1, 1_000, replay=False), clock.now(), clock)


def test_of_renewals_that_cross_the_shorter_is_believed() -> None:
    clock = ManualClock()
    for first, second in ((10_000, 900), (900, 10_000)):
        lease = a_lease(clock)
        at = clock.now()
        lease.begin_renewal(first, at)
        lease.begin_renewal(second, at)
        lease.note_renewal(Renewed(first), at)
        assert lease.trusted_until == trusted_until(at, 900)
        lease.note_renewal(Renewed(second), at)
        assert lease.trusted_until == trusted_until(at, 900)
        lease.begin_renewal(10_000, at)
        lease.note_renewal(Renewed(10_000), at)
        assert lease.trusted_until == trusted_until(at, 10_000)


def test_a_renewal_that_finds_the_lease_released_by_us_is_no_loss() -> None:
    clock = ManualClock()
    lease = a_lease(clock)
    lease.begin_renewal(1_000, clock.now())
    lease.note_release_asked()
    lease.note_renewal(Lost(), clock.now())
    assert not lease.is_lost


def test_a_token_is_one_past_the_last_where_the_servers_clock_is_behind_it(store: RedisStore) -> None:
    lock = Lock(store, "door", ttl=60)
    lock.acquire(timeout=30).release()
    ahead = int((time.time() + 3_600) * 1_000_000)  # as after a failover to a server whose clock is an hour behind
    store.client.hset(lock_keys("door").fence, "token", ahead)
    first = lock.acquire(timeout=30)
    first.release()
    assert first.fencing_token == ahead + 1
    assert lock.acquire(timeout=30).fencing_token == ahead + 2


def test_a_fence_outlives_its_lease_by_23_hours_at_least(store: RedisStore) -> None:
    hour_ms = 3_600_000
    keys = lock_keys("door")
    Lock(store, "door", ttl=60).acquire(timeout=30).release()
    assert store.client.pttl(keys.fence) > 24 * hour_ms
    store.client.hset(keys.fence, "token", int((time.time() - 3_700) * 1_000_000))
    store.client.pexpire(keys.fence, 23 * hour_ms)  # as they are an hour later
    Lock(store, "door", ttl=60).acquire(timeout=30).release()
    assert store.client.pttl(keys.fence) > 24 * hour_ms
    Lock(store, "door", ttl=48 * 3_600).acquire(timeout=30).release()
    assert store.client.pttl(keys.fence) > 71 * hour_ms


def test_the_release_of_a_lost_lease_says_what_the_store_still_knows_of_the_name(side: Side) -> None:
    name = side.name("lock")
    release = op.ReleaseLock(name, "h")
    forgotten = side.execute(release)
    assert isinstance(forgotten, Lost)
    assert (forgotten.is_forgotten, forgotten.revoked_token) == (True, None)
    taken = side.execute(op.AcquireLock(name, "h", 60_000))
    assert isinstance(taken, Acquired)
    other = side.execute(op.ReleaseLock(name, "other"))
    assert isinstance(other, Lost)
    assert (other.is_forgotten, other.revoked_token) == (False, None)
    side.execute(op.RevokeLock(name, "r"))
    revoked = side.execute(release)
    assert isinstance(revoked, Lost)
    assert (revoked.is_forgotten, revoked.revoked_token) == (False, taken.fencing_token)


def test_a8_without_an_error_of_the_body_the_loss_itself_is_raised(side: Side) -> None:
    lease = side.lock(side.name("lock"), ttl=60).acquire(timeout=30)
    with pytest.raises(LeaseLost), lease:
        let_lapse(side, lease)


def test_a_lock_is_a_plain_string_so_that_any_other_client_is_kept_out(redis_side: Side) -> None:
    name = redis_side.name("lock")
    lease = redis_side.lock(name, ttl=60).acquire(timeout=30)
    server, key = redis_side.raw(), lock_keys(name).lock
    assert server.set(key, "another client", nx=True, px=1_000) is None
    lease.release()
    assert server.set(key, "another client", nx=True, px=60_000) is True
    assert redis_side.lock(name, ttl=60).try_acquire() is None


def test_a_lease_shows_its_name_and_token_and_hides_what_proves_ownership(side: Side) -> None:
    name = side.name("lock")
    lease = side.lock(name, ttl=60).acquire(timeout=30)
    shown = repr(getattr(lease, "_target", lease))
    assert f"{name!r} token={lease.fencing_token}" in shown
    assert lease.holder_id not in shown


def test_what_is_not_held_is_not_adopted(side: Side) -> None:
    name = side.name()
    lock = side.lock(name, ttl=60)
    first = lock.acquire()
    with pytest.raises(LeaseLost):
        side.lock(side.name(), ttl=60).adopt(first.holder_id)
    first.release()
    with pytest.raises(LeaseLost):
        lock.adopt(first.holder_id)
    second = lock.acquire()
    with pytest.raises(LeaseLost) as lost:
        lock.adopt(first.holder_id)
    assert (lost.value.name, lost.value.holder_id) == (name, first.holder_id)
    assert second.is_trusted


def test_a_lease_that_lapsed_is_not_adopted_nor_while_its_delay_runs(side: Side) -> None:
    lock = side.lock(side.name(), ttl=60, lock_delay=60)
    lease = lock.acquire()
    side.execute(lease.claim.renewing(50))
    side.pass_time(0.1)
    with pytest.raises(LeaseLost):
        lock.adopt(lease.holder_id)
    assert lock.is_locked()


@pytest.mark.usefixtures("watched_drops")
def test_a_lease_whose_holder_id_was_read_may_be_adopted_so_a_drop_says_nothing() -> None:
    store = MemoryStore()
    lease = Lock(store, "door", ttl=60).acquire()
    holder_id = lease.holder_id
    del lease
    Lock(store, "door").adopt(holder_id).release()


class SlowReplies(AsyncMemoryStore):
    """A store whose answer to an attempt comes only when it is let go."""

    def __init__(self) -> None:
        super().__init__(clock=ManualClock())
        self.has_taken, self.may_answer = asyncio.Event(), asyncio.Event()

    async def execute(self, operation: op.Operation[Any], *, deadline: float = inf) -> Any:  # noqa: ANN401  # its own answer
        answer = await super().execute(operation, deadline=deadline)
        if isinstance(operation, op.AcquireLock | op.Grant):
            self.has_taken.set()
            await self.may_answer.wait()
        return answer

    async def cancelled(self, awaitable: Awaitable[object], *, times: int = 1) -> None:
        """Cancel an attempt that has taken what it asked for, before it learns of that."""
        task = asyncio.ensure_future(awaitable)
        await self.has_taken.wait()
        for _ in range(times):
            task.cancel()
            await asyncio.sleep(0)
        self.may_answer.set()
        with pytest.raises(asyncio.CancelledError):
            await task


@pytest.mark.parametrize(("timeout", "times"), [(0, 1), (60, 1), (60, 3)])
def test_d11_an_acquire_cancelled_while_its_request_is_in_flight_leaves_no_key(timeout: float, times: int) -> None:
    async def body() -> None:
        store = SlowReplies()
        lock = AsyncLock(store, "door", ttl=60)
        await store.cancelled(lock.acquire(timeout=timeout), times=times)
        assert not await lock.is_locked()
        assert lines_of(store) == {}

    asyncio.run(body())


@pytest.mark.parametrize("timeout", [0, 60])
def test_a_grant_cancelled_in_flight_gives_its_units_back(timeout: float) -> None:
    async def body() -> None:
        store = SlowReplies()
        pool = AsyncPool(store, "ticket")
        await pool.open(stock=8, segments=2)
        await store.cancelled(pool.grant("a", quantity=3, timeout=timeout))
        state = await pool.state()
        assert (state.available, state.reserved, state.sequence) == (8, 0, 3)
        assert (await pool.audit()).is_clean
        assert lines_of(store) == {}

    asyncio.run(body())


def test_a_shorter_renewal_whose_reply_was_lost_is_believed_to_be_done() -> None:
    clock = ManualClock()
    lease = a_lease(clock)
    lease.begin_renewal(200, clock.now())
    lease.note_unanswered_renewal()
    assert lease.trusted_until == trusted_until(clock.now(), 200)


def test_a_lease_is_not_trusted_once_its_release_was_asked_for() -> None:
    lease = a_lease(ManualClock())
    assert lease.is_trusted
    lease.note_release_asked()
    assert not lease.is_trusted
    with pytest.raises(LeaseLost):
        lease.require()


def test_a_lease_whose_time_has_run_out_is_lost_without_asking_the_server() -> None:
    clock = ManualClock()
    lease = Lock(MemoryStore(clock=clock), "door", ttl=60).acquire(timeout=0)
    clock.advance(60 * 0.99 - 0.003)
    assert lease.is_trusted
    clock.advance(0.002)
    assert (lease.is_lost, lease.is_trusted) == (True, False)
    with pytest.raises(LeaseLost):
        lease.renew()


def test_a_holder_doubts_its_lease_before_the_server_does(side: Side) -> None:
    lease = side.lock(side.name("lock"), ttl=100).acquire(timeout=30)
    assert 80 < lease.remaining() < 100 - 1
    lease.release()
    assert lease.remaining() == 0.0


def test_acquire_waits_for_a_minute_when_it_is_not_told_otherwise() -> None:
    assert DEFAULT_TIMEOUT == 60.0
    defaults = [signature(kind.acquire).parameters["timeout"].default for kind in (Lock, AsyncLock)]
    assert defaults == [60.0, 60.0]
