"""Auditing, repairing and trimming over the wire. Each Lua file starts with its script's contract."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from segmented import protocol as op
from segmented.errors import PoolDrifted
from segmented.keys import shard_keys
from segmented.models import Differing, Inspected, Mended, Outrun, Sound, Trimmed
from segmented.protocol.pool.foreign import moment, whole
from segmented.protocol.pool.wire import SCAN_COUNT, keys_of, kind_of
from segmented.protocol.relay.wire import not_relayed
from segmented.protocol.wire import Call, Codec, plain_call, script_call, text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from segmented.protocol.wire import Finish, Reply


def foreign_text(value: Reply) -> str:
    """Decode a text that another program may have written."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def pairs_in(found: Reply) -> Iterator[tuple[str, str]]:
    """Read the pairs in a reply to HSCAN or ZSCAN, in any of its shapes."""
    if isinstance(found, dict):
        pairs = list(found.items())
    elif found and isinstance(found[0], list | tuple):
        pairs = found
    else:
        pairs = list(zip(found[::2], found[1::2], strict=True))
    return ((foreign_text(name), foreign_text(value)) for name, value in pairs)


# --- reading ---


def _encode_inspect(operation: op.InspectOrders) -> Call:
    return script_call("read_orders", keys_of(operation.sku), *operation.order_ids)


def _decode_inspect(operation: op.InspectOrders, reply: Reply) -> tuple[Inspected, ...]:
    found = zip(operation.order_ids, reply[1], reply[2], strict=False)  # maybe of the first orders only
    return tuple(
        Inspected(order_id, None if raw is None else foreign_text(raw), None if until is None else moment(until))
        for order_id, raw, until in found
    )


def _inspect_more(operation: op.InspectOrders, answers: tuple[Inspected, ...]) -> Finish:
    """Read the records that one page was too short for."""
    while left := operation.order_ids[len(answers) :]:
        answers += yield replace(operation, order_ids=left)
    return answers


def _encode_scan_ids(operation: op.ScanIds) -> Call:
    keys = shard_keys(operation.sku)
    key = {"orders": keys.orders, "holds": keys.holds, "customers": keys.customers}[operation.key]
    command = "ZSCAN" if operation.key == "holds" else "HSCAN"
    return plain_call(command, key, operation.cursor, "COUNT", SCAN_COUNT)


def _decode_scan_ids(_: op.ScanIds, reply: Reply) -> tuple[int, tuple[str, ...]]:
    return int(reply[0]), tuple(name for name, _ in pairs_in(reply[1]))


def _encode_scan_changes(operation: op.ScanChanges) -> Call:
    return plain_call("HSCAN", shard_keys(operation.sku).changes, operation.cursor, "COUNT", SCAN_COUNT)


def _decode_scan_changes(_: op.ScanChanges, reply: Reply) -> tuple[int, tuple[tuple[str, str], ...]]:
    return int(reply[0]), tuple(pairs_in(reply[1]))


def _encode_customers(operation: op.ReadCustomers) -> Call:
    return script_call("read_customers", keys_of(operation.sku), *operation.customer_ids)


def _decode_customers(operation: op.ReadCustomers, reply: Reply) -> tuple[int, tuple[int | None, ...]]:
    kind_of(operation.sku, reply)
    return whole(reply[1]) or 0, tuple(0 if units is None else whole(units) for units in reply[2])


def _encode_start(operation: op.ReadLedgerStart) -> Call:
    return plain_call("HGET", shard_keys(operation.sku).meta, "ledger_start")


def _decode_start(_: op.ReadLedgerStart, reply: Reply) -> int:
    return 1 if reply is None else whole(reply) or 0


# --- changing ---


def _encode_trim(operation: op.TrimLedger) -> Call:
    return script_call("trim_ledger", keys_of(operation.sku), operation.keep, int(operation.relayed_only))


def _decode_trim(operation: op.TrimLedger, reply: Reply) -> Trimmed:
    kind = kind_of(operation.sku, reply)
    if kind == "unsound":
        raise PoolDrifted(operation.sku)
    if kind == "not_relayed":
        relayed, last = (int(reply[1]), int(reply[2])), (int(reply[3]), int(reply[4]))
        raise not_relayed(operation.sku, relayed, last)
    return Trimmed(int(reply[1]), int(reply[2]), text(reply[3]) == "1")


def _encode_number(operation: op.MendNumber) -> Call:
    arguments = (operation.kind, operation.name, operation.after, operation.expected)
    return script_call("mend_number", keys_of(operation.sku), *arguments)


def _encode_record(operation: op.MendRecord) -> Call:
    seen, wanted = ("-" if found is None else f"+{found}" for found in (operation.seen, operation.wanted))
    head = (operation.kind, operation.record_id, operation.after)
    return script_call("mend_record", keys_of(operation.sku), *head, seen, wanted, operation.hold_ms)


def _encode_ledger(operation: op.MendLedger) -> Call:
    return script_call("mend_ledger", [*keys_of(operation.sku), shard_keys(operation.sku).ledger_copy])


def _decode_mended(
    operation: op.MendNumber | op.MendRecord | op.MendLedger, reply: Reply
) -> Mended | Sound | Differing | Outrun:
    match kind_of(operation.sku, reply):
        case "mended":
            return Mended(int(reply[1]))
        case "sound":
            return Sound()
        case "differing":
            return Differing()
        case _:
            return Outrun()


CODECS: Final = {
    op.InspectOrders: Codec(_encode_inspect, _decode_inspect, finish=_inspect_more),
    op.ScanIds: Codec(_encode_scan_ids, _decode_scan_ids),
    op.ScanChanges: Codec(_encode_scan_changes, _decode_scan_changes),
    op.ReadCustomers: Codec(_encode_customers, _decode_customers),
    op.ReadLedgerStart: Codec(_encode_start, _decode_start),
    op.TrimLedger: Codec(_encode_trim, _decode_trim),
    op.MendNumber: Codec(_encode_number, _decode_mended),
    op.MendRecord: Codec(_encode_record, _decode_mended),
    op.MendLedger: Codec(_encode_ledger, _decode_mended),
}
