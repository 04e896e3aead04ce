"""The historical lock of SETNX, GET and GETSET: what it does, and each of its holes, shown."""

from __future__ import annotations

import asyncio
import os
import pickle
import time
from concurrent.futures import wait
from typing import TYPE_CHECKING, Any, cast

import pytest

from segmented import protocol as op
from segmented.clock import ManualClock, WallClock
from segmented.errors import AcquireTimeout, InvalidInput, LeaseLost, WrongKind
from segmented.keys import lock_keys
from segmented.locks import AsyncGetSetLease, AsyncGetSetLock, GetSetLease, GetSetLock
from segmented.locks.get_set import get_set_plan, give_back_plan
from segmented.plans import Now, Within
from segmented.stores.memory import AsyncMemoryStore, MemoryStore
from segmented.stores.redis import RedisStore
from tests.support.contract.bodies import fail_after
from tests.support.contract.locks.shared import LONG, PATIENCE, SOON, book
from tests.support.contract.parking import lines_of

if TYPE_CHECKING:
    from segmented.clock import Clock
    from segmented.plans import Plan
    from tests.fixtures.stores import Side
    from tests.support.proxy import RedisProxy

NOON = 1_700_000_000.0
TTL = 10.0


def old_lock(side: Side, name: str, clock: Clock, *, ttl: float = TTL) -> GetSetLock:
    return side.made(
        lambda store: GetSetLock(store, name, ttl=ttl, wall_clock=clock),
        lambda store: AsyncGetSetLock(store, name, ttl=ttl, wall_clock=clock),
    )


class SetBack:
    """A wall clock that somebody sets."""

    seconds = NOON

    def now(self) -> float:
        return self.seconds


class Client:
    """A client of the algorithm that the test stops between any two commands."""

    def __init__(self, side: Side, plan: Plan[Any]) -> None:
        self._side, self._plan = side, plan
        self._effect: Any = None
        self._outcome: object = None
        self._go_on(None)

    @classmethod
    def acquiring(cls, side: Side, name: str, clock: Clock) -> Client:
        return cls(side, get_set_plan(name, TTL, timeout=0, wall_clock=clock))

    def stop_before(self, kind: type[op.Operation[Any]]) -> Client:
        """Go on until the next command is of this kind."""
        while not isinstance(self._next_command(), kind):
            self._perform()
        return self

    def outcome(self) -> object:
        """Go on to the end; return the outcome, or None for a lock that was held."""
        while self._effect is not None:
            self._perform()
        return self._outcome

    def _next_command(self) -> object:
        return self._effect.operation if isinstance(self._effect, Within) else self._effect

    def _perform(self) -> None:
        command = self._next_command()
        self._go_on(self._side.clock.now() if isinstance(command, Now) else self._side.execute(cast("Any", command)))

    def _go_on(self, reply: object) -> None:
        try:
            self._effect = self._plan.send(reply)
        except StopIteration as stop:
            self._effect, self._outcome = None, stop.value
        except AcquireTimeout:
            self._effect = None


# --- what it does, while the clocks agree ---


def test_one_holds_it_and_then_the_next(side: Side) -> None:
    name, clock = side.name("old"), ManualClock(NOON)
    lock = old_lock(side, name, clock)
    lease = lock.acquire(timeout=0)
    assert lease.expires_at == NOON + TTL
    assert side.execute(op.GetValue(name)) == "1700000010.000000"
    assert lock.try_acquire() is None
    lease.release()
    assert side.execute(op.GetValue(name)) == ""
    lock.acquire(timeout=0).release()


def test_an_expired_value_is_taken_over(side: Side) -> None:
    name, clock = side.name("old"), ManualClock(NOON)
    dead = old_lock(side, name, clock).acquire(timeout=0)
    clock.advance(TTL - 0.001)
    assert old_lock(side, name, clock).try_acquire() is None
    clock.advance(0.002)
    lease = old_lock(side, name, clock).acquire(timeout=0)
    with pytest.raises(LeaseLost):
        dead.release()
    assert old_lock(side, name, clock).try_acquire() is None
    lease.release()


def test_of_two_that_find_it_expired_one_gets_it(side: Side) -> None:
    name, clock = side.name("old"), ManualClock(NOON)
    side.execute(op.SetNx(name, f"{NOON - 1:.6f}"))
    clients = [Client.acquiring(side, name, clock).stop_before(op.GetSet) for _ in range(2)]
    assert [client.outcome() for client in clients] == [NOON + TTL, None]


def test_a_key_that_vanished_between_the_commands_is_tried_again(waiting_side: Side) -> None:
    name = waiting_side.name("old")
    lease = old_lock(waiting_side, name, WallClock()).acquire(timeout=0)
    late = Client.acquiring(waiting_side, name, WallClock()).stop_before(op.GetValue)
    lease.release()
    assert late.outcome() is None
    with old_lock(waiting_side, name, WallClock()).acquire(timeout=PATIENCE) as again:
        assert again.is_trusted


def test_a_lease_knows_its_end_by_its_own_clock(side: Side) -> None:
    clock = ManualClock(NOON)
    lease = old_lock(side, side.name("old"), clock).acquire(timeout=0)
    assert (lease.is_trusted, lease.is_lost, lease.remaining()) == (True, False, TTL)
    lease.require()
    clock.advance(TTL)
    assert (lease.is_trusted, lease.is_lost, lease.remaining()) == (False, True, 0)
    with pytest.raises(LeaseLost):
        lease.require()


def test_a8_the_bodys_own_error_is_not_hidden(side: Side) -> None:
    clock = ManualClock(NOON)
    lease = old_lock(side, side.name("old"), clock).acquire(timeout=0)
    with pytest.raises(ZeroDivisionError) as caught, lease:
        fail_after(lambda: clock.advance(TTL))
    assert len(caught.value.__notes__) == 1


def test_it_polls_until_the_holder_releases_it(waiting_side: Side) -> None:
    lock = old_lock(waiting_side, waiting_side.name("old"), WallClock(), ttl=LONG)
    held = lock.acquire(timeout=0)
    waiters = [waiting_side.start(lambda: lock.acquire(timeout=PATIENCE)) for _ in range(3)]
    held.release()
    for _ in range(3):
        done = wait(waiters, timeout=SOON, return_when="FIRST_COMPLETED").done
        first = next(iter(done))
        waiters.remove(first)
        first.result().release()
    assert lines_of(waiting_side.store) == {}


def test_it_gives_up_at_the_deadline(waiting_side: Side) -> None:
    name = waiting_side.name("old")
    lock = old_lock(waiting_side, name, WallClock(), ttl=LONG)
    held = lock.acquire(timeout=0)
    began = time.monotonic()
    with pytest.raises(AcquireTimeout, match=f"^lock '{name}' was not free within 0.4 s$"):
        lock.acquire(timeout=0.4)
    assert time.monotonic() - began >= 0.4
    assert lines_of(waiting_side.store) == {}
    held.release()


def test_a_cancelled_poll_leaves_the_line() -> None:
    async def body() -> None:
        store = AsyncMemoryStore()
        lock = AsyncGetSetLock(store, "x")
        async with lock.acquire():
            task = asyncio.ensure_future(lock.acquire())
            while not lines_of(store):  # noqa: ASYNC110  # a line has no event for who joins it
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert lines_of(store) == {}

    asyncio.run(body())


# --- its holes ---


def test_hole_1_a_clock_that_is_ahead_takes_a_lock_that_is_held(side: Side) -> None:
    name, right, ahead = side.name("old"), ManualClock(NOON), ManualClock(NOON + TTL + 1)
    first = old_lock(side, name, right).acquire(timeout=0)
    second = old_lock(side, name, ahead).acquire(timeout=0)
    first.require()
    second.require()
    assert first.remaining() == TTL
    assert second.remaining() == TTL


def test_hole_1_a_clock_that_is_set_back_while_it_holds_lets_the_holder_believe_too_long(side: Side) -> None:
    name, steady, stepped = side.name("old"), ManualClock(NOON), SetBack()
    first = old_lock(side, name, stepped).acquire(timeout=0)
    steady.advance(TTL)
    stepped.seconds = NOON + TTL - 60
    second = old_lock(side, name, steady).acquire(timeout=0)
    first.require()
    second.require()


def test_hole_2_the_losers_getset_puts_off_the_winners_expiry(side: Side) -> None:
    name, clock, slow = side.name("old"), ManualClock(NOON), ManualClock(NOON)
    side.execute(op.SetNx(name, f"{NOON - 1:.6f}"))
    winner, loser = (Client.acquiring(side, name, one).stop_before(op.GetValue) for one in (clock, slow))
    slow.advance(5)
    loser.stop_before(op.GetSet)
    assert winner.outcome() == NOON + TTL
    assert loser.outcome() is None
    assert side.execute(op.GetValue(name)) == f"{NOON + 5 + TTL:.6f}"
    clock.advance(TTL + 1)
    assert old_lock(side, name, clock).try_acquire() is None


def test_hole_3_an_owner_that_overslept_deletes_its_successors_lock(side: Side) -> None:
    name, clock = side.name("old"), ManualClock(NOON)
    old_lock(side, name, clock).acquire(timeout=0)
    sleeper = Client(side, give_back_plan(name, NOON + TTL, wall_clock=clock)).stop_before(op.DeleteValue)
    clock.advance(TTL)
    second = old_lock(side, name, clock).acquire(timeout=0)
    assert sleeper.outcome() is True
    third = old_lock(side, name, clock).acquire(timeout=0)
    second.require()
    third.require()


def test_hole_4_a_setnx_whose_reply_was_lost_locks_its_own_client_out(proxy: RedisProxy) -> None:
    with RedisStore.from_url(proxy.url) as store:
        lock = GetSetLock(store, "old-lost-reply", ttl=LONG)
        lock.acquire(timeout=0).release()
        proxy.swallow_replies(1, to=b"SETNX")
        assert lock.try_acquire() is None
        assert proxy.swallowed == 1
        assert store.execute(op.DeleteValue("old-lost-reply"))


def test_hole_5_a_dead_holders_key_stays_for_ever(redis_side: Side) -> None:
    name = redis_side.name("old")
    old_lock(redis_side, name, WallClock(), ttl=0.001).acquire(timeout=0)
    assert redis_side.raw().pttl(lock_keys(name).lock) == -1
    assert redis_side.raw().delete(lock_keys(name).lock) == 1


# --- what it cannot offer, and says so ---


@pytest.mark.parametrize("missing", ["fencing_token", "holder_id", "renew", "lost", "on_lost", "cancel_scope"])
def test_its_leases_have_no_such_attribute(missing: str) -> None:
    lease = GetSetLock(MemoryStore(), "x").acquire(timeout=0)
    assert not hasattr(lease, missing)
    assert not hasattr(AsyncGetSetLease, missing)


def test_it_is_labelled() -> None:
    clock = ManualClock(NOON)
    lock = GetSetLock(MemoryStore(), "x", ttl=TTL, wall_clock=clock)
    assert repr(lock) == "GetSetLock('x', ttl=10) (historical, unsafe under clock skew)"
    assert repr(lock.acquire()) == "<GetSetLease 'x' 10.000 s left (historical, unsafe under clock skew)>"
    assert repr(AsyncGetSetLock(AsyncMemoryStore(), "x")).endswith("(historical, unsafe under clock skew)")
    for kind in (GetSetLock, AsyncGetSetLock, GetSetLease, AsyncGetSetLease):
        assert "historical" in (kind.__doc__ or "")


def test_a_name_belongs_to_one_kind_of_lock_at_a_time(side: Side) -> None:
    name = side.name("old")
    lock = old_lock(side, name, ManualClock(NOON))
    with side.lock(name, ttl=LONG).acquire(timeout=0), pytest.raises(WrongKind):
        lock.acquire(timeout=0)
    with book(side, name).read.acquire(timeout=0), pytest.raises(WrongKind):
        lock.acquire(timeout=0)
    with lock.acquire(timeout=0), pytest.raises(WrongKind):
        book(side, name).read.acquire(timeout=0)


def test_bad_input_is_refused_at_once() -> None:
    with pytest.raises(InvalidInput, match=r"^ttl of 0 s is not a duration"):
        GetSetLock(MemoryStore(), "x", ttl=0)
    with pytest.raises(InvalidInput, match=r"^a lock needs a name$"):
        AsyncGetSetLock(AsyncMemoryStore(), "")
    with pytest.raises(InvalidInput, match=r"^timeout of -1 s is not a waiting time"):
        GetSetLock(MemoryStore(), "x").acquire(timeout=-1)
    lease = GetSetLock(MemoryStore(), "x").acquire(timeout=0)
    with pytest.raises(InvalidInput, match=r"^the lease on 'x' cannot be pickled"):
        pickle.dumps(lease)
    lease._process_id = os.getpid() + 1  # noqa: SLF001  # as after a fork
    with pytest.raises(InvalidInput, match=r"^the lease on 'x' belongs to process"):
        lease.release()
