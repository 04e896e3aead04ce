"""Operator commands over the wire."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import count
from typing import TYPE_CHECKING, Final, cast

from redis.crc import key_slot

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
from segmented.models.dedup import NamespacesPage
from segmented.models.locks import HOLDER_ID_SHOWN, HolderMode, LockHolder, LockState, NamesPage, Revoked
from segmented.once_keys import once_namespace, once_pattern
from segmented.protocol import ListLocks, ListMasters, ListNamespaces, RevokeLock, ShowLock, SlotRanges
from segmented.protocol.lock.wire import FENCE_IDLE_MS
from segmented.protocol.wire import Call, Codec, load_script, optional_number, script_call, text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from segmented.protocol.operator.operations import Place
    from segmented.protocol.wire import Reply

SCAN_COUNT: Final = 1_000
"""Keys that the server scans in one step; it serves other clients between steps."""
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


def _keys(operation: ShowLock | RevokeLock) -> list[str]:
    return named_operator_keys(operation.name) if operation.is_key else operator_keys(operation.name).listed()


def _place(operation: ShowLock | RevokeLock) -> str:
    return ("segment" if segment_of(operation.name) else "key") if operation.is_key else ""


def _encode_show(operation: ShowLock) -> Call:
    return script_call("show_lock", _keys(operation), operation.holders_max, HOLDER_ID_SHOWN, _place(operation))


def _decode_show(operation: ShowLock, reply: Reply) -> LockState | None:
    parts = [text(part) for part in reply]
    if parts[0] == "free":
        return None
    _check_kind(operation, parts)
    _, kind, token, free_in_ms, flag, permits, waiters, listeners, holder_count, held_ms = parts[:HEADS]
    rest = parts[HEADS:]
    return LockState(
        name=operation.name,
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


def _encode_revoke(operation: RevokeLock) -> Call:
    return script_call("revoke_lock", _keys(operation), operation.revoke_id, FENCE_IDLE_MS, _place(operation))


def _decode_revoke(operation: RevokeLock, reply: Reply) -> Revoked | None:
    if text(reply[0]) == "free":
        return None
    _check_kind(operation, [text(part) for part in reply])
    return Revoked(text(reply[1]), optional_number(reply[2]))


def _check_kind(operation: ShowLock | RevokeLock, said: Sequence[str]) -> None:
    if said[0] == "wrong_kind":
        found = OTHERS.get(said[1], f"a {said[1]}, and not a lock that segmented knows")
        message = (
            f"the key {operation.name!r} is {found}"
            if operation.is_key
            else f"the key of the lock {operation.name!r} holds other data: it is not a lock"
        )
        raise WrongKind(message)


@dataclass(slots=True)
class _CallAnywhere(Call):
    """A call without keys of its own: on a cluster, the master of `slot` answers, or any."""

    slot: int | None = None

    @property
    def key(self) -> str:
        """Any key of the slot."""
        return "anywhere" if self.slot is None else _key_in(self.slot)


@cache
def _key_in(slot: int) -> str:
    return next(key for key in map(str, count()) if key_slot(key.encode()) == slot)


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


def _encode_list(operation: ListLocks) -> Call:
    pattern = PATTERNS[operation.place](operation.match)
    return _CallAnywhere(
        None, (), ("SCAN", operation.cursor, "MATCH", pattern, "COUNT", SCAN_COUNT), slot=operation.slot
    )


def _decode_list(operation: ListLocks, reply: Reply) -> NamesPage:
    keys = [key.decode(errors="replace") if isinstance(key, bytes) else str(key) for key in reply[1]]
    names = map(NAMES[operation.place], keys)
    return NamesPage(tuple(name for name in names if name is not None), int(text(reply[0])))


def _encode_namespaces(operation: ListNamespaces) -> Call:
    words = ("SCAN", operation.cursor, "MATCH", once_pattern(operation.key), "COUNT", SCAN_COUNT)
    return _CallAnywhere(None, (), words, slot=operation.slot)


def _decode_namespaces(_: ListNamespaces, reply: Reply) -> NamespacesPage:
    keys = [key.decode(errors="replace") if isinstance(key, bytes) else str(key) for key in reply[1]]
    names = {once_namespace(key) for key in keys} - {None}
    return NamespacesPage(tuple(sorted(name for name in names if name is not None)), int(text(reply[0])))


def _encode_masters(_: ListMasters) -> Call:
    return _CallAnywhere(load_script("list_masters"), (), ())


def _decode_masters(_: ListMasters, reply: Reply) -> tuple[SlotRanges, ...]:
    return tuple(tuple((int(flat[index]), int(flat[index + 1])) for index in range(0, len(flat), 2)) for flat in reply)


CODECS: Final = {
    ShowLock: Codec(_encode_show, _decode_show),
    RevokeLock: Codec(_encode_revoke, _decode_revoke),
    ListLocks: Codec(_encode_list, _decode_list),
    ListMasters: Codec(_encode_masters, _decode_masters),
    ListNamespaces: Codec(_encode_namespaces, _decode_namespaces),
}
