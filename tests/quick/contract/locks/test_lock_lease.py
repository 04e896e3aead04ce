"""How long a lease lives, and who may say so. The ids are the rows of the catalogue of lock bugs."""

from __future__ import annotations

import pickle
import time
from functools import partial
from inspect import signature
from math import inf, nan
from typing import TYPE_CHECKING, Any

import pytest
import redis

from segmented import AsyncLock, Lock, RedisStore, protocol as op
from segmented.clock import ManualClock
from segmented.errors import AcquireTimeout, InvalidInput, LeaseLost
from segmented.keys import lock_keys
from segmented.locks.durations import DEFAULT_TIMEOUT
from segmented.locks.lease_state import LeaseState, trusted_until
from segmented.locks.lock import LockClaim
from segmented.models import Acquired, Held, Lost, Released, Renewed
from segmented.stores.memory import AsyncMemoryStore, MemoryStore
from tests.support.contract.bodies import let_lapse

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fixtures.stores import Side


class LeapingClock:
    """A clock on which 40 s pass between any two of its next looks."""

    leaps, seconds = 0, 1_000.0

    def now(self) -> float:
        if self.leaps:
            self.leaps, self.seconds = self.leaps - 1, self.seconds + 40.0
        return self.seconds


# --- operations ---


def test_a_lock_is_acquired_held_renewed_and_released(side: Side) -> None:
    name = side.name("lock")
    acquired = side.execute(op.AcquireLock(name, "h", 60_000))
    assert isinstance(acquired, Acquired)
    assert (acquired.ttl_ms, acquired.replay) == (60_000, False)
    held = side.execute(op.AcquireLock(name, "other", 60_000))
    assert isinstance(held, Held)
    assert held.free_in_ms is not None
    assert 30_000 < held.free_in_ms <= 60_000
    assert side.execute(op.RenewLock(name, "other", 60_000)) == Lost()
    assert side.execute(op.RenewLock(name, "h", 90_000)) == Renewed(90_000)
    assert side.execute(op.ReleaseLock(name, "other")) == Lost()
    assert side.execute(op.ReleaseLock(name, "h")) == Released()
    assert isinstance(side.execute(op.AcquireLock(name, "other", 60_000)), Acquired)


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


def test_a_lock_that_another_client_took_without_an_end_says_so(redis_side: Side) -> None:
    name = redis_side.name("lock")
    redis_side.raw().set(lock_keys(name).lock, "another client")
    assert redis_side.execute(op.AcquireLock(name, "h", 60_000)) == Held(None)


def test_a_lock_may_have_any_name(side: Side) -> None:
    for word in ("{a}", "a}b{", "100 %", "ü, 票", "a b\nc"):
        name = side.name(word)
        assert isinstance(side.execute(op.AcquireLock(name, "h", 60_000)), Acquired)
        assert isinstance(side.execute(op.AcquireLock(name, "other", 60_000)), Held)


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


def test_a_renewal_moves_the_end_on_the_server_and_in_the_holders_mind(redis_side: Side) -> None:
    name = redis_side.name("lock")
    lease = redis_side.lock(name, ttl=30).acquire(timeout=30)
    assert lease.remaining() <= 30
    lease.renew(ttl=60)
    assert 50 < lease.remaining() < 60
    assert 30_000 < redis_side.raw().pttl(lock_keys(name).lock) <= 60_000
    lease.renew()
    assert 30_000 < redis_side.raw().pttl(lock_keys(name).lock) <= 60_000


def test_a_holder_doubts_its_lease_before_the_server_does(side: Side) -> None:
    lease = side.lock(side.name("lock"), ttl=100).acquire(timeout=30)
    assert 80 < lease.remaining() < 100 - 1
    lease.release()
    assert lease.remaining() == 0.0


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


def test_a_lease_whose_time_has_run_out_is_lost_without_asking_the_server() -> None:
    clock = ManualClock()
    lease = Lock(MemoryStore(clock=clock), "door", ttl=60).acquire(timeout=0)
    clock.advance(60 * 0.99 - 0.003)
    assert lease.is_trusted
    clock.advance(0.002)
    assert (lease.is_lost, lease.is_trusted) == (True, False)
    with pytest.raises(LeaseLost):
        lease.renew()


def test_a_lease_cannot_be_pickled(side: Side) -> None:
    name = side.name("lock")
    with side.lock(name, ttl=60).acquire(timeout=0) as lease:
        target = getattr(lease, "_target", lease)
        with pytest.raises(InvalidInput, match=rf"^the lease on '{name}' cannot be pickled: acquire in"):
            pickle.dumps(target)


def test_acquire_waits_for_a_minute_when_it_is_not_told_otherwise() -> None:
    assert DEFAULT_TIMEOUT == 60.0
    defaults = [signature(kind.acquire).parameters["timeout"].default for kind in (Lock, AsyncLock)]
    assert defaults == [60.0, 60.0]


MAKERS: list[Callable[..., object]] = [partial(Lock, MemoryStore()), partial(AsyncLock, AsyncMemoryStore())]


@pytest.mark.parametrize("make", MAKERS, ids=["threads", "asyncio"])
def test_b2_a_time_to_live_that_is_none_is_refused_before_anything_is_sent(make: Callable[..., object]) -> None:
    for ttl in (True, "30", None):
        with pytest.raises(InvalidInput, match=f"^ttl is a number of seconds or a timedelta, not {type(ttl).__name__}"):
            make("door", ttl=ttl)
    for seconds in (0, -1, 0.0009, nan, inf, -inf, 2**53):
        with pytest.raises(InvalidInput, match=r"^ttl of .* s is not a duration: give between 0.001 and 9007199254740"):
            make("door", ttl=seconds)


def test_a_wait_that_is_none_is_refused() -> None:
    wrong: list[Any] = [-0.1, nan, -inf]
    for timeout in wrong:
        for acquire in (Lock(MemoryStore(), "door").acquire, AsyncLock(AsyncMemoryStore(), "door").acquire):
            with pytest.raises(InvalidInput, match=r"^timeout of .* s is not a waiting time: give 0 or more, or None"):
                acquire(timeout=timeout)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("", "a lock needs a name"),
        (b"door", "the name of a lock is a text, not bytes: b'door'"),
        (None, "the name of a lock is a text, not NoneType: None"),
        ("a\x00b", "the name of a lock holds characters that cannot be printed: 'a\\x00b'"),
        ("\udcff", "the name of a lock holds characters that cannot be printed: '\\udcff'"),
        ("x" * 1_025, "the name of a lock has 1025 characters; the maximum is 1024"),
    ],
)
def test_a_name_that_is_none_is_refused(name: Any, sentence: str) -> None:  # noqa: ANN401  # bad input
    with pytest.raises(InvalidInput) as raised:
        Lock(MemoryStore(), name)
    assert str(raised.value) == sentence


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


def test_a_name_is_open_again_when_its_delay_is_over(side: Side) -> None:
    name = side.name("lock")
    side.execute(op.AcquireLock(name, "h", 100, delay_ms=100))
    side.pass_time(0.21)
    side.lock(name, ttl=60).acquire(timeout=0).release()


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


def test_a_delay_that_is_no_time_is_refused() -> None:
    for seconds in [-1, float("nan"), float("inf"), 1e16]:
        with pytest.raises(InvalidInput, match=r"^lock_delay of .* s is not a duration: give "):
            Lock(MemoryStore(), "door", lock_delay=seconds)


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


def test_a_shorter_renewal_whose_reply_was_lost_is_believed_to_be_done() -> None:
    clock = ManualClock()
    lease = a_lease(clock)
    lease.begin_renewal(200, clock.now())
    lease.note_unanswered_renewal()
    assert lease.trusted_until == trusted_until(clock.now(), 200)


def test_a_renewal_that_finds_the_lease_released_by_us_is_no_loss() -> None:
    clock = ManualClock()
    lease = a_lease(clock)
    lease.begin_renewal(1_000, clock.now())
    lease.note_release_asked()
    lease.note_renewal(Lost(), clock.now())
    assert not lease.is_lost


def test_a_lease_is_not_trusted_once_its_release_was_asked_for() -> None:
    lease = a_lease(ManualClock())
    assert lease.is_trusted
    lease.note_release_asked()
    assert not lease.is_trusted
    with pytest.raises(LeaseLost):
        lease.require()


def test_a_token_does_not_go_back_where_the_last_one_is_not_known(store: RedisStore) -> None:
    lock = Lock(store, "door", ttl=60)
    lock.acquire(timeout=30).release()
    newest = lock.acquire(timeout=30)
    newest.release()
    store.client.hset(lock_keys("door").fence, "token", newest.fencing_token - 200)  # as on a replica that missed some
    again = lock.acquire(timeout=30)
    assert again.fencing_token > newest.fencing_token


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
