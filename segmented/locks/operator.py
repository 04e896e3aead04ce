"""Operator functions: show the holders of a lock of any kind, revoke it, list the held names.

A name is looked for as a lock of ours, as one of `segmented.compat`, and as a lock that redis-py, python-redis-lock or
Redisson would have under this name. They read one Redis server, its Sentinels' master or its cluster. A `QuorumLock`
has a vote on each of its servers: ask each. Use a database's or ZooKeeper's own tools for their rows and nodes.

A revoke ends every lease on the name at once. Its holder is not notified: its next renewal or release reports the
lease as lost, and until then it may continue to work. The fencing token stops its late writes: the next holder has a
higher one.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from segmented.errors import InvalidInput, StoreRefused, WrongKind
from segmented.locks.durations import checked_name, is_whole
from segmented.plans import Plan, perform, run_async, run_sync
from segmented.protocol import ListLocks, ListMasters, RevokeLock, ShowLock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from segmented.models.locks import LockState, Revoked
    from segmented.plans.drivers import AsyncStore, Store
    from segmented.protocol.operator import Place

PYTHON_REDIS_LOCK: Final = "lock:"
"""The prefix that python-redis-lock writes before a name."""
HOLDERS_MAX: Final = 100
"""Holders that are shown of one lock, such as permits of a semaphore."""
DEFAULT_NAMES_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class LockNames:
    """Sorted names of locks that were held during the scan."""

    names: tuple[str, ...]
    is_complete: bool
    """False if there were more than asked for."""


def show_plan(name: str) -> Plan[LockState | None]:
    """Return who holds a lock, of ours or another library's."""
    state = yield from perform(ShowLock(checked_name(name), HOLDERS_MAX))
    if state is None:
        with suppress(WrongKind, StoreRefused):  # other data has the name, or the account may not read it
            state = yield from perform(ShowLock(name, HOLDERS_MAX, is_key=True))
    if state is None:
        with suppress(WrongKind, StoreRefused):
            state = yield from perform(ShowLock(f"{PYTHON_REDIS_LOCK}{name}", HOLDERS_MAX, is_key=True))
            state = None if state is None else replace(state, name=name)
    return state


def revoke_plan(name: str) -> Plan[Revoked | None]:
    """End every lease on a name."""
    revoke_id = uuid4().hex
    revoked = yield from perform(RevokeLock(checked_name(name), revoke_id))
    state = None if revoked else (yield from show_plan(name))
    if state is not None:
        is_prefixed = state.kind == "python-redis-lock" and not name.startswith(PYTHON_REDIS_LOCK)
        key = f"{PYTHON_REDIS_LOCK}{name}" if is_prefixed else name
        revoked = yield from perform(RevokeLock(key, revoke_id, is_key=True))
    return revoked


def list_plan(
    match: str, names_max: int = DEFAULT_NAMES_MAX, *, places: Sequence[Place] = ("lock", "compat")
) -> Plan[LockNames]:
    """Scan every master, step by step, until there are enough names."""
    match = checked_name(match, "a pattern of lock names")
    _checked(names_max, "names_max")
    found: set[str] = set()
    masters = yield from perform(ListMasters())
    slots: list[int | None] = [ranges[0][0] for ranges in masters]
    for place, slot in product(places, slots or [None]):
        cursor = 0
        while True:
            page = yield from perform(ListLocks(match, cursor, slot, place))
            found.update(page.names)
            cursor = page.cursor
            if cursor == 0 or len(found) > names_max:
                break
        if len(found) > names_max:
            break
    return LockNames(tuple(sorted(found)[:names_max]), is_complete=len(found) <= names_max)


async def async_show(store: AsyncStore, name: str) -> LockState | None:
    """Return who holds the lock, for how long, and who waits, or None if nothing that was looked for is held.

    Returns up to 100 holders. Looks for locks of every kind of ours, of `segmented.compat`, redis-py,
    python-redis-lock and Redisson on this server; the state's `kind` says which it is. Their keys have other names than
    ours, and are passed over if the account may not read them. Raises WrongKind if other data has the key of a lock of
    ours, and InvalidInput for an invalid name.
    """
    return await run_async(show_plan(name), store)


async def async_revoke(store: AsyncStore, name: str) -> Revoked | None:
    """End every lease and a lock-delay on the name, and wake waiters. Return None if there was nothing to revoke.

    Holders are not notified; their next renewal or release reports the loss. Raises WrongKind for a key that is not a
    lock, or is one of python-redis-lock or Redisson, which have ways of their own to end it, and InvalidInput for an
    invalid name.
    """
    return await run_async(revoke_plan(name), store)


async def async_list_locks(store: AsyncStore, match: str = "*", *, names_max: int = DEFAULT_NAMES_MAX) -> LockNames:
    """Return up to `names_max` names of held locks that match.

    `*` matches anything, `?` one byte, `[abc]` one of these, `[^abc]` any other, and a backslash makes the next
    character literal. The result is not a snapshot: the scan runs in small steps, on a cluster one master after the
    other, and may miss locks that are acquired or released meanwhile.
    """
    return await run_async(list_plan(match, names_max), store)


def _checked(number: int, what: str) -> int:
    if not is_whole(number) or number < 1:
        raise InvalidInput(f"{what} is {number!r}: give a whole number of 1 or more")
    return int(number)


# --- For threads: written by `make sync` from the classes above. ---


def show(store: Store, name: str) -> LockState | None:
    """Return who holds the lock, for how long, and who waits, or None if nothing that was looked for is held.

    Returns up to 100 holders. Looks for locks of every kind of ours, of `segmented.compat`, redis-py,
    python-redis-lock and Redisson on this server; the state's `kind` says which it is. Their keys have other names than
    ours, and are passed over if the account may not read them. Raises WrongKind if other data has the key of a lock of
    ours, and InvalidInput for an invalid name.
    """
    return run_sync(show_plan(name), store)


def revoke(store: Store, name: str) -> Revoked | None:
    """End every lease and a lock-delay on the name, and wake waiters. Return None if there was nothing to revoke.

    Holders are not notified; their next renewal or release reports the loss. Raises WrongKind for a key that is not a
    lock, or is one of python-redis-lock or Redisson, which have ways of their own to end it, and InvalidInput for an
    invalid name.
    """
    return run_sync(revoke_plan(name), store)


def list_locks(store: Store, match: str = "*", *, names_max: int = DEFAULT_NAMES_MAX) -> LockNames:
    """Return up to `names_max` names of held locks that match.

    `*` matches anything, `?` one byte, `[abc]` one of these, `[^abc]` any other, and a backslash makes the next
    character literal. The result is not a snapshot: the scan runs in small steps, on a cluster one master after the
    other, and may miss locks that are acquired or released meanwhile.
    """
    return run_sync(list_plan(match, names_max), store)
