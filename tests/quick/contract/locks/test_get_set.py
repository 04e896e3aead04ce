"""The historical lock of SETNX, GET and GETSET: what it does, and each of its holes, shown."""

from __future__ import annotations

import asyncio
import pickle
from typing import Any, cast

import pytest

from segmented import protocol as op
from segmented.clock import Clock, ManualClock
from segmented.errors import AcquireTimeout, InvalidInput, LeaseLost, WrongKind
from segmented.locks import AsyncGetSetLock, GetSetLock
from segmented.locks.other_servers.get_set import get_set_plan, give_back_plan
from segmented.plans import Now, Plan, Within
from segmented.stores.memory import AsyncMemoryStore, MemoryStore
from tests.fixtures.stores import Side
from tests.support.contract.locks.shared import LONG, book
from tests.support.contract.parking import lines_of

NOON = 1_700_000_000.0
TTL = 10.0


def old_lock(side: Side, name: str, clock: Clock, *, ttl: float = TTL) -> GetSetLock:
    return side.made(
        lambda store: GetSetLock(store, name, ttl=ttl, wall_clock=clock),
        lambda store: AsyncGetSetLock(store, name, ttl=ttl, wall_clock=clock),
    )


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


# --- what it cannot offer, and says so ---


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


def test_a_lease_knows_its_end_by_its_own_clock(side: Side) -> None:
    clock = ManualClock(NOON)
    lease = old_lock(side, side.name("old"), clock).acquire(timeout=0)
    assert (lease.is_trusted, lease.is_lost, lease.remaining()) == (True, False, TTL)
    lease.require()
    clock.advance(TTL)
    assert (lease.is_trusted, lease.is_lost, lease.remaining()) == (False, True, 0)
    with pytest.raises(LeaseLost):
        lease.require()
