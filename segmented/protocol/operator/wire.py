"""Operator commands over the wire."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import count
from typing import TYPE_CHECKING, Final, cast

from redis.crc import key_slot

from segmented.errors import WrongKind
from segmented.keys import lock_name, lock_pattern, operator_keys
from segmented.models.dedup import NamespacesPage
from segmented.models.locks import HOLDER_ID_SHOWN, HolderMode, LockHolder, LockState, NamesPage, Revoked
from segmented.once_keys import once_namespace, once_pattern
from segmented.protocol import ListLocks, ListMasters, ListNamespaces, RevokeLock, ShowLock, SlotRanges
from segmented.protocol.lock.wire import FENCE_IDLE_MS
from segmented.protocol.wire import Call, Codec, load_script, optional_number, script_call, text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from segmented.protocol.wire import Reply

SCAN_COUNT: Final = 1_000
"""Keys that the server scans in one step; it serves other clients between steps."""
HEADS: Final = 9
"""Number of fields in a reply before the holders."""
PARTS: Final = 5
"""Number of fields of one holder."""


def _encode_show(operation: ShowLock) -> Call:
    return script_call("show_lock", operator_keys(operation.name).listed(), operation.holders_max, HOLDER_ID_SHOWN)


def _decode_show(operation: ShowLock, reply: Reply) -> LockState | None:
    parts = [text(part) for part in reply]
    if parts[0] == "free":
        return None
    _check_kind(operation.name, parts[0])
    _, kind, token, free_in_ms, flag, permits, waiters, listeners, holder_count = parts[:HEADS]
    rest = parts[HEADS:]
    return LockState(
        name=operation.name,
        kind=kind,
        holders=tuple(_holder(rest[start : start + PARTS]) for start in range(0, len(rest), PARTS)),
        holder_count=int(holder_count),
        free_in_ms=optional_number(free_in_ms),
        fencing_token=optional_number(token),
        is_delayed=flag == "1",
        permits=optional_number(permits),
        waiters=optional_number(waiters),
        listeners=optional_number(listeners),
    )


def _holder(parts: Sequence[str]) -> LockHolder:
    start, mode, remaining_ms, owner, entered = parts
    return LockHolder(
        start, cast("HolderMode", mode), optional_number(remaining_ms), owner=owner or None, count=int(entered)
    )


def _encode_revoke(operation: RevokeLock) -> Call:
    return script_call("revoke_lock", operator_keys(operation.name).listed(), operation.revoke_id, FENCE_IDLE_MS)


def _decode_revoke(operation: RevokeLock, reply: Reply) -> Revoked | None:
    if text(reply[0]) == "free":
        return None
    _check_kind(operation.name, text(reply[0]))
    return Revoked(text(reply[1]), optional_number(reply[2]))


def _check_kind(name: str, said: str) -> None:
    if said == "wrong_kind":
        message = f"the key of the lock {name!r} holds other data: it is not a lock"
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


def _encode_list(operation: ListLocks) -> Call:
    pattern = lock_pattern(operation.match)
    return _CallAnywhere(
        None, (), ("SCAN", operation.cursor, "MATCH", pattern, "COUNT", SCAN_COUNT), slot=operation.slot
    )


def _decode_list(_: ListLocks, reply: Reply) -> NamesPage:
    keys = [key.decode(errors="replace") if isinstance(key, bytes) else str(key) for key in reply[1]]
    names = (lock_name(key) for key in keys)
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
