"""The owner of a reentrant lock: the one that the acquire or the handle names, otherwise the thread or the task."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from segmented.errors import InvalidInput
from segmented.locks.reentrant import thread_owner
from tests.real.contract.locks.test_reentrant import made

if TYPE_CHECKING:
    from collections.abc import Callable

    from segmented.locks.reentrant import Owner
    from tests.fixtures.stores import Side

SOON = 30.0


BAD_OWNERS: list[tuple[object, str]] = [
    ("", "^an owner needs a name$"),
    (b"bytes", "^the name of an owner is a text, not bytes: b'bytes'$"),
    ("a\nb", "cannot be printed"),
    ("x" * 2_000, "^the name of an owner has 2000 characters; the maximum is 1024$"),
    (lambda: "", "^an owner needs a name$"),
]


@pytest.mark.parametrize(("owner", "sentence"), BAD_OWNERS, ids=[str(index) for index in range(len(BAD_OWNERS))])
def test_an_owner_that_is_none_is_refused_and_nothing_is_taken(waiting_side: Side, owner: Owner, sentence: str) -> None:
    lock = made(waiting_side, waiting_side.name("lock"))
    calls: list[Callable[[], object]] = [lambda: lock.acquire(owner=owner), lambda: lock.try_acquire(owner=owner)]
    for call in calls:
        with pytest.raises(InvalidInput, match=sentence):
            call()
    assert lock.try_acquire(owner="a") is not None


def test_a_handle_may_know_its_owner_or_how_to_ask_for_it(waiting_side: Side) -> None:
    asked = []

    def ask() -> str:
        asked.append(1)
        return "a"

    lock = made(waiting_side, waiting_side.name("lock"), owner=ask)
    outer, inner = lock.acquire(timeout=0), lock.try_acquire()
    assert len(asked) == 2
    assert inner is not None
    assert lock.try_acquire(owner="b") is None
    inner.release()
    outer.release()


def test_h2_two_threads_do_not_enter_as_each_other(plain_redis_side: Side) -> None:
    lock = made(plain_redis_side, plain_redis_side.name("lock"), owner=thread_owner)
    outer = lock.acquire(timeout=0)
    assert plain_redis_side.start(lock.try_acquire).result(SOON) is None
    inner = lock.try_acquire()
    assert inner is not None
    plain_redis_side.start(inner.release).result(SOON)  # a lease is released by whoever has it
    assert plain_redis_side.start(lock.try_acquire).result(SOON) is None
    outer.release()
