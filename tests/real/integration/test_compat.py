"""`segmented.compat`: redis-py's lock interface, beside redis-py's own lock on the same keys."""

import asyncio
import gc
import multiprocessing
import threading
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, Final, cast
from weakref import ref

import pytest
import redis
from redis.exceptions import LockError, LockNotOwnedError, ResponseError

from segmented import compat
from segmented.errors import InvalidInput
from segmented.locks.lock import LockClaim
from segmented.servers import ValkeyServer
from tests.fixtures.stores_quorum import standing_still
from tests.support.contract.parking import has_come_to_rest, wait_until

LONG: Final = 600.0
"""Seconds; no lease lapses in a test unless it is to."""
SOON: Final = 60.0

_numbers = count()


EVERY_REPLY: Final = pytest.mark.parametrize(
    "client", [(2, False), (3, True)], indirect=True, ids=["resp2-bytes", "resp3-text"]
)


@pytest.fixture
def client(request: pytest.FixtureRequest, valkey_url: str) -> Iterator[redis.Redis]:
    protocol, is_text = getattr(request, "param", (2, False))
    found = redis.Redis.from_url(valkey_url, protocol=protocol, decode_responses=is_text)
    yield found
    compat.store_of(found).close()
    found.close()


@pytest.fixture
def name() -> str:
    return f"compat-{next(_numbers)}"


def lock_of(client: redis.Redis, name: Any, **options: Any) -> compat.Lock:  # noqa: ANN401  # as redis-py takes them
    found = client.lock(name, lock_class=compat.Lock, **options)
    assert isinstance(found, compat.Lock)
    return found


def test_a_lock_is_held_for_its_block_and_fenced(client: redis.Redis, name: str) -> None:
    with lock_of(client, name, timeout=LONG) as lock:
        assert (lock.locked(), lock.owned()) == (True, True)
        first = lock.lease
        assert first is not None
        first.require()
    assert (lock.locked(), lock.owned(), lock.lease) == (False, False, None)
    with lock_of(client, name, timeout=LONG) as lock:
        assert lock.lease is not None
        assert lock.lease.fencing_token > first.fencing_token


@EVERY_REPLY
def test_ours_and_redis_pys_own_exclude_each_other(client: redis.Redis, name: str) -> None:
    ours, theirs = lock_of(client, name, timeout=LONG), client.lock(name, timeout=LONG)
    assert ours.acquire(blocking=False)
    assert not theirs.acquire(blocking=False)
    ours.release()
    assert theirs.acquire(blocking=False)
    assert not ours.acquire(blocking=False)
    theirs.release()


def test_a_release_wakes_a_waiter(client: redis.Redis, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LockClaim, "look_seconds", LONG)  # so the waiter asks once it is told, and no sooner
    holder, waiter = lock_of(client, name, timeout=LONG), lock_of(client, name, timeout=LONG, thread_local=False)
    assert holder.acquire()
    thread = threading.Thread(target=waiter.acquire)
    thread.start()
    wait_until(lambda: has_come_to_rest(compat.store_of(client), 1))
    holder.release()
    thread.join(SOON)
    assert not thread.is_alive()
    waiter.release()


def test_the_release_of_redis_pys_own_lock_is_noticed_within_its_second(client: redis.Redis, name: str) -> None:
    theirs = client.lock(name, timeout=LONG, thread_local=False)
    assert theirs.acquire()
    ours = lock_of(client, name, timeout=LONG, thread_local=False)
    thread = threading.Thread(target=ours.acquire)
    thread.start()
    wait_until(lambda: has_come_to_rest(compat.store_of(client), 1))
    theirs.release()
    thread.join(SOON)  # long before their lease would end
    assert not thread.is_alive()
    ours.release()
    assert LockClaim.look_seconds is not None
    assert LockClaim.look_seconds < 1.0  # it asks that often while it waits


def test_a_lock_without_a_timeout_is_renewed(client: redis.Redis, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("segmented.compat.ENDLESS_TTL", 12.0)
    lock = lock_of(client, name)
    assert lock.acquire()
    assert 0 < client.pttl(name) <= 12_000
    client.pexpire(name, 3_600_000)
    wait_until(lambda: client.pttl(name) <= 12_000, seconds=SOON)  # a renewal gives it its own time again
    assert lock.owned()
    lock.release()
    assert not lock.locked()


@EVERY_REPLY
def test_a_token_may_be_told_and_another_object_release_by_it(client: redis.Redis, name: str) -> None:
    first, second = lock_of(client, name, timeout=LONG), lock_of(client, name, timeout=LONG)
    assert first.acquire(token="mine")
    assert client.get(name) in (b"mine", "mine")
    second.local.token = b"mine"
    assert second.owned()
    second.release()
    assert not first.locked()
    with pytest.raises(LockNotOwnedError):
        first.release()
    assert first.local.token is None


def test_an_extension_adds_to_what_the_server_says_is_left(client: redis.Redis, name: str) -> None:
    lock = lock_of(client, name, timeout=LONG)
    assert lock.acquire()
    client.pexpire(name, 300_000)
    assert lock.extend(LONG)
    assert 800_000 < client.pttl(name) <= 900_000
    assert lock.extend(200, replace_ttl=True)
    assert 100_000 < client.pttl(name) <= 200_000
    assert lock.reacquire()
    assert 500_000 < client.pttl(name) <= 600_000
    lock.release()


def test_a_thread_does_not_see_anothers_token_unless_asked(client: redis.Redis, name: str) -> None:
    found: list[object] = []
    for is_local in (True, False):
        lock = lock_of(client, name, timeout=LONG, thread_local=is_local)
        assert lock.acquire()
        thread = threading.Thread(target=lambda lock=lock: found.append(lock.local.token))
        thread.start()
        thread.join()
        lock.release()
    assert found[0] is None
    assert isinstance(found[1], bytes)


def test_the_blocks_own_error_is_not_hidden_by_a_lock_that_lapsed(client: redis.Redis, name: str) -> None:
    def fail() -> None:
        with lock_of(client, name, timeout=LONG):
            client.delete(name)
            raise KeyError(name)

    with pytest.raises(KeyError, match=name) as raised:
        fail()
    assert raised.value.__notes__ == ["and afterwards: Cannot release a lock that's no longer owned"]


def test_a_name_may_be_bytes_and_has_to_be_text(client: redis.Redis, name: str) -> None:
    with lock_of(client, name.encode(), timeout=LONG):
        assert client.exists(name)
    with pytest.raises(InvalidInput, match="the name of a lock is text or UTF-8"):
        lock_of(client, b"\xff").acquire()
    with pytest.raises(InvalidInput, match="the token of a lock is text or UTF-8"):
        lock_of(client, name).acquire(token=b"\xff")


def test_a_server_that_is_gone_is_redis_pys_connection_error(private_valkey: ValkeyServer) -> None:
    client = redis.Redis.from_url(private_valkey.url)
    lock = lock_of(client, "door", timeout=LONG)
    assert lock.acquire()
    private_valkey.kill()
    with pytest.raises(redis.exceptions.ConnectionError):
        lock.release()
    assert lock.local.token is not None  # to be released again
    with pytest.raises(redis.exceptions.ConnectionError):
        lock_of(client, "other", timeout=LONG).acquire(blocking=False)


def test_a_refused_password_is_redis_pys_authentication_error(start_valkey: Callable[..., ValkeyServer]) -> None:
    server = start_valkey(config={"requirepass": "right"})
    refused = pytest.raises(redis.exceptions.AuthenticationError, match="refused the password")
    with redis.Redis.from_url(server.url, password="wrong") as client, refused:
        lock_of(client, "door", timeout=LONG).acquire(blocking=False)

    async def acquire() -> None:
        async with redis.asyncio.Redis.from_url(server.url, password="wrong") as client:
            with pytest.raises(redis.exceptions.AuthenticationError, match="refused the password"):
                await compat.AsyncLock(client, "door", timeout=LONG).acquire(blocking=False)

    asyncio.run(acquire())


def test_a_client_has_one_store_which_goes_with_it(valkey_url: str, name: str) -> None:
    client = redis.Redis.from_url(valkey_url)
    lock = lock_of(client, name, timeout=LONG)
    store = compat.store_of(client)
    found: list[object] = []
    threads = [
        threading.Thread(target=lambda asked: found.append(compat.store_of(asked)), args=(client,)) for _ in "12345678"
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [one is store for one in found] == [True] * 8
    assert lock.acquire()
    assert not lock_of(client, name).acquire(blocking_timeout=0.05)  # which starts the listener
    lock.release()
    gone = ref(client)
    del client, lock, threads, thread
    gc.collect()
    assert gone() is None
    wait_until(lambda: store.is_closed)


def test_a_closed_store_is_made_again(client: redis.Redis, name: str) -> None:
    store = compat.store_of(client)
    store.close()
    assert compat.store_of(client) is not store
    with lock_of(client, name, timeout=LONG):
        pass


def _release_in_the_child(lock: compat.Lock) -> None:
    lock.release()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_may_release_what_its_parent_acquired(client: redis.Redis, name: str) -> None:
    lock = lock_of(client, name, timeout=LONG)
    assert lock.acquire()
    child = multiprocessing.get_context("fork").Process(target=_release_in_the_child, args=(lock,))
    child.start()
    child.join(SOON)
    assert child.exitcode == 0
    assert not lock.locked()
    with pytest.raises(LockNotOwnedError):
        lock.release()


def test_what_is_not_held_is_redis_pys_lock_error(client: redis.Redis, name: str) -> None:
    lock = lock_of(client, name, timeout=LONG)
    for call in (lock.release, lambda: lock.extend(1), lock.reacquire):
        with pytest.raises(LockError) as refused:
            call()
        assert (type(refused.value), refused.value.lock_name) == (LockError, name)


# --- what others do to the same lock, and to the same process ---


def test_a_server_that_stands_still_keeps_no_lock_of_another_waiting(
    client: redis.Redis, name: str, start_valkey: Callable[..., ValkeyServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("segmented.stores.redis.store.CONNECT_TIMEOUT", LONG)  # of a store that checks at once
    still = start_valkey()
    frozen = redis.Redis.from_url(still.url, socket_timeout=LONG)
    begun = threading.Semaphore(0)

    def wait(lock: compat.Lock) -> None:
        begun.release()
        lock.acquire()

    with standing_still(still):
        made = [lock_of(frozen, "a", timeout=LONG, thread_local=False) for _ in range(8)]  # none asks the server
        waiting = [threading.Thread(target=wait, args=(lock,), daemon=True) for lock in made]
        for thread in waiting:
            thread.start()
        assert all(begun.acquire(timeout=SOON) for _ in waiting)
        ours = lock_of(client, name, timeout=LONG)
        assert ours.acquire(blocking=False)  # while all of them stand still
        assert all(thread.is_alive() for thread in waiting)
        ours.release()
    for _ in waiting:  # each in its turn
        wait_until(lambda: any(lock.local.token is not None for lock in made), seconds=SOON)
        next(lock for lock in made if lock.local.token is not None).release()
    for thread in waiting:
        thread.join(SOON)
    assert not any(thread.is_alive() for thread in waiting)
    compat.store_of(frozen).close()
    frozen.close()


def test_a_name_that_is_another_key_in_the_clients_encoding_is_refused(valkey_url: str) -> None:
    latin = redis.Redis.from_url(valkey_url, encoding="latin-1")
    sentence = (
        r"^the lock name 'café' is another key in the client's encoding 'latin-1' than here, in utf-8: "
        r"take a name in ASCII, or a client with encoding='utf-8'$"
    )
    with pytest.raises(InvalidInput, match=sentence):
        lock_of(latin, "café", timeout=SOON)
    with lock_of(latin, "cafe", timeout=SOON) as lock:
        assert lock.locked()
    compat.store_of(latin).close()
    latin.close()


@pytest.mark.parametrize("wrong", [None, "redis://localhost", 7])
def test_what_is_no_client_is_refused_with_a_sentence(wrong: object) -> None:
    with pytest.raises(InvalidInput, match=r"^RedisStore (needs|takes) a client"):
        compat.Lock(cast("Any", wrong), "a")
    with pytest.raises(InvalidInput, match=r"^AsyncRedisStore (needs|takes) a client"):
        compat.AsyncLock(cast("Any", wrong), "a")


def test_what_redis_pys_lock_would_take_and_ours_refuses(client: redis.Redis, name: str) -> None:
    client.rpush(name, "a list")
    with pytest.raises(ResponseError):
        lock_of(client, name, timeout=SOON).acquire(blocking=False)
    with pytest.raises(InvalidInput, match="token"):
        lock_of(client, f"{name} b", timeout=SOON).acquire(token="")
