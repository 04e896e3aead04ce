"""Reentrant locks, semaphores, and locks of readers and writers."""

import pytest

from segmented import protocol as op
from segmented.errors import AcquireTimeout, InvalidInput, LeaseLost, PermitsMismatch
from segmented.keys import read_write_keys
from segmented.locks import AsyncReadWriteLock, ReadWriteLock
from segmented.locks.read_write import PRESENCE_MS_MAX, WriteClaim, WriteTry, write_claim
from segmented.models import Acquired, Held, Lost, Released, Renewed
from segmented.stores.memory import AsyncMemoryStore, MemoryStore
from tests.fixtures.stores import Side
from tests.support.contract.locks.shared import book, let_lapse, room

LONG_MS = 60_000


def enter(side: Side, name: str, owner: str, holder_id: str, *, ttl_ms: int = LONG_MS) -> Acquired:
    answer = side.execute(op.AcquireReentrant(name, owner, holder_id, ttl_ms))
    assert isinstance(answer, Acquired), answer
    return answer


def left_ms(side: Side, name: str) -> int:
    """Return how long the lock still lives, as another owner is told."""
    answer = side.execute(op.AcquireReentrant(name, "somebody else", "s", LONG_MS, only_again=True))
    assert isinstance(answer, Held), answer
    return answer.free_in_ms or 0


# --- counting ---


def test_a7_a_release_that_is_sent_twice_takes_one_off(side: Side) -> None:
    name = side.name("lock")
    enter(side, name, "a", "a1")
    enter(side, name, "a", "a2")
    assert side.execute(op.ReleaseReentrant(name, "a", "a1")) == Released()
    assert side.execute(op.ReleaseReentrant(name, "a", "a1")) == Lost()
    assert isinstance(side.execute(op.AcquireReentrant(name, "b", "b1", LONG_MS)), Held)
    assert side.execute(op.RenewReentrant(name, "a", "a2", LONG_MS)) == Renewed(LONG_MS)


@pytest.mark.parametrize(("owner", "holder_id"), [("b", "a1"), ("a", "a9"), ("b", "b1")])
def test_h1_nobody_else_takes_anything_off_or_renews(side: Side, owner: str, holder_id: str) -> None:
    name = side.name("lock")
    enter(side, name, "a", "a1")
    assert side.execute(op.ReleaseReentrant(name, owner, holder_id)) == Lost()
    assert side.execute(op.RenewReentrant(name, owner, holder_id, 1)) == Lost()
    assert left_ms(side, name) > LONG_MS / 2
    assert side.execute(op.ReleaseReentrant(name, "a", "a1")) == Released()
    enter(side, name, "b", "b1")


def test_g3_reentry_keeps_the_fencing_token_and_the_next_owner_has_a_greater_one(side: Side) -> None:
    name = side.name("lock")
    tokens = [enter(side, name, "a", f"a{index}").fencing_token for index in range(3)]
    assert len(set(tokens)) == 1
    for index in range(3):
        side.execute(op.ReleaseReentrant(name, "a", f"a{index}"))
    assert enter(side, name, "a", "again").fencing_token > tokens[0]


# --- time to live ---


def test_h4_a_partial_release_leaves_the_time_to_live_as_it_is(side: Side) -> None:
    name = side.name("lock")
    enter(side, name, "a", "a1", ttl_ms=LONG_MS)
    enter(side, name, "a", "a2", ttl_ms=LONG_MS)
    side.pass_time(0.2)
    side.execute(op.ReleaseReentrant(name, "a", "a2"))
    assert 30_000 < left_ms(side, name) <= LONG_MS - 200


def test_an_entry_for_a_shorter_time_does_not_shorten_what_another_was_promised(side: Side) -> None:
    name = side.name("lock")
    enter(side, name, "a", "long", ttl_ms=LONG_MS)
    enter(side, name, "a", "short", ttl_ms=25_000)
    assert left_ms(side, name) > LONG_MS / 2
    assert side.execute(op.RenewReentrant(name, "a", "short", 25_000)) == Renewed(25_000)
    assert left_ms(side, name) > LONG_MS / 2
    side.execute(op.ReleaseReentrant(name, "a", "long"))
    assert left_ms(side, name) > LONG_MS / 2
    side.execute(op.RenewReentrant(name, "a", "short", 25_000))
    assert left_ms(side, name) <= 25_000


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


# --- who may be in ---


def test_a_writer_is_in_alone(side: Side) -> None:
    lock = book(side, side.name("book"))
    writer = lock.write.acquire(timeout=0)
    assert lock.write.try_acquire() is None
    assert lock.read.try_acquire() is None
    writer.release()
    reader = lock.read.acquire(timeout=0)
    assert lock.write.try_acquire() is None
    reader.release()
    lock.write.acquire(timeout=0).release()


# --- ends ---


def test_a_reader_that_lapsed_is_not_kept_alive_by_one_that_is_renewed(side: Side) -> None:
    name = side.name("book")
    dead, living = op.AcquireRead(name, "dead", 40), op.AcquireRead(name, "living", 60_000)
    side.execute(dead)
    side.execute(living)
    side.pass_time(0.05)
    side.execute(op.RenewReadWrite(name, "living", 60_000))
    assert side.execute(op.RenewReadWrite(name, "dead", 60_000)) == Lost()
    side.execute(op.ReleaseReadWrite(name, "living"))
    assert isinstance(side.execute(op.AcquireWrite(name, "w", 60_000)), Acquired)


def test_a_lapsed_writer_lets_others_in_and_learns_of_it(side: Side) -> None:
    name = side.name("book")
    writer = book(side, name).write.acquire(timeout=0)
    let_lapse(side, writer)
    reader = book(side, name).read.acquire(timeout=0)
    assert reader.fencing_token > writer.fencing_token
    with pytest.raises(LeaseLost):
        writer.release()
    reader.renew()
    reader.release()


def test_a_repeat_by_the_same_holder_keeps_its_lease_and_its_token(side: Side) -> None:
    for kind in (op.AcquireRead, op.AcquireWrite):
        name = side.name("book")
        first, again = (side.execute(kind(name, "h", 60_000)) for _ in range(2))
        assert isinstance(first, Acquired)
        assert isinstance(again, Acquired)
        assert (first.replay, again.replay) == (False, True)
        assert again.fencing_token == first.fencing_token


def test_deleting_the_main_key_ends_every_lease(redis_side: Side) -> None:
    name, server = redis_side.name("book"), redis_side.raw()
    lock = book(redis_side, name)
    readers = [lock.read.acquire(timeout=0) for _ in range(2)]
    server.delete(read_write_keys(name).lock)
    new = lock.read.acquire(timeout=0)
    assert new.fencing_token > readers[0].fencing_token
    for reader in readers:
        with pytest.raises(LeaseLost):
            reader.renew()
    new.release()
    lock.write.acquire(timeout=0).release()


def test_after_the_fence_has_lapsed_under_a_reader_tokens_still_grow(redis_side: Side) -> None:
    name = redis_side.name("book")
    lock = book(redis_side, name)
    first = lock.read.acquire(timeout=0)
    redis_side.raw().delete(read_write_keys(name).fence)
    second = lock.read.acquire(timeout=0)
    assert second.fencing_token == first.fencing_token
    first.release()
    second.release()
    with lock.write.acquire(timeout=0) as writer:
        assert writer.fencing_token > first.fencing_token


# --- the door ---


def test_a_waiting_writer_shuts_the_door_to_new_readers(side: Side) -> None:
    name = side.name("book")
    lock = book(side, name)
    reader = lock.read.acquire(timeout=0)
    assert isinstance(side.execute(op.AcquireWrite(name, "w", 60_000, presence_ms=60_000)), Held)
    assert lock.read.try_acquire() is None
    reader.release()
    assert lock.read.try_acquire() is None
    assert isinstance(side.execute(op.AcquireWrite(name, "w", 60_000, presence_ms=60_000)), Acquired)
    side.execute(op.ReleaseReadWrite(name, "w"))
    lock.read.acquire(timeout=0).release()


def test_a_writer_that_died_waiting_keeps_readers_out_for_its_presence_only(side: Side) -> None:
    name = side.name("book")
    lock = book(side, name)
    reader = lock.read.acquire(timeout=0)
    answer = side.execute(op.AcquireWrite(name, "dying", 60_000, presence_ms=60_000))
    assert answer == Held(20_000)
    assert lock.read.try_acquire() is None
    assert side.execute(op.AcquireWrite(name, "dying", 60_000, presence_ms=60)) == Held(20)
    side.pass_time(0.07)
    lock.read.acquire(timeout=0).release()
    reader.release()


@pytest.mark.parametrize(
    ("ttl_ms", "timeout", "claim"),
    [
        (30_000, 0, WriteTry("x", "h", 30_000, 0)),
        (30_000, None, WriteClaim("x", "h", 30_000, PRESENCE_MS_MAX)),
        (2_000, 60.0, WriteClaim("x", "h", 2_000, 2_000)),
        (30_000, 0.5, WriteClaim("x", "h", 30_000, 500)),
        (30_000, 1e-9, WriteClaim("x", "h", 30_000, 1)),
    ],
)
def test_a_presence_outlasts_neither_the_lease_nor_ten_seconds_nor_the_wait(
    ttl_ms: int, timeout: float | None, claim: WriteTry
) -> None:
    made = write_claim("x", ttl_ms, timeout)
    assert type(made) is type(claim)
    assert made.presence_ms == claim.presence_ms
    assert made.leaves_traces == (timeout != 0)
    assert made.acquiring_in_line("me").party == "me"  # so that a release wakes one process only


# --- refused ---


def test_bad_input_is_refused_at_once() -> None:
    store = MemoryStore()
    with pytest.raises(InvalidInput, match=r"^ttl of 0 s is not a duration"):
        ReadWriteLock(store, "x", ttl=0)
    with pytest.raises(InvalidInput, match=r"^a lock needs a name$"):
        ReadWriteLock(store, "")
    with pytest.raises(InvalidInput, match=r"^timeout of -1 s is not a waiting time"):
        ReadWriteLock(store, "x").write.acquire(timeout=-1)
    assert repr(ReadWriteLock(store, "x", ttl=2)) == "ReadWriteLock('x', ttl=2)"
    assert repr(AsyncReadWriteLock(AsyncMemoryStore(), "x", ttl=2)) == "AsyncReadWriteLock('x', ttl=2)"


# --- who is told ---


def test_a_caller_that_may_wait_for_its_own_lease_is_told_so(side: Side) -> None:
    name = side.name("book")
    lock, said = book(side, name), f"lock '{name}' was not free within 0 s"
    own = ": this process has a lease on it; a caller that has one must release it before it waits for another"
    for first, second in ((lock.read, lock.write), (lock.write, lock.read), (lock.write, lock.write)):
        lease = first.acquire(timeout=0)
        with pytest.raises(AcquireTimeout) as caught:
            second.acquire(timeout=0)
        assert (str(caught.value), caught.value.is_held_here) == (said + own, True)
        lease.release()
    elsewhere = book(side, name).read.acquire(timeout=0)
    with pytest.raises(AcquireTimeout) as caught:
        lock.write.acquire(timeout=0)
    assert (str(caught.value), caught.value.is_held_here) == (said, False)
    elsewhere.release()
