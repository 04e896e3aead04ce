"""The names of the library's own locks: no user's lock takes one, in any kind of lock."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from segmented import FairLock, InvalidInput, Lock, MemoryStore, ReadWriteLock, ReentrantLock, Semaphore
from segmented.locks import GetSetLock, MultiLock, locked
from segmented.locks.durations import RESERVED, OwnName

if TYPE_CHECKING:
    from collections.abc import Callable

STORE = MemoryStore()
NAME = "_segmented:sweep of segmented"
KINDS: dict[str, Callable[[], object]] = {
    "Lock": lambda: Lock(STORE, NAME),
    "ReentrantLock": lambda: ReentrantLock(STORE, NAME),
    "FairLock": lambda: FairLock(STORE, NAME),
    "ReadWriteLock": lambda: ReadWriteLock(STORE, NAME),
    "Semaphore": lambda: Semaphore(STORE, NAME, permits=2),
    "GetSetLock": lambda: GetSetLock(STORE, NAME),
    "MultiLock": lambda: MultiLock(STORE, ["a", NAME]),
    "locked": locked(NAME, store=STORE)(lambda: 7),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_name_of_the_librarys_own_is_refused_in_one_sentence(kind: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        KINDS[kind]()
    assert str(caught.value) == (
        "the name of a lock begins with '_segmented:', which the library uses for its own locks: "
        "'_segmented:sweep of segmented'"
    )


def test_the_library_itself_takes_such_a_lock() -> None:
    with Lock(STORE, OwnName("sweep of segmented")).acquire() as lease:
        assert lease.name == NAME == f"{RESERVED}sweep of segmented"
