"""Archiving over the wire. Each Lua file starts with its script's contract."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote

from segmented import protocol as op
from segmented.errors import InvalidInput, PoolDrifted, StoreRefused
from segmented.keys import OUTBOXES, cart_keys, directory_keys, shard_keys
from segmented.models.archives import ENTRIES_AT_ONCE, Archiving
from segmented.models.ids import plural
from segmented.models.shards import Shard, no_keys_of
from segmented.protocol.wire import Call, Codec, plain_call, script_call, text

if TYPE_CHECKING:
    from segmented.models.archives import PoolKey
    from segmented.protocol.wire import Reply

SCAN_COUNT: Final = 200
"""Records of one page: an order may have thousands of parts."""
SETS: Final = frozenset({"free", "holds", "outbox", "unfinished"})


def not_archivable(sku: str, *, reserved: int, orders: int, away: int, carts: int, behind: int = 0) -> InvalidInput:
    """Return the error for a pool in which something is left to decide."""
    name = sku.sku if isinstance(sku, Shard) else sku
    left = (
        (reserved, "unit", "reserved: confirm or cancel the orders, or let their holds expire"),
        (orders, "submitted order", "unfinished: let the workers finish what was submitted, or cancel it"),
        (away, "transfer", f"unfinished between shards: run 'segmented pool repair {name}'"),
        (carts, "cart", f"unfinished: run 'segmented pool finish-carts {name}'"),
        (behind, "change", f"not in the order database yet: run 'segmented pool relay {name} --database URL'"),
    )
    count, what, said = next(one for one in left if one[0])
    return InvalidInput(f"pool {name!r} cannot be archived: {count} {plural(count, what, 'is')} {said}")


def still_open(sku: str) -> InvalidInput:
    """Return the error for a pool that is open."""
    name = sku.sku if isinstance(sku, Shard) else sku
    return InvalidInput(f"pool {name!r} is open: close it first, with 'segmented pool close {name}'")


def not_begun(sku: str) -> StoreRefused:
    """Return the error for a pool that nobody archives, or whose server changed meanwhile."""
    return StoreRefused(f"the server of pool {sku!r} changed while the pool was read: archive it again")


def _keys_of(sku: str) -> list[str]:
    kept = cart_keys(sku)
    return [*shard_keys(sku).listed(), kept.carts, kept.unfinished]


def _key(sku: str, key: PoolKey) -> str:
    return str(getattr(cart_keys(sku) if key in {"carts", "unfinished"} else shard_keys(sku), key))


def _as_it_is(value: Reply) -> str:
    """Decode a text so that its bytes can be restored."""
    return value.decode(errors="surrogateescape") if isinstance(value, bytes) else str(value)


def _fields(found: Reply) -> tuple[tuple[str, str], ...]:
    if isinstance(found, dict):
        return tuple((_as_it_is(name), _as_it_is(value)) for name, value in found.items())
    if found and isinstance(found[0], list | tuple):
        return tuple((_as_it_is(name), _score(value)) for name, value in found)  # of a sorted set, in RESP3
    return tuple((_as_it_is(name), _as_it_is(value)) for name, value in zip(found[::2], found[1::2], strict=True))


def _score(value: Any) -> str:  # noqa: ANN401  # RESP3 has floats
    return str(int(value)) if isinstance(value, float) and value.is_integer() else _as_it_is(value)


def _answered(sku: str, reply: Reply) -> str:
    kind = text(reply[0])
    if kind == "missing":
        raise no_keys_of(sku)
    if kind in {"not_begun", "not_removing", "more"}:
        raise not_begun(sku)
    return kind


def _encode_begin(operation: op.BeginArchive) -> Call:
    return script_call("begin_archive", _keys_of(operation.sku))


def _decode_begin(operation: op.BeginArchive, reply: Reply) -> Archiving:
    match _answered(operation.sku, reply):
        case "open":
            raise still_open(operation.sku)
        case "unsettled":
            reserved, orders, away, carts, behind = map(int, reply[1:6])
            raise not_archivable(operation.sku, reserved=reserved, orders=orders, away=away, carts=carts, behind=behind)
        case "removing":
            return _complete(operation.sku, reply)
    return Archiving(operation.sku, int(reply[1]))


def _encode_abandon(operation: op.AbandonArchive) -> Call:
    return script_call("abandon_archive", shard_keys(operation.sku).listed())


def _decode_abandon(operation: op.AbandonArchive, reply: Reply) -> None:
    _answered(operation.sku, reply)


def _encode_complete(operation: op.CompleteExport) -> Call:
    return script_call("complete_export", shard_keys(operation.sku).listed(), operation.digest, quote(operation.target))


def _decode_complete(operation: op.CompleteExport, reply: Reply) -> Archiving:
    _answered(operation.sku, reply)
    return _complete(operation.sku, reply)


def _complete(sku: str, reply: Reply) -> Archiving:
    return Archiving(sku, int(reply[1]), text(reply[2]), unquote(text(reply[3])))


def _encode_scan(operation: op.ScanRecords) -> Call:
    command = "ZSCAN" if operation.key in SETS else "HSCAN"
    return plain_call(command, _key(operation.sku, operation.key), operation.cursor, "COUNT", SCAN_COUNT)


def _decode_scan(_: op.ScanRecords, reply: Reply) -> tuple[int, tuple[tuple[str, str], ...]]:
    return int(reply[0]), _fields(reply[1])


def _encode_ledger(operation: op.ScanLedger) -> Call:
    return plain_call(
        "XRANGE", shard_keys(operation.sku).ledger, f"({operation.after_id}", "+", "COUNT", operation.limit
    )


def _decode_ledger(_: op.ScanLedger, reply: Reply) -> tuple[tuple[str, tuple[tuple[str, str], ...]], ...]:
    return tuple((text(entry_id), _fields(found)) for entry_id, found in reply)


def _encode_records(operation: op.RemoveRecords) -> Call:
    return script_call("remove_records", _keys_of(operation.sku), operation.key, ENTRIES_AT_ONCE, *operation.names)


def _decode_records(operation: op.RemoveRecords, reply: Reply) -> int:
    _answered(operation.sku, reply)
    return int(reply[1])


def _encode_remove(operation: op.RemovePool) -> Call:
    keys = [*_keys_of(operation.sku), shard_keys(operation.sku).ledger_copy]
    return script_call("remove_pool", keys, operation.note_ms)


def _decode_remove(operation: op.RemovePool, reply: Reply) -> None:
    _answered(operation.sku, reply)


def _encode_drop(operation: op.DropOutbox) -> Call:
    return plain_call("SREM", OUTBOXES, operation.sku)


def _decode_drop(_: op.DropOutbox, __: Reply) -> None:
    """Ignore whether it was there: it is not any more."""


def _encode_directory(operation: op.ArchiveDirectory) -> Call:
    key = directory_keys(operation.directory.sku, operation.copy).directory
    return script_call("archive_directory", [key], operation.directory.content, operation.note_ms)


def _decode_directory(operation: op.ArchiveDirectory, reply: Reply) -> None:
    if text(reply[0]) == "differs":
        raise PoolDrifted(operation.directory.sku)


CODECS: Final = {
    op.BeginArchive: Codec(_encode_begin, _decode_begin),
    op.AbandonArchive: Codec(_encode_abandon, _decode_abandon),
    op.CompleteExport: Codec(_encode_complete, _decode_complete),
    op.ScanRecords: Codec(_encode_scan, _decode_scan),
    op.ScanLedger: Codec(_encode_ledger, _decode_ledger),
    op.RemoveRecords: Codec(_encode_records, _decode_records),
    op.RemovePool: Codec(_encode_remove, _decode_remove),
    op.DropOutbox: Codec(_encode_drop, _decode_drop),
    op.ArchiveDirectory: Codec(_encode_directory, _decode_directory),
}
