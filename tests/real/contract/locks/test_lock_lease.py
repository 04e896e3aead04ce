"""How long a lease lives, and who may say so. The ids are the rows of the catalogue of lock bugs."""

from __future__ import annotations

from contextlib import suppress
from math import inf, nan
from typing import TYPE_CHECKING, Final

import pytest

from segmented import protocol as op
from segmented.clock import SystemClock
from segmented.errors import InvalidInput, LeaseLost
from segmented.keys import lock_keys
from segmented.models import Acquired, Held, Lost, Released, Renewed
from tests.fixtures.stores import REDIS, make_side
from tests.support.contract.bodies import let_lapse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fixtures.stores import Side
    from tests.support.flavour import Flavour

NOT_A_TTL = [0, 0.0004, -1, nan, inf, -inf, 2**63]
BOTH_COLOURS = [REDIS[0], REDIS[-1]]


LEAPS: Final = 4
"""Looks of an acquire, its request included, until the answer is there."""


class ShiftedClock:
    """The system's clock, as a machine with another zero would see it, or one that leaps at its next looks."""

    def __init__(self, shift: float) -> None:
        self._shift, self._leap, self._leaps = shift, 0.0, 0

    def leap(self, seconds: float, *, times: int) -> None:
        self._leap, self._leaps = seconds, times

    def now(self) -> float:
        if self._leaps:
            self._leaps -= 1
            self._shift += self._leap
        return SystemClock().now() + self._shift


@pytest.fixture(params=BOTH_COLOURS, ids=str)
def leaping_side(request: pytest.FixtureRequest, valkey_url: str) -> Iterator[Side]:
    """Redis, for a client to whom 40 s pass between any two of its next four looks at its clock."""
    clock = ShiftedClock(0.0)
    made = make_side(request.param, clock, valkey_url)
    clock.leap(40.0, times=LEAPS)
    yield made
    made.close()


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


def test_tokens_of_a_lock_only_grow_over_releases_and_lapses(side: Side) -> None:
    name = side.name("lock")
    tokens = []
    for index in range(20):
        acquired = side.execute(op.AcquireLock(name, f"h{index}", 60_000 if index % 2 else 1))
        assert isinstance(acquired, Acquired)
        tokens.append(acquired.fencing_token)
        if index % 2:
            side.execute(op.ReleaseLock(name, f"h{index}"))
        else:
            side.pass_time(0.003)
    assert tokens == sorted(set(tokens))


def test_a_token_grows_even_when_the_last_one_was_forgotten(redis_side: Side) -> None:
    name = redis_side.name("lock")
    before = redis_side.execute(op.AcquireLock(name, "a", 60_000))
    assert redis_side.raw().delete(*lock_keys(name).listed()) == 2
    after = redis_side.execute(op.AcquireLock(name, "b", 60_000))
    assert isinstance(before, Acquired)
    assert isinstance(after, Acquired)
    assert after.fencing_token > before.fencing_token


def test_a_lock_that_another_client_took_without_an_end_says_so(redis_side: Side) -> None:
    name = redis_side.name("lock")
    redis_side.raw().set(lock_keys(name).lock, "another client")
    assert redis_side.execute(op.AcquireLock(name, "h", 60_000)) == Held(None)


@pytest.mark.parametrize("word", ["{a}", "a}b{", "100 %", "ü, 票", "a b\nc"])
def test_a_lock_may_have_any_name(side: Side, word: str) -> None:
    name = side.name(word)
    assert isinstance(side.execute(op.AcquireLock(name, "h", 60_000)), Acquired)
    assert isinstance(side.execute(op.AcquireLock(name, "other", 60_000)), Held)


# --- leases ---


@pytest.mark.parametrize("ttl", NOT_A_TTL, ids=str)
def test_b2_a_time_to_live_that_no_lease_can_have_is_rejected_up_front(waiting_side: Side, ttl: float) -> None:
    with pytest.raises(InvalidInput, match=r"^ttl of .* s is not a duration: give between 0\.001 and \d+ s$"):
        waiting_side.lock("never made", ttl=ttl)


@pytest.mark.parametrize("ttl", NOT_A_TTL, ids=str)
def test_b2_a_renewal_by_such_a_time_is_rejected_and_the_lease_stays(waiting_side: Side, ttl: float) -> None:
    lease = waiting_side.lock(waiting_side.name("lock"), ttl=60).acquire(timeout=30)
    with pytest.raises(InvalidInput):
        lease.renew(ttl=ttl)
    assert lease.remaining() > 50
    lease.release()


@pytest.mark.parametrize("timeout", [-1, -0.001, nan, -inf], ids=str)
def test_a_waiting_time_that_is_none_is_rejected(waiting_side: Side, timeout: float) -> None:
    with pytest.raises(InvalidInput, match="is not a waiting time"):
        waiting_side.lock(waiting_side.name("lock"), ttl=60).acquire(timeout=timeout)


def test_b4_an_acquire_whose_answer_comes_after_the_leases_end_fails_and_cleans_up(leaping_side: Side) -> None:
    name = leaping_side.name("lock")
    with pytest.raises(LeaseLost):
        leaping_side.lock(name, ttl=30).acquire(timeout=1_000)
    assert leaping_side.raw().exists(lock_keys(name).lock) == 0


def test_a_renewal_moves_the_end_on_the_server_and_in_the_holders_mind(redis_side: Side) -> None:
    name = redis_side.name("lock")
    lease = redis_side.lock(name, ttl=30).acquire(timeout=30)
    assert lease.remaining() <= 30
    lease.renew(ttl=60)
    assert 50 < lease.remaining() < 60
    assert 30_000 < redis_side.raw().pttl(lock_keys(name).lock) <= 60_000
    lease.renew()
    assert 30_000 < redis_side.raw().pttl(lock_keys(name).lock) <= 60_000


def test_a_holder_doubts_its_lease_before_the_server_does(waiting_side: Side) -> None:
    lease = waiting_side.lock(waiting_side.name("lock"), ttl=100).acquire(timeout=30)
    assert lease.remaining() <= 100 - 1 - 0.002
    lease.release()
    assert lease.remaining() == 0.0


def test_a_lost_lease_tells_its_holder_once_and_refuses_the_next_step(waiting_side: Side) -> None:
    lease = waiting_side.lock(waiting_side.name("lock"), ttl=60).acquire(timeout=30)
    told: list[str] = []
    lease.on_lost(lambda: told.append("lost"))
    lease.require()
    let_lapse(waiting_side, lease)
    for _ in range(2):
        with pytest.raises(LeaseLost):
            lease.renew()
    assert told == ["lost"]
    assert lease.lost.is_set()
    with pytest.raises(LeaseLost):
        lease.require()
    lease.on_lost(lambda: told.append("at once"))
    assert told == ["lost", "at once"]


def test_a_lease_whose_time_has_run_out_is_lost_without_asking_the_server(waiting_side: Side) -> None:
    lease = waiting_side.lock(waiting_side.name("lock"), ttl=60).acquire(timeout=30)
    with suppress(LeaseLost):  # on a machine that stands still
        lease.renew(ttl=0.5)
    waiting_side.pass_time(0.55)
    assert lease.is_lost
    assert not lease.is_trusted
    with pytest.raises(LeaseLost):
        lease.renew()


def test_a_released_lease_is_not_lost(waiting_side: Side) -> None:
    lease = waiting_side.lock(waiting_side.name("lock"), ttl=60).acquire(timeout=30)
    lease.release()
    assert not lease.is_lost
    assert not lease.is_trusted
    with pytest.raises(LeaseLost):
        lease.require()


@pytest.mark.parametrize("shift", [10.0, -10.0, 1e9])
@pytest.mark.parametrize("flavour", BOTH_COLOURS, ids=str)
def test_b10_a_client_whose_clock_is_far_off_excludes_and_is_excluded(
    flavour: Flavour, shift: float, valkey_url: str
) -> None:
    right, wrong = (make_side(flavour, clock, valkey_url) for clock in (SystemClock(), ShiftedClock(shift)))
    try:
        name = right.name("lock")
        for ours, theirs in ((right, wrong), (wrong, right)):
            lease = ours.lock(name, ttl=60).acquire(timeout=30)
            assert 50 < lease.remaining() < 60
            assert 30_000 < right.raw().pttl(lock_keys(name).lock) <= 60_000
            assert theirs.lock(name, ttl=60).try_acquire() is None
            lease.release()
    finally:
        right.close()
        wrong.close()


def test_g4_two_hundred_names_leave_no_key_without_an_end(plain_redis_side: Side) -> None:
    names = [plain_redis_side.name("lock") for _ in range(200)]
    for name in names:
        plain_redis_side.lock(name, ttl=60).acquire(timeout=30).release()
    server = plain_redis_side.raw()
    lives = [server.pttl(key) for name in names for key in lock_keys(name).listed() if server.exists(key)]
    assert len(lives) == 200
    assert all(0 < life_ms <= (24 * 3_600 + 60) * 1_000 for life_ms in lives)
