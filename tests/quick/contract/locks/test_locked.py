"""Functions that run under a lock, generators among them."""

import asyncio
import gc
from collections.abc import AsyncGenerator, AsyncIterator, Generator
from math import inf
from typing import Any

import pytest

from segmented import AsyncMemoryStore, Lock, MemoryStore
from segmented.errors import AcquireTimeout, InvalidInput, LeaseLost
from segmented.locks import AsyncLock, Lease
from segmented.locks.locked_decorator import locked
from segmented.protocol import AcquireLock, Operation
from tests.fixtures.stores import Side
from tests.support.contract.bodies import let_lapse
from tests.support.contract.locks.locked import TTL, is_free, locked_body


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


def is_generator_free(store: MemoryStore) -> bool:
    lease = Lock(store, "door").try_acquire()
    if lease is not None:
        lease.release()
    return lease is not None


def steps(name: str, log: list[str]) -> Generator[str, Any, str]:
    log.append("begun")
    try:
        while True:
            try:
                sent = yield name
            except ValueError as error:
                log.append(f"thrown {error}")
            else:
                log.append(f"sent {sent}")
                if sent == "end":
                    return "the end"
    finally:
        log.append("over")


def test_i3_a_generator_is_locked_from_its_first_step_to_its_last() -> None:
    store, name, log = MemoryStore(), "door", list[str]()
    items = locked("{name}", store=store, timeout=0)(steps)(name, log)
    assert (is_generator_free(store), log) == (True, [])
    assert next(items) == name
    assert not is_generator_free(store)
    assert items.send("more") == name
    assert items.throw(ValueError("odd")) == name
    assert not is_generator_free(store)
    with pytest.raises(StopIteration):
        items.send("end")
    assert is_generator_free(store)
    assert log == ["begun", "sent more", "thrown odd", "sent end", "over"]


def test_i3_a_generator_that_was_never_started_holds_nothing() -> None:
    store, name, log = MemoryStore(), "door", list[str]()
    items = locked("{name}", store=store, timeout=0)(steps)(name, log)
    items.close()
    assert (is_generator_free(store), log) == (True, [])


def test_i1_a_generator_whose_lock_is_busy_does_not_begin() -> None:
    store, name, log = MemoryStore(), "door", list[str]()
    with Lock(store, name).acquire(timeout=0):
        items = locked("{name}", store=store, timeout=0)(steps)(name, log)
        with pytest.raises(AcquireTimeout):
            next(items)
    assert log == []


def test_an_abandoned_generator_releases_when_it_is_collected() -> None:
    store, name, log = MemoryStore(), "door", list[str]()
    items = locked("{name}", store=store, timeout=0)(steps)(name, log)
    next(items)
    del items
    gc.collect()
    assert is_generator_free(store)
    assert log == ["begun", "over"]


def test_a_coroutine_that_is_cancelled_releases_and_an_async_generator_too() -> None:
    async def run() -> list[bool]:
        store, began = AsyncMemoryStore(), asyncio.Event()

        @locked("{name}", store=store)
        async def sleep(name: str) -> str:
            began.set()
            await asyncio.Event().wait()
            return name

        @locked("{name}", store=store)
        async def items(name: str) -> AsyncIterator[str]:
            yield name
            began.set()
            await asyncio.Event().wait()

        async def read() -> None:
            async for _ in items("generator"):
                pass

        free: list[bool] = []
        for name, work in (("coroutine", sleep("coroutine")), ("generator", read())):
            began.clear()
            task = asyncio.ensure_future(work)
            await began.wait()
            free.append(await AsyncLock(store, name).try_acquire() is not None)
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()
            free.append(await AsyncLock(store, name).try_acquire() is not None)
        return free

    assert asyncio.run(run()) == [False, True, False, True]


def test_i3_an_async_generator_is_locked_to_its_last_step_and_never_begins_busy() -> None:
    async def run() -> list[object]:
        store, log = AsyncMemoryStore(), list[object]()
        lock = AsyncLock(store, "door")

        async def echo() -> AsyncGenerator[object, object]:
            sent: object = "begun"
            while sent != "end":
                try:
                    sent = yield sent
                except ValueError as error:
                    sent = str(error)

        guarded = locked("door", store=store, timeout=0)(echo)
        items = guarded()
        log += [await lock.is_locked(), await anext(items), await items.asend("more")]
        log += [await items.athrow(ValueError("odd")), await lock.is_locked()]
        with pytest.raises(AcquireTimeout):
            await anext(guarded())
        log.append([item async for item in locked("door", store=store, timeout=0, on_busy="skip")(echo)()])
        with pytest.raises(StopAsyncIteration):
            await items.asend("end")
        return [*log, await lock.is_locked()]

    assert asyncio.run(run()) == [False, "begun", "more", "odd", True, [], False]


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
