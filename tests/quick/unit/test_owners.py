"""Who an owner is: a thread or a task, and never whoever comes after it, beside it or out of it."""

from __future__ import annotations

import asyncio
import contextvars
import multiprocessing
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from segmented.errors import InvalidInput
from segmented.locks.reentrant import checked_owner, task_owner, thread_owner

if TYPE_CHECKING:
    from multiprocessing.connection import Connection


def in_new_thread() -> tuple[str, int]:
    found: list[tuple[str, int]] = []
    thread = threading.Thread(target=lambda: found.append((thread_owner(), threading.get_ident())))
    thread.start()
    thread.join()
    return found[0]


def test_a_thread_is_one_owner_for_as_long_as_it_lives() -> None:
    assert thread_owner() == thread_owner()
    with ThreadPoolExecutor(1) as pool:
        found = {pool.submit(thread_owner).result() for _ in range(5)}
    assert len(found) == 1
    assert thread_owner() not in found


def test_a_thread_that_is_given_the_number_of_an_earlier_one_is_another_owner() -> None:
    found = [in_new_thread() for _ in range(100)]
    assert len({owner for owner, _ in found}) == 100
    assert len({number for _, number in found}) < 100


def test_a_context_that_is_carried_into_another_thread_does_not_carry_the_owner() -> None:
    here = thread_owner()
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(contextvars.copy_context().run, thread_owner).result() != here


def test_h3_a_child_task_is_another_owner() -> None:
    async def parent() -> list[str]:
        return [
            task_owner(),
            await asyncio.create_task(owner()),
            (await asyncio.gather(owner()))[0],
            task_owner(),
        ]

    async def owner() -> str:
        return task_owner()

    first, child, other_child, again = asyncio.run(parent())
    assert first == again
    assert len({first, child, other_child}) == 3


def test_a_coroutine_that_is_awaited_is_its_task() -> None:
    async def owner() -> str:
        return task_owner()

    async def body() -> bool:
        return task_owner() == await owner()

    assert asyncio.run(body())


def test_a_task_whose_place_in_memory_is_used_again_is_another_owner() -> None:
    async def owner() -> tuple[str, int]:
        return task_owner(), id(asyncio.current_task())

    async def body() -> list[tuple[str, int]]:
        return [await asyncio.create_task(owner()) for _ in range(100)]

    found = asyncio.run(body())
    assert len({name for name, _ in found}) == 100
    assert len({place for _, place in found}) < 100


def test_outside_of_a_task_there_is_no_task_to_be_the_owner() -> None:
    with pytest.raises(InvalidInput, match=r"^task_owner\(\) was called outside an asyncio task$"):
        task_owner()


def test_a_callback_of_the_loop_is_no_task_either() -> None:
    async def body() -> BaseException | None:
        told: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def ask() -> None:
            try:
                task_owner()
            except InvalidInput as error:
                told.set_exception(error)

        asyncio.get_running_loop().call_soon(ask)
        await asyncio.wait([told])
        return told.exception()

    assert isinstance(asyncio.run(body()), InvalidInput)


@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_child_is_another_owner_than_the_thread_it_was_copied_from() -> None:
    ours, theirs = multiprocessing.get_context("fork").Pipe()
    here = thread_owner()
    child = multiprocessing.get_context("fork").Process(target=tell_owner, args=(theirs,))
    child.start()
    assert ours.poll(20)
    there = ours.recv()
    child.join(20)
    assert there.startswith("thread-")
    assert there != here
    assert thread_owner() == here


def tell_owner(end: Connection) -> None:
    end.send(thread_owner())


def test_an_owner_is_a_name_or_what_tells_one() -> None:
    assert checked_owner("job 7") == "job 7"
    assert checked_owner(thread_owner) == thread_owner()
