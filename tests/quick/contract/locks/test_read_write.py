"""Many readers or one writer, on every store and in both colours: who may be in, until when, and who shuts the door."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from segmented import protocol as op
from segmented.clock import ManualClock
from segmented.errors import AcquireTimeout, InvalidInput, LeaseLost, WrongKind
from segmented.keys import read_write_keys
from segmented.locks import AsyncReadWriteLock, ReadWriteLock
from segmented.locks.read_write import PRESENCE_MS_MAX, WriteClaim, WriteTry, write_claim
from segmented.models import Acquired, Held, Lost
from segmented.stores.memory import AsyncMemoryStore, MemoryModel, MemoryStore
from tests.support.contract.locks.shared import LONG, book, let_lapse

if TYPE_CHECKING:
    from tests.fixtures.stores import Side


# --- who may be in ---


def test_readers_are_in_together_and_share_the_token_of_their_phase(side: Side) -> None:
    lock = book(side, side.name("book"))
    first, second, third = (lock.read.acquire(timeout=0) for _ in range(3))
    assert first.fencing_token == second.fencing_token == third.fencing_token
    assert len({first.holder_id, second.holder_id, third.holder_id}) == 3


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


def test_a_try_to_write_leaves_the_door_open(side: Side) -> None:
    lock = book(side, side.name("book"))
    reader = lock.read.acquire(timeout=0)
    assert lock.write.try_acquire() is None
    lock.read.acquire(timeout=0).release()
    reader.release()


# --- ends ---


def test_each_reader_lapses_on_its_own(side: Side) -> None:
    name = side.name("book")
    dead, living = (book(side, name).read.acquire(timeout=0) for _ in range(2))
    let_lapse(side, dead)
    living.renew()
    with pytest.raises(LeaseLost):
        dead.release()
    assert book(side, name).write.try_acquire() is None
    living.release()
    book(side, name).write.acquire(timeout=0).release()


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


@pytest.mark.parametrize("is_writer", [False, True])
def test_a_lease_is_renewed_and_its_end_is_pushed_out(side: Side, *, is_writer: bool) -> None:
    name = side.name("book")
    lock = book(side, name, ttl=60.0)
    lease = (lock.write if is_writer else lock.read).acquire(timeout=0)
    lease.renew(ttl=LONG)
    held = side.execute(op.AcquireWrite(name, "other", 60_000))
    assert isinstance(held, Held)
    assert 500_000 < (held.free_in_ms or 0) <= 600_000
    lease.require()
    assert book(side, name).write.try_acquire() is None
    lease.release()


def test_a_repeat_by_the_same_holder_keeps_its_lease_and_its_token(side: Side) -> None:
    for kind in (op.AcquireRead, op.AcquireWrite):
        name = side.name("book")
        first, again = (side.execute(kind(name, "h", 60_000)) for _ in range(2))
        assert isinstance(first, Acquired)
        assert isinstance(again, Acquired)
        assert (first.replay, again.replay) == (False, True)
        assert again.fencing_token == first.fencing_token


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


def test_a_waiting_writer_that_is_in_already_stays_in_though_another_waits(side: Side) -> None:
    name = side.name("book")
    assert isinstance(side.execute(op.AcquireRead(name, "r", 60_000)), Acquired)
    side.execute(op.AcquireWrite(name, "w", 60_000, presence_ms=60_000))
    again = side.execute(op.AcquireRead(name, "r", 60_000))
    assert isinstance(again, Acquired)
    assert again.replay


def test_the_door_opens_only_when_the_last_of_the_waiting_writers_has_gone(side: Side) -> None:
    name = side.name("book")
    side.execute(op.AcquireRead(name, "r", 60_000))
    for writer in ("w1", "w2"):
        side.execute(op.AcquireWrite(name, writer, 60_000, presence_ms=60_000))
    for writer, opens in (("w1", False), ("w2", True)):
        side.execute(op.ReleaseReadWrite(name, writer))
        assert isinstance(side.execute(op.AcquireRead(name, f"after {writer}", 60_000)), Acquired) == opens


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


def test_a_hash_of_another_kind_is_refused_and_left_alone(redis_side: Side) -> None:
    name, server = redis_side.name("book"), redis_side.raw()
    server.hset(read_write_keys(name).lock, "somebody", "1")
    for handle in (book(redis_side, name).read, book(redis_side, name).write):
        with pytest.raises(WrongKind, match=f"^the name '{name}' belongs to another kind of lock"):
            handle.acquire(timeout=0)
    assert server.hgetall(read_write_keys(name).lock) == {"somebody": "1"}
    server.delete(read_write_keys(name).lock)


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


@pytest.mark.parametrize("presence_ms", [1, 60_000])
def test_a_writer_that_gives_up_wakes_nobody_if_it_kept_nobody_out(presence_ms: int) -> None:
    clock = ManualClock()
    model = MemoryModel(clock)
    model.execute(op.AcquireWrite("book", "w1", 60_000, 60_000))
    model.execute(op.AcquireWrite("book", "w2", 60_000, presence_ms))
    clock.advance(0.003)
    model.execute(op.ReleaseReadWrite("book", "w2"))
    assert model.take_freed() == []


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
