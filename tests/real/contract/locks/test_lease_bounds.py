"""What a lease refuses: to travel, to be used in a child process; and what a lock refuses to be made of."""

from __future__ import annotations

import os
import pickle
import threading
from inspect import signature
from math import inf, nan
from typing import TYPE_CHECKING, Any

import pytest

from segmented import AsyncLock, Lock, RedisStore
from segmented.errors import AcquireTimeout, InvalidInput
from segmented.locks.durations import DEFAULT_TIMEOUT
from segmented.locks.lock import LockClaim
from segmented.stores.memory import AsyncMemoryStore, MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fixtures.stores import Side


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


def test_a_lease_cannot_be_pickled(waiting_side: Side) -> None:
    name = waiting_side.name("lock")
    with waiting_side.lock(name, ttl=60).acquire(timeout=0) as lease:
        target = getattr(lease, "_target", lease)
        with pytest.raises(InvalidInput, match=rf"^the lease on '{name}' cannot be pickled: acquire in"):
            pickle.dumps(target)


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
        before = lock.acquire(timeout=30)
        with pytest.raises(AcquireTimeout):
            lock.acquire(timeout=0.05)  # the listener runs now
        before.release()

        def in_the_child() -> str:
            first = lock.acquire(timeout=30)
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
        held = lock.acquire(timeout=30)
        with pytest.raises(AcquireTimeout):
            lock.acquire(timeout=0.05)  # the listener runs now
        release = threading.Timer(0.5, held.release)
        release.start()

        def in_the_child() -> bool:
            lock.acquire(timeout=60).release()
            return True

        assert in_child(in_the_child) == "True"
        release.join()


def test_acquire_waits_for_a_minute_when_it_is_not_told_otherwise() -> None:
    assert DEFAULT_TIMEOUT == 60.0
    defaults = [signature(kind.acquire).parameters["timeout"].default for kind in (Lock, AsyncLock)]
    assert defaults == [60.0, 60.0]


@pytest.mark.parametrize("ttl", [True, "30", None])
def test_a_time_to_live_that_is_no_number_is_refused_by_its_type(ttl: Any) -> None:  # noqa: ANN401  # bad input
    sentence = f"ttl is a number of seconds or a timedelta, not {type(ttl).__name__}: {ttl!r}"
    for make in (lambda: Lock(MemoryStore(), "door", ttl=ttl), lambda: AsyncLock(AsyncMemoryStore(), "door", ttl=ttl)):
        with pytest.raises(InvalidInput) as caught:
            make()
        assert str(caught.value) == sentence


@pytest.mark.parametrize("ttl", [0, -1, 0.0009, nan, inf, -inf, 2**53])
def test_b2_a_time_to_live_that_is_none_is_refused_before_anything_is_sent(ttl: Any) -> None:  # noqa: ANN401  # bad input
    for make in (lambda: Lock(MemoryStore(), "door", ttl=ttl), lambda: AsyncLock(AsyncMemoryStore(), "door", ttl=ttl)):
        with pytest.raises(
            InvalidInput, match=r"^ttl of .* s is not a duration: give between 0.001 and 9007199254740 s$"
        ):
            make()


@pytest.mark.parametrize("timeout", [-0.1, nan, -inf])
def test_a_wait_that_is_none_is_refused(timeout: Any) -> None:  # noqa: ANN401  # bad input
    for acquire in (Lock(MemoryStore(), "door").acquire, AsyncLock(AsyncMemoryStore(), "door").acquire):
        with pytest.raises(InvalidInput, match=r"^timeout of .* s is not a waiting time: give 0 or more, or None"):
            acquire(timeout=timeout)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("", "a lock needs a name"),
        (b"door", "the name of a lock is a text, not bytes: b'door'"),
        (None, "the name of a lock is a text, not NoneType: None"),
        ("a\x00b", "the name of a lock holds characters that cannot be printed: 'a\\x00b'"),
        ("\udcff", "the name of a lock holds characters that cannot be printed: '\\udcff'"),
        ("x" * 1_025, "the name of a lock has 1025 characters; the maximum is 1024"),
    ],
)
def test_a_name_that_is_none_is_refused(name: Any, sentence: str) -> None:  # noqa: ANN401  # bad input
    with pytest.raises(InvalidInput) as raised:
        Lock(MemoryStore(), name)
    assert str(raised.value) == sentence
