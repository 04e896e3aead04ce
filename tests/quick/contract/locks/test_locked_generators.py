"""Generators under a lock: it is held from the first step to the last, however that comes. Row I3 of the catalogue."""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING, Any

import pytest

from segmented import AsyncMemoryStore, Lock, MemoryStore
from segmented.errors import AcquireTimeout
from segmented.locks import AsyncLock
from segmented.locks.locked_decorator import locked

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Generator


def is_free(store: MemoryStore) -> bool:
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
    assert (is_free(store), log) == (True, [])
    assert next(items) == name
    assert not is_free(store)
    assert items.send("more") == name
    assert items.throw(ValueError("odd")) == name
    assert not is_free(store)
    with pytest.raises(StopIteration):
        items.send("end")
    assert is_free(store)
    assert log == ["begun", "sent more", "thrown odd", "sent end", "over"]


def test_i3_a_generator_that_is_closed_early_releases() -> None:
    store, name, log = MemoryStore(), "door", list[str]()
    items = locked("{name}", store=store, timeout=0)(steps)(name, log)
    next(items)
    items.close()
    assert (is_free(store), log) == (True, ["begun", "over"])


def test_i3_a_generator_that_was_never_started_holds_nothing() -> None:
    store, name, log = MemoryStore(), "door", list[str]()
    items = locked("{name}", store=store, timeout=0)(steps)(name, log)
    items.close()
    assert (is_free(store), log) == (True, [])


def test_i3_an_error_thrown_in_that_the_body_does_not_take_releases_and_comes_out() -> None:
    store, name, log = MemoryStore(), "door", list[str]()
    items = locked("{name}", store=store, timeout=0)(steps)(name, log)
    next(items)
    with pytest.raises(KeyError, match="out"):
        items.throw(KeyError("out"))
    assert (is_free(store), log) == (True, ["begun", "over"])


def test_i1_a_generator_whose_lock_is_busy_does_not_begin() -> None:
    store, name, log = MemoryStore(), "door", list[str]()
    with Lock(store, name).acquire(timeout=0):
        items = locked("{name}", store=store, timeout=0)(steps)(name, log)
        with pytest.raises(AcquireTimeout):
            next(items)
    assert log == []


@pytest.mark.parametrize("on_busy", ["skip", lambda name, log: log.append(name)], ids=["skip", "callable"])
def test_a_generator_that_is_skipped_yields_nothing(on_busy: Any) -> None:  # noqa: ANN401  # either kind
    store, name, log = MemoryStore(), "door", list[str]()
    with Lock(store, name).acquire(timeout=0):
        items = locked("{name}", store=store, timeout=0, on_busy=on_busy)(steps)(name, log)
        with pytest.raises(StopIteration):
            next(items)
    assert log == ([] if on_busy == "skip" else [name])


def test_a_generator_runs_unlocked_when_told_so() -> None:
    store, name, log = MemoryStore(), "door", list[str]()
    with Lock(store, name).acquire(timeout=0):
        items = locked("{name}", store=store, timeout=0, on_busy="run")(steps)(name, log)
        assert next(items) == name
        items.close()
    assert log == ["begun", "over"]


def test_an_abandoned_generator_releases_when_it_is_collected() -> None:
    store, name, log = MemoryStore(), "door", list[str]()
    items = locked("{name}", store=store, timeout=0)(steps)(name, log)
    next(items)
    del items
    gc.collect()
    assert is_free(store)
    assert log == ["begun", "over"]


def test_the_value_that_a_generator_returns_comes_out() -> None:
    ended: list[object] = []

    def outer() -> Generator[object, Any, None]:
        ended.append((yield from locked("{name}", store=MemoryStore())(steps)("n", [])))

    items = outer()
    next(items)
    with pytest.raises(StopIteration):
        items.send("end")
    assert ended == ["the end"]


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


def test_the_last_steps_of_a_closed_async_generator_run_under_the_lock() -> None:
    async def run() -> list[bool]:
        store, free = AsyncMemoryStore(), list[bool]()

        @locked("{name}", store=store)
        async def items(name: str) -> AsyncGenerator[str]:
            try:
                yield name
            finally:
                free.append(await AsyncLock(store, name).try_acquire() is not None)

        begun = items("generator")
        await anext(begun)
        await begun.aclose()
        free.append(await AsyncLock(store, "generator").try_acquire() is not None)
        return free

    assert asyncio.run(run()) == [False, True]


def test_a_locked_async_generator_can_be_left_in_the_middle_of_a_loop() -> None:
    async def run() -> bool:
        store = AsyncMemoryStore()

        @locked("{name}", store=store)
        async def items(name: str) -> AsyncIterator[int]:
            for index in range(10):
                yield index + len(name)

        async for item in items("n"):
            if item > 3:
                break
        gc.collect()
        await AsyncLock(store, "n").acquire(timeout=30)
        return True

    assert asyncio.run(run())


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
