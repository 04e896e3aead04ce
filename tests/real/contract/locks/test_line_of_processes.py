"""The line of the processes that wait for a lock: whose turn it is, on a server and in the model alike."""

from __future__ import annotations

import threading
import time
from math import inf
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from segmented import (
    Lock,
    MemoryStore,
    RedisStore,
)
from segmented.clock import ManualClock
from segmented.keys import lock_keys
from segmented.locks.lock import LockClaim
from segmented.models import Acquired, Held, Released
from segmented.plans.line import AHEAD_SECONDS, Line, Place
from segmented.protocol import AcquireLock, LeaveLine, Operation, ReleaseLock
from segmented.protocol.lock.operations import (
    LEFT_MS,
    LINE_TTL_MS,
    NEWCOMER,
    NEWCOMERS_MAX,
    WAITERS_MAX,
)
from segmented.protocol.read_write.operations import AcquireWrite, ReleaseReadWrite
from segmented.protocol.reentrant.operations import AcquireReentrant, ReleaseReentrant
from segmented.protocol.semaphore.operations import AcquirePermit, ReleasePermit
from segmented.stores.redis import listener
from tests.support.contract.parking import has_come_to_rest, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from segmented.servers import ValkeyServer
    from tests.support.contract.parking import CountScripts

AnswerT = TypeVar("AnswerT")
PAST_LEFT: float = LEFT_MS / 1000 + 0.01


@pytest.fixture(params=["redis", "memory"])
def store(request: pytest.FixtureRequest, valkey: ValkeyServer) -> Iterator[RedisStore | MemoryStore]:
    """Each store, empty."""
    if request.param == "memory":
        yield MemoryStore()
        return
    with RedisStore.from_url(valkey.url) as found:
        yield found


KINDS: dict[str, tuple[Callable[[str, str], Operation[Any]], Callable[[str], Operation[Any]]]] = {
    "lock": (
        lambda holder, party: AcquireLock("door", holder, 60_000, party=party),
        lambda holder: ReleaseLock("door", holder),
    ),
    "reentrant": (
        lambda holder, party: AcquireReentrant("door", f"owner {holder}", holder, 60_000, party=party),
        lambda holder: ReleaseReentrant("door", f"owner {holder}", holder),
    ),
    "write": (
        lambda holder, party: AcquireWrite("door", holder, 60_000, 0, party),
        lambda holder: ReleaseReadWrite("door", holder),
    ),
    "semaphore": (
        lambda holder, party: AcquirePermit("door", holder, 60_000, 1, party=party),
        lambda holder: ReleasePermit("door", holder),
    ),
}
"""Kinds with a line -> the operation that acquires, and the one that releases."""


class Door:
    """One lock, asked for as by many processes."""

    def __init__(self, store: RedisStore | MemoryStore, kind: str = "lock") -> None:
        self._store = store
        self._acquiring, self._releasing = KINDS[kind]
        self._count = 0

    def ask(self, holder: str, party: str = "") -> Acquired | Held:
        answer = self._store.execute(self._acquiring(holder, party))
        assert isinstance(answer, (Acquired, Held))
        return answer

    def release(self, holder: str) -> None:
        assert self._store.execute(self._releasing(holder)) == Released()

    def takes(self, party: str = NEWCOMER) -> bool:
        """Return whether a caller gets the lock; give it back at once."""
        self._count += 1
        holder = f"h{self._count}"
        if isinstance(self.ask(holder, party), Held):
            return False
        self.release(holder)
        return True


@pytest.fixture(params=list(KINDS))
def door(request: pytest.FixtureRequest, store: RedisStore | MemoryStore) -> Door:
    """A lock of each kind on each store."""
    return Door(store, request.param)


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


@pytest.mark.usefixtures("left_for_long")
def test_after_fifty_milliseconds_a_free_lock_is_left_to_the_first_however_few_turns_others_had(
    door: Door,
) -> None:
    door.ask("holder")
    door.ask("first", "first")
    time.sleep(0.06)
    door.release("holder")
    assert (door.takes(), door.takes("first"), door.takes()) == (False, True, True)


def test_an_attempt_that_will_not_wait_takes_a_free_lock_also_if_others_wait(door: Door) -> None:
    door.ask("holder")
    door.ask("gone", "gone")
    time.sleep(0.06)
    door.release("holder")
    assert (door.takes(""), door.takes(), door.takes("")) == (True, False, True)


def test_a_process_that_does_not_come_in_fifty_milliseconds_loses_its_place_to_the_next(
    door: Door,
) -> None:
    door.ask("holder")
    door.ask("dead", "dead")
    door.ask("next", "next")
    time.sleep(0.06)
    door.release("holder")
    assert not door.takes("next")
    time.sleep(PAST_LEFT)
    assert (door.takes("next"), door.takes()) == (True, True)


def test_a_line_to_which_nobody_comes_ends_and_leaves_no_key(valkey: ValkeyServer) -> None:
    with RedisStore.from_url(valkey.url) as store:
        door, keys = Door(store), lock_keys("door")
        door.ask("holder")
        door.ask("first", "first")
        client: Any = store.client
        assert 0 < client.pttl(keys.line) <= LINE_TTL_MS
        door.release("holder")
        assert door.takes("first")
        assert (client.exists(keys.line), client.hget(keys.fence, "line")) == (0, None)


def test_a_line_of_another_type_is_no_line_and_the_lock_is_taken(valkey: ValkeyServer) -> None:
    with RedisStore.from_url(valkey.url) as store:
        door, keys = Door(store), lock_keys("door")
        door.ask("holder")
        door.ask("first", "first")
        store.client.set(keys.line, "nonsense")
        door.release("holder")
        assert [door.takes() for _ in range(20)] == [True] * 20


def test_a_release_wakes_only_the_first_and_its_turn_wakes_a_process_behind() -> None:
    clock, woken = ManualClock(), list[str]()
    line = Line("freed", "me")
    place = line.join(lambda: woken.append("me"))
    place.ahead = 2
    line.park(place, clock.now() + 60)
    line.hear(clock.now(), "a holder")
    line.hear(clock.now(), "turn:another")
    assert line.next_step(place, clock.now(), clock.now() + 100) == clock.now() + 2 * AHEAD_SECONDS
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
        ("a holder", 2, 2 * AHEAD_SECONDS),  # those ahead are to take it
        ("a holder", 0, 0),
        ("turn:me", 2, 0),
        ("turn:another", 2, 60),
        ("frozen", 2, 0),
    ],
)
def test_of_the_messages_during_an_attempt_a_release_is_left_to_the_processes_that_it_found_ahead(
    said: str, ahead: int, after: float
) -> None:
    clock, line, place = parked_after_an_attempt([said], ahead)
    step = line.next_step(place, clock.now(), clock.now() + 100)
    assert step == clock.now() + after if after else step is True


def test_a_process_that_became_the_first_during_its_attempt_wakes_at_the_next_release() -> None:
    clock, line, place = parked_after_an_attempt(["first:me 30000"], 1)
    assert line.next_step(place, clock.now(), clock.now() + 100) == clock.now() + 30
    line.hear(clock.now(), "a holder")
    assert line.next_step(place, clock.now(), clock.now() + 100) is True


def test_after_one_waiter_had_its_turn_another_of_its_process_asks_again_at_the_next_release() -> None:
    clock, line, place = parked_after_an_attempt([], 2)
    served = line.join(lambda: None)
    line.leave(served, inf)
    line.hear(clock.now(), "a holder")
    assert line.next_step(place, clock.now(), clock.now() + 100) is True


def test_a_message_about_the_pool_wakes_a_process_behind() -> None:
    clock, line, place = parked_after_an_attempt([], 3)
    line.hear(clock.now(), "thawed")
    assert line.next_step(place, clock.now(), clock.now() + 100) is True


@pytest.mark.usefixtures("untimed_turns")
@pytest.mark.parametrize(("party", "turns"), [(NEWCOMER + "other", NEWCOMERS_MAX)])
def test_a_process_that_has_not_waited_has_the_turns_of_a_newcomer_and_then_a_place(
    door: Door, party: str, turns: int
) -> None:
    door.ask("holder")
    door.ask("first", "first")
    door.release("holder")
    assert [door.takes(party) for _ in range(turns)] == [True] * turns
    refused = door.ask("late", party)
    assert isinstance(refused, Held)
    assert refused.ahead == 1


def test_a_process_that_hears_of_releases_already_asks_once_before_it_sleeps(
    valkey: ValkeyServer, monkeypatch: pytest.MonkeyPatch, count_scripts: CountScripts
) -> None:
    monkeypatch.setattr(LockClaim, "look_seconds", 600.0)  # no check for a vanished key is counted
    monkeypatch.setattr(listener, "LINGER_SECONDS", 600.0)  # it goes on to hear between its waits
    with RedisStore.from_url(valkey.url) as holding, RedisStore.from_url(valkey.url) as waiting:
        needed: list[int] = []
        for _ in range(2):
            held = Lock(holding, "door", ttl=600).acquire(timeout=30)
            scripts = count_scripts(holding.client, "door")
            waiter = threading.Thread(target=lambda: Lock(waiting, "door", ttl=60).acquire(timeout=60).release())
            waiter.start()
            wait_until(lambda: has_come_to_rest(waiting, 1))
            needed.append(scripts())
            held.release()
            waiter.join(30)
    assert needed == [2, 1]


def test_a_process_that_is_the_first_now_wakes_at_the_next_release_or_the_end_of_the_lease() -> None:
    clock = ManualClock()
    line = Line("freed", "me")
    place = line.join(lambda: None)
    place.ahead = 1
    line.park(place, clock.now() + 0.05)
    line.hear(clock.now(), "first:me 30000")
    assert line.next_step(place, clock.now(), clock.now() + 100) == clock.now() + 30
    line.hear(clock.now(), "a holder")
    assert line.next_step(place, clock.now(), clock.now() + 100) is True


def test_of_three_permits_two_are_left_to_the_two_that_wait_and_a_newcomer_takes_the_third(
    store: RedisStore | MemoryStore,
) -> None:
    def ask(holder: str, party: str = "") -> Acquired | Held:
        answer: Acquired | Held = store.execute(AcquirePermit("door", holder, 60_000, 3, party=party))
        return answer

    for holder in "abc":
        ask(holder)
    ask("w1", "first")
    ask("w2", "second")
    time.sleep(0.06)
    for holder in "abc":
        store.execute(ReleasePermit("door", holder))
    found = [type(ask(f"n{number}", NEWCOMER)) for number in range(2)]
    assert found == [Acquired, Held]
    assert [type(ask(f"late {party}", party)) for party in ("second", "first")] == [Acquired, Acquired]


@pytest.mark.usefixtures("left_for_long")
@pytest.mark.parametrize("leavers", ["a", "ac", "acac"])
def test_a_process_that_leaves_however_often_loses_its_place_and_the_next_is_the_first(
    door: Door, store: RedisStore | MemoryStore, leavers: str
) -> None:
    door.ask("holder")
    for party in "abc":
        door.ask(f"w{party}", party)
    known = set("abc")
    for party in leavers:
        assert store.execute(LeaveLine("door", party)) is (party in known)
        known.discard(party)
    behind = door.ask("wd", "d")
    assert isinstance(behind, Held)
    assert behind.ahead == len(known)
    time.sleep(0.06)
    door.release("holder")
    assert (door.takes(), door.takes("b")) == (False, True)


def test_an_attempt_that_arrives_after_its_process_has_left_keeps_a_place_for_one_turn_only(
    door: Door, store: RedisStore | MemoryStore
) -> None:
    door.ask("holder")
    door.ask("wa", "a")
    store.execute(LeaveLine("door", "a"))
    door.ask("wa", "a")
    door.ask("wb", "b")
    time.sleep(0.06)
    door.release("holder")
    assert not door.takes("b")
    time.sleep(PAST_LEFT)
    assert (door.takes("b"), door.takes(), store.execute(LeaveLine("door", "a"))) == (True, True, False)


def test_an_owner_enters_again_at_once_also_if_other_processes_wait(store: RedisStore | MemoryStore) -> None:
    store.execute(AcquireReentrant("door", "me", "1", 60_000))
    store.execute(AcquireReentrant("door", "other", "2", 60_000, party="first"))
    time.sleep(0.06)
    assert isinstance(store.execute(AcquireReentrant("door", "me", "3", 60_000, party=NEWCOMER)), Acquired)
