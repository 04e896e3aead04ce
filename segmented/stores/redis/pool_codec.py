"""Stock pools over the wire. The contracts of the scripts stand at the head of each Lua file."""

from __future__ import annotations

import json
from typing import Any, Final

from segmented import operations as op
from segmented.errors import OrderMismatch, OrderUnknown, PoolGated, PoolMissing, StoreRefused
from segmented.keys import shard_keys
from segmented.models import (
    AlreadyOpen,
    Busy,
    Granted,
    LedgerEntry,
    Lost,
    Opened,
    OrderRecord,
    Part,
    PoolState,
    Renewed,
    Reserved,
    Settled,
    SoldOut,
    Superseded,
)
from segmented.stores.redis.wire import Call, Codec, Reply, optional_number, plain_call, script_call, text

SCAN_COUNT: Final = 1_000


def _keys(sku: str) -> list[str]:
    return shard_keys(sku).listed()


def _kind(sku: str, reply: Reply, order_id: str = "") -> str:
    """Name the answer, and raise for the answers that are failures."""
    kind = text(reply[0])
    if kind == "missing":
        raise PoolMissing(sku)
    if kind == "mismatch":
        raise OrderMismatch(order_id)
    if kind == "unknown":
        raise OrderUnknown(order_id)
    if kind == "gated":
        raise PoolGated(sku, order_id)
    return kind


def _parts(found: str) -> tuple[Part, ...]:
    return tuple(
        (int(segment), int(units)) for segment, _, units in (part.partition(":") for part in found.split(",") if part)
    )


# --- answers that several operations share ---


def _settled(order_id: str, reply: Reply) -> Settled:
    return Settled(
        order_id=order_id,
        state=text(reply[1]),  # type: ignore[arg-type]  # the scripts write only these words
        quantity=int(reply[2]),
        segment=int(reply[3]),
        fencing_token=optional_number(reply[4]),
        sequence=int(reply[5]),
        replay=text(reply[6]) == "1",
    )


def _sold_out(operation: op.Reserve | op.Grant, reply: Reply) -> SoldOut:
    order = operation.order
    return SoldOut(
        order_id=order.order_id,
        quantity=order.quantity,
        available=int(reply[1]),
        reserved=int(reply[2]),
        sequence=int(reply[3]),
        replay=text(reply[4]) == "1",
    )


def _busy(order_id: str, reply: Reply) -> Busy:
    return Busy(order_id, int(reply[1]), optional_number(reply[2]), is_in_hand=text(reply[0]) == "in_hand")


# --- opening and reading ---


def _encode_open(operation: op.OpenPool) -> Call:
    gated = "1" if operation.gated else "0"
    arguments = (operation.stock, operation.segment_count, gated, operation.epoch)
    return script_call("open_pool", _keys(operation.sku), *arguments)


def _decode_open(operation: op.OpenPool, reply: Reply) -> Opened | AlreadyOpen:
    kind = text(reply[0])
    if kind == "remains":
        message = f"pool {operation.sku!r} lost some of its keys; opening it again could sell its units twice"
        raise StoreRefused(message)
    state = _decode_read(op.ReadPool(operation.sku), reply[1])
    return Opened(state) if kind == "opened" else AlreadyOpen(state)


def _encode_read(operation: op.ReadPool) -> Call:
    return script_call("read_pool", _keys(operation.sku))


def _decode_read(operation: op.ReadPool, reply: Reply) -> PoolState:
    _kind(operation.sku, reply)
    numbers = [int(value) for value in reply[1:10]]
    flat = reply[10]
    units = {int(flat[index]): int(flat[index + 1]) for index in range(0, len(flat), 2)}
    return PoolState(
        sku=operation.sku,
        epoch=numbers[0],
        segment_count=numbers[1],
        gated=bool(numbers[2]),
        sequence=numbers[3],
        opened=numbers[4],
        available=numbers[5],
        reserved=numbers[6],
        confirmed=numbers[7],
        order_count=numbers[8],
        stock=tuple(units.get(segment, 0) for segment in range(numbers[1])),
    )


def _record(order_id: str, raw: Reply) -> OrderRecord:
    found: dict[str, Any] = json.loads(text(raw))
    return OrderRecord(
        order_id=order_id,
        state=found["state"],
        quantity=found["quantity"],
        segment=found.get("segment", -1),
        parts=tuple((segment, units) for segment, units in found.get("parts") or ()),
        holder_id=found.get("holder"),
        fencing_token=int(found["fence"]) if found.get("fence") else None,
        hold_until_ms=found["hold_until"],
        customer_id=found.get("customer"),
        fingerprint=found["fingerprint"],
        sequence=found["sequence"],
    )


def _encode_read_orders(operation: op.ReadOrders) -> Call:
    return plain_call("HMGET", shard_keys(operation.sku).orders, *operation.order_ids)


def _decode_read_orders(operation: op.ReadOrders, reply: Reply) -> tuple[OrderRecord | None, ...]:
    pairs = zip(operation.order_ids, reply, strict=True)
    return tuple(None if raw is None else _record(order_id, raw) for order_id, raw in pairs)


def _encode_scan_orders(operation: op.ScanOrders) -> Call:
    return plain_call("HSCAN", shard_keys(operation.sku).orders, operation.cursor, "COUNT", SCAN_COUNT)


def _decode_scan_orders(_: op.ScanOrders, reply: Reply) -> tuple[int, tuple[OrderRecord, ...]]:
    cursor, found = reply
    pairs = found.items() if isinstance(found, dict) else zip(found[::2], found[1::2], strict=True)
    return int(cursor), tuple(_record(text(order_id), raw) for order_id, raw in pairs)


def _encode_read_ledger(operation: op.ReadLedger) -> Call:
    return script_call("read_ledger", _keys(operation.sku), operation.after, operation.limit)


def _decode_read_ledger(operation: op.ReadLedger, reply: Reply) -> tuple[LedgerEntry, ...]:
    _kind(operation.sku, reply)
    return tuple(_entry(entry_id, flat) for entry_id, flat in reply[1])


def _entry(entry_id: Reply, flat: Reply) -> LedgerEntry:
    epoch, _, sequence = text(entry_id).partition("-")
    found = {text(flat[index]): text(flat[index + 1]) for index in range(0, len(flat), 2)}
    return LedgerEntry(
        epoch=int(epoch),
        sequence=int(sequence),
        kind=found["kind"],  # type: ignore[arg-type]  # the scripts write only these words
        at_us=int(found["at_us"]),
        order_id=found["order"] or None,
        quantity=int(found["quantity"]),
        parts=_parts(found["parts"]),
        segment=optional_number(found["segment"]),
        fencing_token=optional_number(found["fence"]),
    )


def _encode_list_due(operation: op.ListDue) -> Call:
    return script_call("list_due", _keys(operation.sku), operation.limit)


def _decode_list_due(operation: op.ListDue, reply: Reply) -> tuple[str, ...]:
    _kind(operation.sku, reply)
    return tuple(text(order_id) for order_id in reply[1:])


# --- taking ---


def _encode_reserve(operation: op.Reserve) -> Call:
    order = operation.order
    content = (order.order_id, order.quantity, order.customer_id or "", order.fingerprint)
    return script_call("reserve", _keys(operation.sku), *content, operation.hold_ms)


def _decode_reserve(operation: op.Reserve, reply: Reply) -> Reserved | SoldOut | Busy | Settled:
    order = operation.order
    kind = _kind(operation.sku, reply, order.order_id)
    if kind == "settled":
        return _settled(order.order_id, reply)
    if kind == "sold_out":
        return _sold_out(operation, reply)
    if kind == "busy":
        return _busy(order.order_id, reply)
    return Reserved(
        order_id=order.order_id,
        quantity=order.quantity,
        epoch=int(reply[1]),
        segment=int(reply[2]),
        parts=_parts(text(reply[3])),
        sequence=int(reply[4]),
        replay=text(reply[5]) == "1",
    )


def _encode_grant(operation: op.Grant) -> Call:
    order = operation.order
    content = (order.order_id, order.quantity, order.customer_id or "", order.fingerprint)
    lease = (operation.holder_id, operation.ttl_ms, operation.hold_ms, "1" if operation.keep_refusal else "0")
    return script_call("grant", _keys(operation.sku), *content, *lease)


def _decode_grant(operation: op.Grant, reply: Reply) -> Granted | SoldOut | Busy | Settled:
    order = operation.order
    kind = _kind(operation.sku, reply, order.order_id)
    if kind == "settled":
        return _settled(order.order_id, reply)
    if kind == "sold_out":
        return _sold_out(operation, reply)
    if kind in {"busy", "in_hand"}:
        return _busy(order.order_id, reply)
    return Granted(
        order_id=order.order_id,
        quantity=order.quantity,
        segment=int(reply[2]),
        parts=_parts(text(reply[3])),
        holder_id=operation.holder_id,
        fencing_token=int(reply[4]),
        epoch=int(reply[1]),
        sequence=int(reply[5]),
        free_in_ms=optional_number(reply[6]),
        replay=text(reply[7]) == "1",
    )


def _encode_renew(operation: op.RenewGrant) -> Call:
    lease = (operation.holder_id, operation.ttl_ms, operation.hold_ms)
    return script_call("renew_grant", _keys(operation.sku), operation.order_id, *lease)


def _decode_renew(operation: op.RenewGrant, reply: Reply) -> Renewed | Lost:
    renewed = _kind(operation.sku, reply, operation.order_id) == "renewed"
    return Renewed(operation.ttl_ms) if renewed else Lost()


# --- deciding ---


def _encode_confirm(operation: op.Confirm) -> Call:
    return script_call("confirm", _keys(operation.sku), operation.order_id, operation.holder_id or "")


def _decode_confirm(operation: op.Confirm, reply: Reply) -> Settled:
    _kind(operation.sku, reply, operation.order_id)
    return _settled(operation.order_id, reply)


def _encode_cancel(operation: op.Cancel) -> Call:
    arguments = (operation.order_id, operation.holder_id or "", "1" if operation.voided else "0")
    return script_call("cancel", _keys(operation.sku), *arguments)


def _decode_cancel(operation: op.Cancel, reply: Reply) -> Settled | Superseded:
    if _kind(operation.sku, reply, operation.order_id) == "superseded":
        return Superseded(operation.order_id, int(reply[1]))
    return _settled(operation.order_id, reply)


def _encode_expire(operation: op.Expire) -> Call:
    return script_call("expire", _keys(operation.sku), operation.order_id, "1" if operation.voided else "0")


def _decode_expire(operation: op.Expire, reply: Reply) -> Settled | None:
    if _kind(operation.sku, reply, operation.order_id) == "alive":
        return None
    return _settled(operation.order_id, reply)


POOL_CODECS: Final = {
    op.OpenPool: Codec(_encode_open, _decode_open),
    op.ReadPool: Codec(_encode_read, _decode_read),
    op.Reserve: Codec(_encode_reserve, _decode_reserve),
    op.Grant: Codec(_encode_grant, _decode_grant),
    op.RenewGrant: Codec(_encode_renew, _decode_renew),
    op.Confirm: Codec(_encode_confirm, _decode_confirm),
    op.Cancel: Codec(_encode_cancel, _decode_cancel),
    op.Expire: Codec(_encode_expire, _decode_expire),
    op.ListDue: Codec(_encode_list_due, _decode_list_due),
    op.ReadOrders: Codec(_encode_read_orders, _decode_read_orders),
    op.ScanOrders: Codec(_encode_scan_orders, _decode_scan_orders),
    op.ReadLedger: Codec(_encode_read_ledger, _decode_read_ledger),
}
