"""The line of the processes that wait for a lock: whose turn it is, on a server and in the model alike."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

import pytest

from segmented import MemoryStore, RedisStore
from segmented.clock import ManualClock
from segmented.keys import lock_keys
from segmented.locks import MultiLock
from segmented.models import Acquired, Held, Released
from segmented.plans.line import AHEAD_SECONDS, Line, Place, stagger
from segmented.protocol import (
    AcquireLock,
    AcquireRead,
    AcquireWrite,
    LeaveLine,
    Operation,
    ReleaseLock,
    ReleaseReadWrite,
)
from segmented.protocol.lock import LEFT_MS, LINE_TTL_MS, NEWCOMER, NEWCOMERS_MAX, WAITERS_MAX
from segmented.protocol.reentrant import AcquireReentrant, ReleaseReentrant
from segmented.protocol.semaphore import AcquirePermit, ReleasePermit
from tests.fixtures.suite import let_bounds_be
from tests.support.contract.parking import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from segmented.servers import ValkeyServer


AnswerT = TypeVar("AnswerT")


KINDS: dict[str, tuple[Callable[[str, str, str], Operation[Any]], Callable[[str, str], Operation[Any]]]] = {
    "lock": (
        lambda name, holder, party: AcquireLock(name, holder, 60_000, party=party),
        ReleaseLock,
    ),
    "reentrant": (
        lambda name, holder, party: AcquireReentrant(name, f"owner {holder}", holder, 60_000, party=party),
        lambda name, holder: ReleaseReentrant(name, f"owner {holder}", holder),
    ),
    "write": (
        lambda name, holder, party: AcquireWrite(name, holder, 60_000, 0, party),
        ReleaseReadWrite,
    ),
    "semaphore": (
        lambda name, holder, party: AcquirePermit(name, holder, 60_000, 1, party=party),
        ReleasePermit,
    ),
}
"""Kinds with a line -> the operation that acquires, and the one that releases."""


class Door:
    """One lock, asked for as by many processes."""

    def __init__(self, store: RedisStore | MemoryStore, kind: str = "lock") -> None:
        self._store, self.name = store, uuid4().hex
        self._acquiring, self._releasing = KINDS[kind]
        self._count = 0

    def ask(self, holder: str, party: str = "") -> Acquired | Held:
        answer = self._store.execute(self._acquiring(self.name, holder, party))
        assert isinstance(answer, (Acquired, Held))
        return answer

    def release(self, holder: str) -> None:
        assert self._store.execute(self._releasing(self.name, holder)) == Released()

    def takes(self, party: str = NEWCOMER) -> bool:
        """Return whether a caller gets the lock; give it back at once."""
        self._count += 1
        holder = f"h{self._count}"
        if isinstance(self.ask(holder, party), Held):
            return False
        self.release(holder)
        return True


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=["memory", "redis"])
def store(request: pytest.FixtureRequest, clock: ManualClock, valkey_url: str) -> Iterator[RedisStore | MemoryStore]:
    if request.param == "memory":
        yield MemoryStore(clock=clock)
        return
    with RedisStore.from_url(valkey_url) as found:
        yield found


@pytest.fixture(params=list(KINDS))
def door(request: pytest.FixtureRequest, store: RedisStore | MemoryStore) -> Door:
    """A lock of each kind on each store."""
    return Door(store, request.param)


@pytest.fixture
def due_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the turn of the first in line at once, and what is left to it is left for as long as the test lasts."""
    let_bounds_be(0, 60_000, monkeypatch)


def test_an_attempt_of_a_process_that_waits_says_how_many_are_ahead_of_it(door: Door) -> None:
    door.ask("holder")
    answers = [door.ask(f"w{party}", party) for party in "abcab"]
    assert [answer.ahead for answer in answers if isinstance(answer, Held)] == [0, 1, 2, 0, 1]


@pytest.mark.usefixtures("untimed_turns")
@pytest.mark.parametrize(("party", "turns"), [(NEWCOMER, NEWCOMERS_MAX), ("other", WAITERS_MAX)])
def test_a_free_lock_is_left_to_the_first_after_so_many_turns_of_others(door: Door, party: str, turns: int) -> None:
    door.ask("holder")
    door.ask("first", "first")
    door.release("holder")
    assert [door.takes(party) for _ in range(turns + 2)] == [True] * turns + [False, False]
    assert door.takes("first")
    assert door.takes("last")


@pytest.mark.parametrize("kind", KINDS)
def test_after_50_ms_a_free_lock_is_left_to_the_first_after_any_number_of_turns(kind: str, clock: ManualClock) -> None:
    door = Door(MemoryStore(clock=clock), kind)
    door.ask("holder")
    door.ask("first", "first")
    clock.advance(0.049)
    door.release("holder")
    assert door.takes()
    clock.advance(0.002)
    assert (door.takes(), door.takes("first"), door.takes()) == (False, True, True)


@pytest.mark.usefixtures("due_at_once")
def test_a_due_lock_is_left_to_the_first_but_not_by_an_attempt_that_will_not_wait(door: Door) -> None:
    door.ask("holder")
    door.ask("first", "first")
    door.release("holder")
    assert (door.takes(""), door.takes(), door.takes("")) == (True, False, True)
    assert (door.takes("first"), door.takes()) == (True, True)


@pytest.mark.parametrize("kind", KINDS)
def test_a_process_that_does_not_come_in_40_ms_loses_its_place_to_the_next(kind: str, clock: ManualClock) -> None:
    door = Door(MemoryStore(clock=clock), kind)
    door.ask("holder")
    for party in ("dead", "next", "dead too", "last"):
        door.ask(party, party)
    clock.advance(0.06)
    door.release("holder")
    assert not door.takes("next")
    clock.advance(LEFT_MS / 1000 - 0.001)
    assert not door.takes("next")
    clock.advance(0.002)
    assert (door.takes("next"), door.takes("last"), door.takes()) == (True, True, True)


def test_a_process_that_does_not_come_loses_its_place_to_the_next_on_any_store(
    door: Door, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_bounds_be(0, 1, monkeypatch)
    door.ask("holder")
    door.ask("dead", "dead")
    door.ask("next", "next")
    door.release("holder")

    def is_taken() -> bool:
        clock.advance(0.001)
        return door.takes("next")

    wait_until(is_taken)
    assert door.takes()


def test_a_line_to_which_nobody_comes_ends_and_leaves_no_key(valkey: ValkeyServer) -> None:
    with RedisStore.from_url(valkey.url) as store:
        door, client = Door(store), store.client
        keys = lock_keys(door.name)
        door.ask("holder")
        door.ask("first", "first")
        assert 0 < client.pttl(keys.line) <= LINE_TTL_MS
        door.release("holder")
        assert door.takes("first")
        assert (client.exists(keys.line), client.hget(keys.fence, "line")) == (0, None)


def test_a_release_wakes_only_the_first_and_its_turn_wakes_a_process_behind() -> None:
    clock, woken = ManualClock(), list[str]()
    line = Line("freed", "me")
    place = line.join(lambda: woken.append("me"))
    place.ahead = 2
    line.park(place, clock.now() + 60)
    line.hear(clock.now(), "a holder")
    assert line.next_step(place, clock.now(), clock.now() + 100) == clock.now() + AHEAD_SECONDS + stagger(2)
    line.hear(clock.now(), "turn:another")
    after = (LEFT_MS + 1) / 1000 + stagger(2)
    assert line.next_step(place, clock.now(), clock.now() + 100) == pytest.approx(clock.now() + after)
    for said in ("first:another 30000", "taken:"):  # what was free is taken
        line.hear(clock.now(), "a holder")
        line.hear(clock.now(), said)
        assert line.next_step(place, clock.now(), clock.now() + 100) == clock.now() + 60
    line.hear(clock.now(), "turn:*")
    assert line.next_step(place, clock.now(), clock.now() + 100) == clock.now() + stagger(2)
    line.hear(clock.now(), "turn:me")
    assert line.next_step(place, clock.now(), clock.now() + 100) is True


def parked_after_an_attempt(said: list[str], ahead: int) -> tuple[ManualClock, Line, Place]:
    """Return a place whose first attempt found so many ahead, and that heard these messages meanwhile."""
    clock = ManualClock()
    line = Line("freed", "me")
    place = line.join(lambda: None)
    for one in said:
        line.hear(clock.now(), one)
    place.ahead = ahead
    line.park(place, clock.now() + 60)
    return clock, line, place


@pytest.mark.parametrize(
    ("said", "ahead", "after"),
    [
        ("a holder", 2, AHEAD_SECONDS + stagger(2)),  # those ahead are to take it
        ("a holder", 0, 0),
        ("turn:me", 2, 0),
        ("turn:another", 2, 60),
        ("frozen", 2, 0),
    ],
)
def test_a_release_during_an_attempt_is_left_to_the_processes_that_it_found_ahead(
    said: str, ahead: int, after: float
) -> None:
    clock, line, place = parked_after_an_attempt([said], ahead)
    step = line.next_step(place, clock.now(), clock.now() + 100)
    assert step == clock.now() + after if after else step is True


def test_a_process_that_became_first_during_its_attempt_wakes_at_the_next_release() -> None:
    clock, line, place = parked_after_an_attempt(["first:me 30000"], 1)
    assert line.next_step(place, clock.now(), clock.now() + 100) == clock.now() + 30
    line.hear(clock.now(), "a holder")
    assert line.next_step(place, clock.now(), clock.now() + 100) is True


def test_after_one_waiter_had_its_turn_its_process_asks_again_at_the_next_release() -> None:
    clock, line, place = parked_after_an_attempt([], 2)
    served = line.join(lambda: None)
    line.leave(served, inf)
    line.hear(clock.now(), "a holder")
    assert line.next_step(place, clock.now(), clock.now() + 100) is True


@pytest.mark.usefixtures("untimed_turns")
def test_a_process_that_has_not_waited_has_the_turns_of_a_newcomer_and_then_a_place(door: Door) -> None:
    door.ask("holder")
    door.ask("first", "first")
    door.release("holder")
    assert [door.takes(NEWCOMER + "other") for _ in range(NEWCOMERS_MAX)] == [True] * NEWCOMERS_MAX
    refused = door.ask("late", NEWCOMER + "other")
    assert isinstance(refused, Held)
    assert refused.ahead == 1


@pytest.mark.usefixtures("due_at_once")
def test_of_3_permits_2_are_left_to_the_2_that_wait_and_a_newcomer_takes_the_third(
    store: RedisStore | MemoryStore,
) -> None:
    name = uuid4().hex

    def ask(holder: str, party: str = "") -> Acquired | Held:
        return store.execute(AcquirePermit(name, holder, 60_000, 3, party=party))

    for holder in "abc":
        ask(holder)
    ask("w1", "first")
    ask("w2", "second")
    for holder in "abc":
        store.execute(ReleasePermit(name, holder))
    found = [type(ask(f"n{number}", NEWCOMER)) for number in range(2)]
    assert found == [Acquired, Held]
    assert [type(ask(f"late {party}", party)) for party in ("second", "first")] == [Acquired, Acquired]


@pytest.mark.usefixtures("due_at_once")
def test_a_process_that_leaves_loses_its_place_each_time_and_the_next_is_first(
    door: Door, store: RedisStore | MemoryStore
) -> None:
    door.ask("holder")
    for party in "abc":
        door.ask(f"w{party}", party)
    assert [store.execute(LeaveLine(door.name, party)) for party in "acac"] == [True, True, False, False]
    behind = door.ask("wd", "d")
    assert isinstance(behind, Held)
    assert behind.ahead == 1
    door.release("holder")
    assert (door.takes(), door.takes("b")) == (False, True)


@pytest.mark.usefixtures("due_at_once")
def test_an_owner_enters_again_at_once_also_if_other_processes_wait(store: RedisStore | MemoryStore) -> None:
    name = uuid4().hex
    store.execute(AcquireReentrant(name, "me", "1", 60_000))
    store.execute(AcquireReentrant(name, "other", "2", 60_000, party="first"))
    assert isinstance(store.execute(AcquireReentrant(name, "me", "3", 60_000, party=NEWCOMER)), Acquired)


def test_readers_enter_while_a_line_of_writers_is_forgotten_and_its_keys_end(valkey: ValkeyServer) -> None:
    with RedisStore.from_url(valkey.url) as store:
        keys, client = lock_keys("w"), store.client
        store.execute(AcquireRead("w", "r1", 60_000))
        assert store.execute(AcquireWrite("w", "w1", 60_000, 1, "a")) == Held(1, ahead=0)
        assert client.pttl(keys.fence) > 0
        wait_until(lambda: isinstance(store.execute(AcquireRead("w", "r2", 60_000)), Acquired))
        assert store.execute(LeaveLine("w", "a"))
        assert (client.exists(keys.line), client.hget(keys.fence, "line")) == (0, None)


def test_a_multi_lock_that_would_wait_leaves_a_name_to_the_process_whose_turn_it_is(
    valkey: ValkeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("segmented.protocol.lock.LINE", "2 15 0 60000 60000")  # it is its turn at once
    with RedisStore.from_url(valkey.url) as store:
        store.execute(AcquireLock("a", "holder", 60_000))
        store.execute(AcquireLock("a", "first", 60_000, party="first"))
        store.execute(ReleaseLock("a", "holder"))
        asked: list[Any] = []

        def noting(operations: Any, **options: Any) -> Any:  # noqa: ANN401  # what a batch takes and answers
            answers = type(store).execute_many(store, operations, **options)
            asked.append(answers)
            if len(asked) == 1:
                raise KeyboardInterrupt  # it need not wait, and gives all back
            return answers

        store.execute_many = noting  # type: ignore[method-assign]  # listens in
        with pytest.raises(KeyboardInterrupt):
            MultiLock(store, ["a", "b"], ttl=60).acquire(timeout=60)
        assert isinstance(asked[0][0], Held)
        assert isinstance(store.execute(AcquireLock("a", "first", 60_000, party="first")), Acquired)
        store.execute(ReleaseLock("a", "first"))
        MultiLock(store, ["a", "b"], ttl=60).acquire(timeout=0).release()
