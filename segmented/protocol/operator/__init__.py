"""Operations for an operator: show a lock of any kind, revoke it, list held names, and the masters of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import count
from typing import Final, Literal, cast

from segmented.errors import WrongKind
from segmented.keys import (
    lock_name,
    lock_pattern,
    named_lock,
    named_lock_pattern,
    named_operator_keys,
    operator_keys,
    segment_of,
    segment_pattern,
)
from segmented.models.locks import HOLDER_ID_SHOWN, HolderMode, LockHolder, LockState, NamesPage, Revoked
from segmented.protocol.base import Operation
from segmented.protocol.lock import FENCE_IDLE_MS
from segmented.protocol.wire import SCAN_COUNT, Call, Reply, load_script, optional_number, readable, script_call, text
from segmented.values import light_dataclass

Place = Literal["lock", "compat", "segment", "key"]
SlotRanges = tuple[tuple[int, int], ...]
"""First and last slot of each range."""
HEADS: Final = 10
"""Number of fields in a reply before the holders."""
PARTS: Final = 6
"""Number of fields of one holder."""
OTHERS: Final = {
    "python-redis-lock": "a lock of python-redis-lock: end it there, with reset()",
    "Redisson": "a lock of Redisson: end it there, with forceUnlock()",
    "segment": "a held segment of a pool: it is free when its order is confirmed or cancelled, or its lease expires",
}
"""Locks that are shown and not revoked: their waiters would not be notified, or their orders not be ended."""
PATTERNS: Final[dict[Place, Callable[[str], str]]] = {
    "lock": lock_pattern,
    "compat": named_lock_pattern,
    "segment": segment_pattern,
    "key": str,
}
NAMES: Final[dict[Place, Callable[[str], str | None]]] = {
    "lock": lock_name,
    "compat": named_lock,
    "segment": lambda key: key if segment_of(key) else None,
    "key": lambda key: None if key.startswith("seg:") else key,
}


@light_dataclass(frozen=True, slots=True)
class ShowLock(Operation[LockState | None]):
    """Return the state of a lock of any kind, with at most `holders_max` holders; None if it is free.

    With `is_key`, the name is the key itself: a lock of `segmented.compat`, a pool's segment, or another
    library's lock.
    """

    name: str
    holders_max: int
    is_key: bool = False

    def call(self) -> Call:
        return script_call("show_lock", _keys(self), self.holders_max, HOLDER_ID_SHOWN, _place(self))

    def answer(self, reply: Reply) -> LockState | None:
        parts = [text(part) for part in reply]
        if parts[0] == "free":
            return None
        _check_kind(self, parts)
        _, kind, token, free_in_ms, flag, permits, waiters, listeners, holder_count, held_ms = parts[:HEADS]
        rest = parts[HEADS:]
        return LockState(
            name=self.name,
            kind=kind,
            holders=tuple(_holder(rest[start : start + PARTS]) for start in range(0, len(rest), PARTS)),
            holder_count=int(holder_count),
            free_in_ms=optional_number(free_in_ms),
            fencing_token=optional_number(token),
            is_delayed=flag == "1",
            held_ms=optional_number(held_ms),
            permits=optional_number(permits),
            waiters=optional_number(waiters),
            listeners=optional_number(listeners),
        )


@light_dataclass(frozen=True, slots=True)
class RevokeLock(Operation[Revoked | None]):
    """End every lease on the name and any lock-delay, and wake the waiters; None if it is free.

    The holders get "lost" from their next renewal or release. A repeat with the same `revoke_id` gets the same answer
    and leaves newer leases alone. With `is_key`, it is a lock of `segmented.compat` or redis-py; others are refused.
    """

    name: str
    revoke_id: str
    is_key: bool = False

    def call(self) -> Call:
        return script_call("revoke_lock", _keys(self), self.revoke_id, FENCE_IDLE_MS, _place(self))

    def answer(self, reply: Reply) -> Revoked | None:
        if text(reply[0]) == "free":
            return None
        _check_kind(self, [text(part) for part in reply])
        return Revoked(text(reply[1]), optional_number(reply[2]))


@light_dataclass(frozen=True, slots=True)
class ListLocks(Operation[NamesPage]):
    """Return some held locks that match, and the next cursor (0 at the end); a name may appear twice.

    On a cluster, the master that serves `slot` answers. `place` is where to look: a page of `lock` has names of locks,
    of `compat` names that segmented.compat has used, of `segment` keys of held segments, of `key` any keys.
    """

    match: str
    cursor: int = 0
    slot: int | None = None
    place: Place = "lock"

    def call(self) -> Call:
        return keys_page(PATTERNS[self.place](self.match), self.cursor, self.slot)

    def answer(self, reply: Reply) -> NamesPage:
        names = map(NAMES[self.place], map(readable, reply[1]))
        return NamesPage(tuple(name for name in names if name is not None), int(text(reply[0])))


@light_dataclass(frozen=True, slots=True)
class ListMasters(Operation[tuple[SlotRanges, ...]]):
    """Return which hash slots each master of a cluster serves; nothing for a server outside a cluster."""

    def call(self) -> Call:
        return CallAnywhere(load_script("list_masters"), (), ())

    def answer(self, reply: Reply) -> tuple[SlotRanges, ...]:
        return tuple(
            tuple((int(flat[index]), int(flat[index + 1])) for index in range(0, len(flat), 2)) for flat in reply
        )


def _keys(operation: ShowLock | RevokeLock) -> list[str]:
    return named_operator_keys(operation.name) if operation.is_key else operator_keys(operation.name)


def _place(operation: ShowLock | RevokeLock) -> str:
    return ("segment" if segment_of(operation.name) else "key") if operation.is_key else ""


def _holder(parts: Sequence[str]) -> LockHolder:
    start, mode, remaining_ms, owner, entered, process = parts
    return LockHolder(
        start,
        cast("HolderMode", mode),
        optional_number(remaining_ms),
        owner=owner or None,
        count=int(entered),
        process=process or None,
    )


def _check_kind(operation: ShowLock | RevokeLock, said: Sequence[str]) -> None:
    if said[0] == "wrong_kind":
        found = OTHERS.get(said[1], f"a {said[1]}, and not a lock that segmented knows")
        raise WrongKind(
            f"the key {operation.name!r} is {found}"
            if operation.is_key
            else f"the key of the lock {operation.name!r} holds other data: it is not a lock"
        )


@dataclass(slots=True)
class CallAnywhere(Call):
    """A call without keys of its own: on a cluster, the master of `slot` answers, or any."""

    slot: int | None = None

    @property
    def key(self) -> str:
        """Any key of the slot."""
        return "anywhere" if self.slot is None else _key_in(self.slot)


def keys_page(pattern: str, cursor: int, slot: int | None) -> Call:
    """Return a call for one page of the keys that match; the server serves other clients between pages."""
    return CallAnywhere(None, (), ("SCAN", cursor, "MATCH", pattern, "COUNT", SCAN_COUNT), slot=slot)


@cache
def _key_in(slot: int) -> str:
    from redis.crc import key_slot  # noqa: PLC0415  # locks import this module, and no driver

    return next(key for key in map(str, count()) if key_slot(key.encode()) == slot)
