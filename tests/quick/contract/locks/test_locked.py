"""Functions under a lock, on every store and in both colours. The ids are the rows of the catalogue."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

import pytest

from segmented import Lock, MemoryStore
from segmented.errors import AcquireTimeout, InvalidInput, LeaseLost
from segmented.locks.locked_decorator import locked
from segmented.protocol import AcquireLock
from tests.support.contract.bodies import let_lapse
from tests.support.contract.locks.locked import TTL, is_free, locked_body

if TYPE_CHECKING:
    from collections.abc import Iterator

    from segmented.locks import Lease
    from segmented.protocol import Operation
    from tests.fixtures.stores import Side


SOON = 30.0


class Work:
    """A body that counts its runs, and may ask whether its lock is held while it runs."""

    def __init__(self, side: Side) -> None:
        self._side = side
        self.runs = 0
        self.was_free: list[bool] = []

    def __call__(self, name: str) -> str:
        self.runs += 1
        self.was_free.append(is_free(self._side, name))
        return f"done {name}"


def test_the_lock_is_held_while_the_body_runs_and_its_value_comes_back(side: Side) -> None:
    work, name = Work(side), side.name()
    assert locked_body(side, "{name}", work)(name) == f"done {name}"
    assert work.was_free == [False]


def test_i2_the_lock_is_released_when_the_body_raises(side: Side) -> None:
    name = side.name()
    with pytest.raises(ZeroDivisionError):
        locked_body(side, "{name}", lambda name: len(name) / 0)(name)
    assert is_free(side, name)


def test_i1_the_body_does_not_run_when_the_lock_is_busy(side: Side) -> None:
    work, name = Work(side), side.name()
    function = locked_body(side, "{name}", work)
    held = side.lock(name, ttl=TTL).acquire(timeout=0)
    with pytest.raises(AcquireTimeout, match=f"^lock '{name}' was not free within 0 s$"):
        function(name)
    assert work.runs == 0
    held.release()
    function(name)
    assert work.runs == 1


def test_i1_on_busy_skip_gives_none_and_does_not_run_the_body(side: Side) -> None:
    work, name = Work(side), side.name()
    function = locked_body(side, "{name}", work, on_busy="skip")
    with side.lock(name, ttl=TTL).acquire(timeout=0):
        assert function(name) is None
    assert (function(name), work.runs) == (f"done {name}", 1)


def test_i1_the_body_runs_unlocked_only_when_told_so(side: Side) -> None:
    name, given = side.name(), list[object]()

    def body(name: str, *, lease: Lease | None = None) -> str:
        given.append(lease)
        return name

    function = locked_body(side, "{name}", body, on_busy="run", lease_as="lease")
    with side.lock(name, ttl=TTL).acquire(timeout=0) as held:
        assert function(name) == name
        assert given == [None]
        held.require()  # and the run did not disturb the holder
    function(name)
    assert given[1] is not None


def test_on_busy_may_be_a_callable_that_is_given_the_arguments(side: Side) -> None:
    work, name = Work(side), side.name()
    function = locked_body(side, "{name}", work, on_busy=lambda name: f"later {name}")
    with side.lock(name, ttl=TTL).acquire(timeout=0):
        assert function(name=name) == f"later {name}"
    assert work.runs == 0


def test_a_store_that_refuses_is_no_busy_lock(side: Side) -> None:
    work = Work(side)
    function = locked_body(side, lambda name: "a\n" + name, work, on_busy="run")
    with pytest.raises(InvalidInput, match="characters that cannot be printed"):
        function(side.name())
    assert work.runs == 0


def test_i6_parts_that_would_join_to_one_text_are_two_locks(side: Side) -> None:
    name = side.name()
    function = locked_body(side, "{name}:{a}-{b}", lambda name, a, b, then: then() if then else (name, a, b))
    inner = locked_body(side, "{name}:{a}-{b}", lambda name, a, b: (name, a, b))
    assert function(name, "a-b", "c", lambda: inner(name, "a", "b-c")) == (name, "a", "b-c")
    assert function(name, "a:b", "c", lambda: inner(name, "a", "b:c")) == (name, "a", "b:c")
    with pytest.raises(AcquireTimeout):
        function(name, "a-b", "c", lambda: inner(name, "a-b", "c"))


def test_i7_stacked_decorators_take_the_outer_lock_first_and_each_release_their_own(side: Side) -> None:
    first, second = side.name(), side.name()
    held: list[tuple[bool, bool]] = []

    def body(a: str, b: str) -> None:
        held.append((is_free(side, a), is_free(side, b)))

    function = locked_body(side, "{a}", locked_body(side, "{b}", body))
    function(first, second)
    assert held == [(False, False)]
    with side.lock(second, ttl=TTL).acquire(timeout=0), pytest.raises(AcquireTimeout, match=second):
        function(first, second)
    assert (is_free(side, first), is_free(side, second)) == (True, True)


def test_the_body_may_ask_for_its_lease(side: Side) -> None:
    name, tokens = side.name(), list[int]()

    def body(name: str, *, lease: Lease | None = None) -> str:
        assert lease is not None
        assert lease.name == name
        tokens.append(lease.fencing_token)
        return lease.name

    function = locked_body(side, "{name}", body, lease_as="lease")
    assert [function(name), function(name)] == [name, name]
    assert tokens[0] < tokens[1]


def test_a_body_that_outlived_its_lease_is_told_so_at_its_end(side: Side) -> None:
    name, ends = side.name(), list[str]()

    def body(name: str, *, lease: Lease | None = None) -> str:
        assert lease is not None
        let_lapse(side, lease)
        ends.append(name)
        return name

    with pytest.raises(LeaseLost, match=name):
        locked_body(side, "{name}", body, lease_as="lease")(name)
    assert ends == [name]


def test_the_bodys_own_error_is_the_one_that_is_raised_when_the_lease_was_lost_too(side: Side) -> None:
    name = side.name()

    def body(name: str, *, lease: Lease | None = None) -> float:
        assert lease is not None
        let_lapse(side, lease)
        return len(name) / 0

    with pytest.raises(ZeroDivisionError) as caught:
        locked_body(side, "{name}", body, lease_as="lease")(name)
    assert len(caught.value.__notes__) == 1


class CountingStore(MemoryStore):
    """A store that counts attempts."""

    attempts = 0

    def execute(self, operation: Operation[Any], *, deadline: float = inf) -> Any:  # noqa: ANN401  # its own answer
        self.attempts += isinstance(operation, AcquireLock)
        return super().execute(operation, deadline=deadline)


def test_the_tries_are_so_many_and_so_far_apart() -> None:
    store = CountingStore()
    function = locked("{obj}", store=store, ttl=TTL, timeout=0, retries=2, retry_every=0.02)(len)
    with Lock(store, "door", ttl=TTL).acquire(timeout=0):
        with pytest.raises(AcquireTimeout, match=r"^lock 'door' was not free within 0.04 s$"):
            function("door")
        assert store.attempts == 1 + 3
    assert function("door") == 4


def keys(count: int) -> Iterator[str]:
    return (f"k{index}" for index in range(count))


def test_a_key_is_evaluated_once_a_call(side: Side) -> None:
    name, made = side.name(), keys(10)
    function = locked_body(side, lambda name: f"{name}:{next(made)}", lambda name: name, retries=3, retry_every=0)
    with side.lock(f"{name}:k0", ttl=TTL).acquire(timeout=0), pytest.raises(AcquireTimeout, match=f"{name}:k0"):
        function(name)
    assert function(name) == name
    assert next(made) == "k2"
