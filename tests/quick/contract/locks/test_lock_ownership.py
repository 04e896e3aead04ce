"""Who may release what, beyond the rows of the suite. The ids are those of the catalogue of lock bugs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from segmented import protocol as op
from segmented.errors import LeaseLost
from segmented.keys import lock_keys
from segmented.models import Acquired, Lost
from tests.support.contract.bodies import fail_after, let_lapse

if TYPE_CHECKING:
    from tests.fixtures.stores import Side


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


def test_a5_a_second_release_does_nothing_to_the_successor(side: Side) -> None:
    lock = side.lock(side.name("lock"), ttl=60)
    first = lock.acquire(timeout=30)
    first.release()
    second = lock.acquire(timeout=30)
    first.release()
    assert lock.try_acquire() is None
    second.release()


def test_a8_the_bodys_own_error_surfaces_after_the_lease_was_lost(side: Side) -> None:
    name = side.name("lock")
    lease = side.lock(name, ttl=60).acquire(timeout=30)
    with pytest.raises(ZeroDivisionError) as caught, lease:
        fail_after(lambda: let_lapse(side, lease))
    assert caught.value.__notes__ == [f"and afterwards: lease on '{name}' is lost: it lapsed or was taken away"]


def test_a8_without_an_error_of_the_body_the_loss_itself_is_raised(side: Side) -> None:
    lease = side.lock(side.name("lock"), ttl=60).acquire(timeout=30)
    with pytest.raises(LeaseLost), lease:
        let_lapse(side, lease)


def test_the_end_of_a_with_statement_releases_also_when_the_body_raises(side: Side) -> None:
    lock = side.lock(side.name("lock"), ttl=60)
    with pytest.raises(ZeroDivisionError), lock.acquire(timeout=30):
        _ = 1 // 0
    with lock.acquire(timeout=0):
        assert lock.try_acquire() is None
    assert lock.try_acquire() is not None


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
