"""What a lease refuses: to travel, to be used in a child process; and what a lock refuses to be made of."""

import os
import threading
from collections.abc import Callable

import pytest

from segmented import Lock, RedisStore
from segmented.errors import AcquireTimeout
from segmented.locks.lock import LockClaim


def in_child(body: Callable[[], object]) -> str:
    """Fork, run `body` there, and return what it returned or the sentence it raised."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            said = str(body())
        except BaseException as error:  # noqa: BLE001  # the parent judges it
            said = str(error)
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read().decode()
    os.waitpid(child, 0)
    return said


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_lease_is_of_no_use_in_a_child_process_and_stays_the_parents(valkey_url: str) -> None:
    with RedisStore.from_url(valkey_url) as store:
        lease = Lock(store, "forked").acquire(timeout=0)
        sentence = f"the lease on 'forked' belongs to process {os.getpid()}; acquire in this one"
        assert in_child(lambda: f"{lease.is_trusted} {lease.remaining():g}") == "False 0"
        assert lease.is_trusted
        assert in_child(lease.require) == sentence
        assert in_child(lease.renew) == sentence
        assert in_child(lease.release) == sentence
        lease.require()
        lease.release()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_after_a_fork_a_lock_works_on_new_connections_also_where_it_has_to_wait(valkey_url: str) -> None:
    with RedisStore.from_url(valkey_url) as store:
        lock = Lock(store, "reopened", ttl=600, renew=True)
        before = lock.acquire(timeout=120)
        with pytest.raises(AcquireTimeout):
            lock.acquire(timeout=0.05)  # the listener runs now
        before.release()

        def in_the_child() -> str:
            first = lock.acquire(timeout=120)
            try:
                lock.acquire(timeout=0.1)
            except AcquireTimeout:
                first.release()
                return "waited"
            return "not excluded"

        assert in_child(in_the_child) == "waited"
        lock.acquire(timeout=30).release()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_waiter_in_a_child_process_is_woken_by_a_release_of_the_parent(
    valkey_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LockClaim, "look_seconds", 600.0)  # it does not look by itself
    with RedisStore.from_url(valkey_url) as store:
        lock = Lock(store, "handed-down", ttl=600)
        held = lock.acquire(timeout=120)
        with pytest.raises(AcquireTimeout):
            lock.acquire(timeout=0.05)  # the listener runs now
        release = threading.Timer(0.5, held.release)
        release.start()

        def in_the_child() -> bool:
            lock.acquire(timeout=60).release()
            return True

        assert in_child(in_the_child) == "True"
        release.join()
