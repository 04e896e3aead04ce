"""When Redis is away: raised at once, or recorded and replayed; an alarm either way. Real servers, really killed."""

import logging
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from segmented.errors import InvalidInput, LockUnreachable, StoreUnavailable
from segmented.locks import FairLock, Lock, MultiLock, ReadWriteLock, Semaphore, locked
from segmented.locks.dead_letters import Replayed, Work, replay
from segmented.locks.dead_letters_sql import SqlDeadLetters
from segmented.locks.unreachable import UnreachablePolicy
from segmented.servers import ValkeyServer
from segmented.stores.redis import RedisStore
from tests.fixtures.dead_letters import ids

LONG: Final = 60.0


@pytest.fixture
def store(private_valkey: ValkeyServer) -> Iterator[RedisStore]:
    with RedisStore.from_url(private_valkey.url) as store:
        yield store


def test_without_a_place_to_record_it_is_raised_at_once_and_the_alarm_is_called(
    private_valkey: ValkeyServer, store: RedisStore
) -> None:
    rung: list[tuple[StoreUnavailable, str]] = []
    policy = UnreachablePolicy(alarm=lambda error, name: rung.append((error, name)))
    private_valkey.kill()
    with pytest.raises(LockUnreachable) as caught, policy.around(Work("ship")), Lock(store, "order:7").acquire():
        pytest.fail("the body ran")
    assert rung == [(caught.value, "order:7")]
    assert caught.value.name == "order:7"


def test_work_is_recorded_while_the_server_is_dead_and_replayed_when_it_is_back(
    private_valkey: ValkeyServer,
    store: RedisStore,
    letters: SqlDeadLetters,
    reopen_letters: Callable[[], SqlDeadLetters],
) -> None:
    rung: list[str] = []
    policy = UnreachablePolicy(record_to=letters, alarm=lambda _, name: rung.append(name))
    shipped: list[int] = []

    def ship(order: int) -> bool:
        work, lock = Work("ship", {"order": order}, f"ship:{order}"), Lock(store, f"order:{order}", ttl=LONG)
        with policy.around(work) as outcome, lock.acquire(timeout=60):
            shipped.append(order)
        return outcome.is_recorded

    assert ship(1) is False
    private_valkey.kill()
    assert [ship(2), ship(3), ship(2)] == [True, True, True]
    assert (shipped, rung) == ([1], ["order:2", "order:3", "order:2"])
    private_valkey.restart()

    again = reopen_letters()
    assert ids(again) == ["ship:2", "ship:3"]
    assert replay(again, lambda letter: ship(letter.work.payload["order"])) == Replayed(2, 0, 0, 0)
    assert shipped == [1, 2, 3]
    assert ids(letters) == []
    assert replay(letters, lambda letter: ship(letter.work.payload["order"])) == Replayed(0, 0, 0, 0)


def test_a_store_that_goes_away_in_the_middle_of_the_body_is_raised_and_not_recorded(
    private_valkey: ValkeyServer, store: RedisStore, letters: SqlDeadLetters
) -> None:
    around = UnreachablePolicy(record_to=letters).around(Work("ship"))
    with pytest.raises(StoreUnavailable) as caught, around as outcome, Lock(store, "order:7", ttl=LONG).acquire():
        private_valkey.kill()
    assert not isinstance(caught.value, LockUnreachable)
    assert (outcome.is_recorded, ids(letters)) == (False, [])


@pytest.mark.parametrize("word", ["lock", "fair", "semaphore", "read", "multi", "locked"])
def test_every_way_to_acquire_is_recorded(
    private_valkey: ValkeyServer, store: RedisStore, sqlite_letters: SqlDeadLetters, word: str
) -> None:
    @locked("order:{number}", store=store)
    def ship(number: int) -> None:
        pytest.fail(f"the body ran for {number}")

    acquire: dict[str, Callable[[], object]] = {
        "lock": lambda: Lock(store, "a").acquire(),
        "fair": lambda: FairLock(store, "a").acquire(),
        "semaphore": lambda: Semaphore(store, "a", permits=2).acquire(),
        "read": ReadWriteLock(store, "a").read.acquire,
        "multi": lambda: MultiLock(store, ["a", "b"]).acquire(),
        "locked": lambda: ship(7),
    }
    private_valkey.kill()
    with UnreachablePolicy(record_to=sqlite_letters).around(Work("ship", work_id="one")) as outcome:
        acquire[word]()
        pytest.fail("it was acquired")
    assert (outcome.is_recorded, ids(sqlite_letters)) == (True, ["one"])


def test_an_alarm_that_fails_is_logged_and_hides_nothing(
    private_valkey: ValkeyServer, store: RedisStore, sqlite_letters: SqlDeadLetters, caplog: pytest.LogCaptureFixture
) -> None:
    def alarm(_: LockUnreachable, __: str) -> None:
        message = "the pager is broken"
        raise RuntimeError(message)

    private_valkey.kill()
    with caplog.at_level(logging.ERROR, logger="segmented.locks"):
        with UnreachablePolicy(record_to=sqlite_letters, alarm=alarm).around(Work("ship", work_id="one")):
            Lock(store, "a").acquire()
        with pytest.raises(LockUnreachable), UnreachablePolicy(alarm=alarm).around(Work("ship")):
            Lock(store, "a").acquire()
    assert ids(sqlite_letters) == ["one"]
    assert [(record.message, vars(record)["lock"]) for record in caplog.records] == [("lock.alarm_failed", "a")] * 2


def test_an_alarm_that_must_be_awaited_is_refused_where_nobody_awaits_it(sqlite_letters: SqlDeadLetters) -> None:
    async def alarm(_: LockUnreachable, __: str) -> None:
        """Never called."""

    policy = UnreachablePolicy(record_to=sqlite_letters, alarm=alarm)
    with pytest.raises(InvalidInput, match="only `async with` can await"), policy.around(Work("ship")):
        pytest.fail("the body ran")
