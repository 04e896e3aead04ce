"""Operator functions: show the holders of a lock of any kind, revoke it, list the held names.

They read one Redis server, its Sentinels' master or its cluster. A `QuorumLock` has a vote on each of its servers: ask
each. Use a database's or ZooKeeper's own tools for their rows and nodes.

A revoke ends every lease on the name at once. Its holder is not notified: its next renewal or release reports the
lease as lost, and until then it may continue to work. The fencing token stops its late writes: the next holder has a
higher one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from segmented.errors import InvalidInput
from segmented.locks.durations import checked_name, is_whole
from segmented.plans import Plan, perform, run_async, run_sync
from segmented.protocol import ListLocks, ListMasters, RevokeLock, ShowLock

if TYPE_CHECKING:
    from segmented.models.locks import LockState, Revoked
    from segmented.plans.drivers import AsyncStore, Store

DEFAULT_HOLDERS_MAX: Final = 100
DEFAULT_NAMES_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class LockNames:
    """Sorted names of locks that were held during the scan."""

    names: tuple[str, ...]
    is_complete: bool
    """False if there were more than asked for."""


def show_plan(name: str, holders_max: int = DEFAULT_HOLDERS_MAX) -> Plan[LockState | None]:
    """Return who holds a lock."""
    return (yield from perform(ShowLock(checked_name(name), _checked(holders_max, "holders_max"))))


def revoke_plan(name: str) -> Plan[Revoked | None]:
    """End every lease on a name."""
    return (yield from perform(RevokeLock(checked_name(name), uuid4().hex)))


def list_plan(match: str, names_max: int = DEFAULT_NAMES_MAX) -> Plan[LockNames]:
    """Scan every master, step by step, until there are enough names."""
    match = checked_name(match, "a pattern of lock names")
    _checked(names_max, "names_max")
    found: set[str] = set()
    masters = yield from perform(ListMasters())
    slots: list[int | None] = [ranges[0][0] for ranges in masters]
    for slot in slots or [None]:
        cursor = 0
        while True:
            page = yield from perform(ListLocks(match, cursor, slot))
            found.update(page.names)
            cursor = page.cursor
            if cursor == 0 or len(found) > names_max:
                break
        if len(found) > names_max:
            break
    return LockNames(tuple(sorted(found)[:names_max]), is_complete=len(found) <= names_max)


def show(store: Store, name: str, *, holders_max: int = DEFAULT_HOLDERS_MAX) -> LockState | None:
    """Return who holds the lock, for how long, and who waits, or None if it is free.

    Returns up to `holders_max` holders. The key's value shows the kind; a key that another client wrote with SET NX is
    shown as a plain lock. Raises WrongKind for a key that is not a lock, and InvalidInput for an invalid name.
    """
    return run_sync(show_plan(name, holders_max), store)


def revoke(store: Store, name: str) -> Revoked | None:
    """End every lease and a lock-delay on the name, and wake waiters. Return None if it was free.

    Holders are not notified; their next renewal or release reports the loss. Raises WrongKind for a key that is not a
    lock, and InvalidInput for an invalid name.
    """
    return run_sync(revoke_plan(name), store)


def list_locks(store: Store, match: str = "*", *, names_max: int = DEFAULT_NAMES_MAX) -> LockNames:
    """Return up to `names_max` names of held locks that match.

    `*` matches anything, `?` one byte, `[abc]` one of these, `[^abc]` any other, and a backslash makes the next
    character literal. The result is not a snapshot: the scan runs in small steps, on a cluster one master after the
    other, and may miss locks that are acquired or released meanwhile.
    """
    return run_sync(list_plan(match, names_max), store)


async def async_show(store: AsyncStore, name: str, *, holders_max: int = DEFAULT_HOLDERS_MAX) -> LockState | None:
    """Return who holds the lock, as `show` does, on an async store."""
    return await run_async(show_plan(name, holders_max), store)


async def async_revoke(store: AsyncStore, name: str) -> Revoked | None:
    """End every lease on the name, as `revoke` does, on an async store."""
    return await run_async(revoke_plan(name), store)


async def async_list_locks(store: AsyncStore, match: str = "*", *, names_max: int = DEFAULT_NAMES_MAX) -> LockNames:
    """Return the names of held locks, as `list_locks` does, on an async store."""
    return await run_async(list_plan(match, names_max), store)


def _checked(number: int, what: str) -> int:
    if not is_whole(number) or number < 1:
        message = f"{what} is {number!r}: give a whole number of 1 or more"
        raise InvalidInput(message)
    return number
