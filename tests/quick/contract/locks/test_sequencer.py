"""Asking the lock's server whether a generation is the living one, for each kind of lock and each store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from segmented import protocol as op
from segmented.errors import WrongKind
from segmented.keys import lock_keys
from segmented.locks.read_write import AsyncReadWriteLock, ReadWriteLock
from segmented.locks.sequencer import Sequencer
from segmented.models import Acquired, Standing
from segmented.protocol.fair import FairTimes

if TYPE_CHECKING:
    from tests.fixtures.stores import Side


LONG_MS = 60_000
TIMES = FairTimes(LONG_MS, LONG_MS, LONG_MS)


def taken(side: Side, operation: op.Operation[object]) -> int:
    """Take a lock and return its token."""
    answer = side.execute(operation)
    assert isinstance(answer, Acquired)
    return answer.fencing_token


def is_current(side: Side, name: str, token: int, mode: str = "exclusive") -> bool:
    return side.execute(op.CheckSequencer(name, mode, token)).is_good  # type: ignore[arg-type]  # one of the two


def test_a_generation_is_current_from_the_acquire_to_the_release(side: Side) -> None:
    name = side.name("lock")
    assert side.execute(op.CheckSequencer(name, "exclusive", 1)) == Standing(None, is_good=False)
    first = taken(side, op.AcquireLock(name, "h", LONG_MS))
    assert side.execute(op.CheckSequencer(name, "exclusive", first)) == Standing(first, is_good=True)
    assert not is_current(side, name, first, "shared")
    assert not is_current(side, name, first - 1)
    assert not is_current(side, name, first + 1)
    side.execute(op.RenewLock(name, "h", LONG_MS))
    assert is_current(side, name, first)
    side.execute(op.ReleaseLock(name, "h"))
    assert side.execute(op.CheckSequencer(name, "exclusive", first)) == Standing(None, is_good=False)
    second = taken(side, op.AcquireLock(name, "another", LONG_MS))
    assert side.execute(op.CheckSequencer(name, "exclusive", first)) == Standing(second, is_good=False)
    assert is_current(side, name, second)


def test_a_generation_whose_lease_lapsed_is_current_no_more(side: Side) -> None:
    name = side.name("lock")
    token = taken(side, op.AcquireLock(name, "h", 2))
    side.pass_time(0.01)
    assert not is_current(side, name, token)


def test_while_only_a_lock_delay_runs_no_generation_is_current(side: Side) -> None:
    name = side.name("lock")
    token = taken(side, op.AcquireLock(name, "h", LONG_MS, delay_ms=LONG_MS))
    assert is_current(side, name, token)
    side.execute(op.RenewLock(name, "h", 200, delay_ms=LONG_MS))
    side.pass_time(0.25)
    assert side.execute(op.CheckSequencer(name, "exclusive", token)) == Standing(None, is_good=False)


def test_a_fair_lock_that_was_handed_on_has_a_new_generation(side: Side) -> None:
    name = side.name("lock")
    first = taken(side, op.AcquireFair(name, "h", "p", LONG_MS, TIMES))
    assert is_current(side, name, first)
    side.execute(op.AcquireFair(name, "next", "q", LONG_MS, TIMES))
    side.execute(op.ReleaseFair(name, "h", TIMES))
    assert not is_current(side, name, first)
    second = taken(side, op.AcquireFair(name, "next", "q", LONG_MS, TIMES))
    assert is_current(side, name, second)


def test_entering_again_leaves_the_generation_of_a_reentrant_lock(side: Side) -> None:
    name = side.name("lock")
    first = taken(side, op.AcquireReentrant(name, "owner", "h1", LONG_MS))
    again = taken(side, op.AcquireReentrant(name, "owner", "h2", LONG_MS))
    assert first == again
    assert is_current(side, name, first)
    for holder_id in ("h1", "h2"):
        side.execute(op.ReleaseReentrant(name, "owner", holder_id))
    assert not is_current(side, name, first)


def test_readers_share_a_generation_in_shared_mode_and_a_writer_has_its_own(side: Side) -> None:
    name = side.name("lock")
    first = taken(side, op.AcquireRead(name, "r1", LONG_MS))
    second = taken(side, op.AcquireRead(name, "r2", LONG_MS))
    assert first == second
    assert is_current(side, name, first, "shared")
    assert not is_current(side, name, first)
    for holder_id in ("r1", "r2"):
        side.execute(op.ReleaseReadWrite(name, holder_id))
    writer = taken(side, op.AcquireWrite(name, "w", LONG_MS))
    assert is_current(side, name, writer)
    assert not is_current(side, name, first, "shared")
    assert not is_current(side, name, writer, "shared")


def test_a_semaphore_has_no_living_generation(side: Side) -> None:
    name = side.name("lock")
    taken(side, op.AcquirePermit(name, "h", LONG_MS, permits=2))
    with pytest.raises(WrongKind, match=r"has no single current generation$"):
        is_current(side, name, 1)


def test_a_vote_of_a_quorum_has_no_generation(side: Side) -> None:
    name = side.name("lock")
    token = taken(side, op.AcquireLock(name, "h", LONG_MS))
    side.execute(op.ReleaseLock(name, "h"))
    side.execute(op.AcquireVote(name, "h", LONG_MS))
    assert side.execute(op.CheckSequencer(name, "exclusive", token)) == Standing(None, is_good=False)


def test_a_key_that_is_no_lock_is_told_apart(plain_redis_side: Side) -> None:
    name = plain_redis_side.name("lock")
    plain_redis_side.raw().rpush(lock_keys(name).lock, "a list")
    with pytest.raises(WrongKind):
        is_current(plain_redis_side, name, 1)


def test_a_lease_gives_its_sequencer(side: Side) -> None:
    name = side.name("löck: a/b")
    with side.lock(name, ttl=60).acquire(timeout=30) as lease:
        sequencer = Sequencer.parse(lease.sequencer())
        assert sequencer == Sequencer(name, "exclusive", lease.fencing_token)
        assert asked(side, sequencer)
    assert not asked(side, sequencer)


def test_a_readers_lease_gives_a_sequencer_of_shared_mode(side: Side) -> None:
    name = side.name("lock")
    lock = side.made(
        lambda store: ReadWriteLock(store, name, ttl=60).read,
        lambda store: AsyncReadWriteLock(store, name, ttl=60).read,
    )
    with lock.acquire(timeout=30) as lease:
        sequencer = Sequencer.parse(lease.sequencer())
        assert sequencer.mode == "shared"
        assert asked(side, sequencer)
    assert not asked(side, sequencer)


def asked(side: Side, sequencer: Sequencer) -> bool:
    if side.flavour.colour == "async":
        found: bool = side.wait(sequencer.async_is_current(side.store))  # type: ignore[attr-defined]  # of the asynchronous side
        return found
    return sequencer.is_current(side.store)
