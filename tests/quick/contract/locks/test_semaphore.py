"""Up to N holders of one name, on every store and in both colours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from segmented import protocol as op
from segmented.errors import InvalidInput, LeaseLost, PermitsMismatch
from segmented.keys import lock_keys
from segmented.locks import Semaphore
from segmented.locks.semaphore import PERMITS_MAX
from segmented.models import Acquired, Held, Lost
from segmented.stores.memory import MemoryStore
from tests.support.contract.locks.shared import LONG, let_lapse, room

if TYPE_CHECKING:
    from tests.fixtures.stores import Side


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


def test_what_is_no_number_of_permits_is_refused_at_once() -> None:
    wrong: list[Any] = [0, -1, 1.5, "2", True, None, PERMITS_MAX + 1, float("nan")]
    for permits in wrong:
        with pytest.raises(InvalidInput, match=r"^permits of .* is not a number of permits: give 1 to 1,000,000$"):
            Semaphore(MemoryStore(), "x", permits=permits)


# --- waiting ---


# --- cancelled, lost, refused ---
