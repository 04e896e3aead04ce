"""Orders over the wire: taking units, and deciding. Each Lua file starts with its script's contract."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from segmented import protocol as op
from segmented.errors import (
    InvalidInput,
    OrderMismatch,
    OrderQueued,
    OrderUnknown,
    PoolDrifted,
    PoolGated,
    SegmentedError,
)
from segmented.keys import shard_keys
from segmented.ledger_lines import parse_parts
from segmented.models import (
    Busy,
    Closed,
    Granted,
    LimitReached,
    Lost,
    Order,
    OrderState,
    Part,
    Renewed,
    Reserved,
    Settled,
    SoldOut,
    Superseded,
    Taken,
)
from segmented.protocol.pool.wire import STATES, keys_of, kind_of
from segmented.protocol.wire import Call, Codec, optional_number, script_call, text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from segmented.protocol.wire import Reply


# --- lines of an answer ---


def settled_line(order_id: str, fields: Sequence[str], *, replay: bool = True) -> Settled:
    """Read a decision: an earlier one or, if it is not a replay, a new one."""
    state, quantity, segment, fence, sequence = fields
    return Settled(
        order_id=order_id,
        state=STATES[state],
        quantity=int(quantity),
        segment=int(segment) if segment else -1,
        fencing_token=int(fence) if fence else None,
        sequence=int(sequence),
        replay=replay,
    )


def _refused(sku: str, order: Order, line: str) -> SoldOut | Busy | Settled | Closed | LimitReached | SegmentedError:
    """Read a line that grants nothing."""
    kind, *fields = line.split("\t")
    order_id = order.order_id
    match kind:
        case "sold_out":
            available, reserved, sequence = map(int, fields)
            return SoldOut(order_id, order.quantity, available, reserved, sequence)
        case "settled":
            return settled_line(order_id, fields)
        case "busy":
            return Busy(order_id, int(fields[0]), int(fields[1]))
        case "closed":
            return Closed(order_id)
        case "limit":
            limit, taken = map(int, fields)
            return LimitReached(order_id, order.quantity, order.customer_id or "", limit, taken)
        case "nobody":
            return customer_missing(sku, order)
        case "drifted":
            return PoolDrifted(sku)
        case _:
            return OrderMismatch(order_id)


def customer_missing(sku: str, order: Order) -> InvalidInput:
    """Return the error for an order without a customer in a pool that limits customers."""
    message = f"order {order.order_id!r} names no customer, but pool {sku!r} limits what one may have"
    return InvalidInput(message)


# --- taking ---

# A frozen dataclass sets its fields one by one through object.__setattr__, which takes twice as long as this; a batch
# makes a thousand of them.
_new: Any = object.__new__
_SETTERS: Any = [getattr(Reserved, name).__set__ for name in Reserved.__slots__]
_set_id, _set_quantity, _set_segment, _set_parts, _set_epoch, _set_sequence, _set_replay = _SETTERS


def _reserved_one(  # the fields, in their order
    order_id: str,
    quantity: int,
    segment: int,
    parts: tuple[Part, ...],
    *,
    epoch: int,
    sequence: int,
    replay: bool,
) -> Reserved:
    made: Reserved = _new(Reserved)
    _set_id(made, order_id)
    _set_quantity(made, quantity)
    _set_segment(made, segment)
    _set_parts(made, parts)
    _set_epoch(made, epoch)
    _set_sequence(made, sequence)
    _set_replay(made, replay)
    return made


def _encode_reserve(operation: op.Reserve) -> Call:
    order = operation.order
    head = (operation.hold_ms, "1" if operation.partial else "0", "3", "")
    return script_call(
        "reserve", keys_of(operation.sku), *head, order.order_id, order.quantity, order.customer_id or ""
    )


def _encode_reserve_many(operation: op.ReserveMany) -> Call:
    arguments: list[str | int] = [operation.hold_ms, "1" if operation.partial else "0"]
    after = "" if operation.publish_after_ms is None else operation.publish_after_ms
    if all(order.customer_id is None for order in operation.orders):
        arguments += ("2", after)
        for order in operation.orders:
            arguments += (order.order_id, order.quantity)
    else:
        arguments += ("3", after)
        for order in operation.orders:
            arguments += (order.order_id, order.quantity, order.customer_id or "")
    return script_call("reserve", keys_of(operation.sku), *arguments)


def _reserved(sku: str, orders: Sequence[Order], reply: Reply) -> list[Taken | SegmentedError]:
    kind_of(sku, reply)
    epoch, sequence = int(reply[1]), int(reply[2])
    answers: list[Taken | SegmentedError] = []
    plain: dict[str, tuple[int, int, tuple[Part, ...], bool, int]] = {}  # most lines of a batch are the same few
    for order, line in zip(orders, text(reply[3]).split("\n"), strict=True):
        found = plain.get(line)
        if found is None:
            if not line[0].isdigit():
                answers.append(_refused(sku, order, line))
                continue
            found = plain[line] = _units(line, sequence)
        units, number, parts, is_repeat, at = found
        answers.append(_reserved_one(order.order_id, units, number, parts, epoch=epoch, sequence=at, replay=is_repeat))
    return answers


def _units(line: str, sequence: int) -> tuple[int, int, tuple[Part, ...], bool, int]:
    """Read a line that grants: quantity, segment, parts, whether it is a repeat, and the sequence number."""
    segment, quantity, *rest = line.split("\t")
    number, units = int(segment), int(quantity)
    parts = parse_parts(rest[0], segment=number, quantity=units) if rest else ((number, units),)
    is_repeat = len(rest) > 1
    at = int(rest[1]) if is_repeat and rest[1] != "+" else sequence
    return units, number, parts, is_repeat, at


def _decode_reserve(operation: op.Reserve, reply: Reply) -> Taken:
    (answer,) = _reserved(operation.sku, (operation.order,), reply)
    if isinstance(answer, SegmentedError):
        raise answer
    return answer


def _decode_reserve_many(operation: op.ReserveMany, reply: Reply) -> tuple[Taken | SegmentedError, ...]:
    return tuple(_reserved(operation.sku, operation.orders, reply))


def _encode_grant(operation: op.Grant) -> Call:
    order = operation.order
    wanted = (order.order_id, order.quantity, order.customer_id or "", "1" if operation.partial else "0")
    lease = (operation.holder_id, operation.ttl_ms, operation.hold_ms, "1" if operation.keep_refusal else "0")
    return script_call("grant", keys_of(operation.sku), *wanted, *lease)


def _decode_grant(operation: op.Grant, reply: Reply) -> Granted | SoldOut | Busy | Settled | Closed | LimitReached:
    order = operation.order
    kind = kind_of(operation.sku, reply, order.order_id)
    if kind == "granted":
        segment, quantity = int(reply[2]), int(reply[3])
        return Granted(
            order_id=order.order_id,
            quantity=quantity,
            segment=segment,
            parts=parse_parts(text(reply[4]), segment=segment, quantity=quantity),
            holder_id=operation.holder_id,
            fencing_token=int(reply[5]),
            epoch=int(reply[1]),
            sequence=int(reply[6]),
            free_in_ms=optional_number(reply[7]),
            replay=text(reply[8]) == "1",
        )
    if kind in {"busy", "in_hand"}:
        return Busy(order.order_id, int(reply[1]), optional_number(reply[2]), is_in_hand=kind == "in_hand")
    if kind == "sold_out":
        available, reserved, sequence = map(int, reply[1:4])
        return SoldOut(order.order_id, order.quantity, available, reserved, sequence, replay=True)
    answer = _refused(operation.sku, order, kind)
    if isinstance(answer, SegmentedError):
        raise answer
    return answer


def _encode_renew(operation: op.RenewGrant) -> Call:
    lease = (operation.holder_id, operation.ttl_ms, operation.hold_ms)
    return script_call("renew_grant", keys_of(operation.sku), operation.order_id, *lease)


def _decode_renew(operation: op.RenewGrant, reply: Reply) -> Renewed | Lost:
    renewed = kind_of(operation.sku, reply, operation.order_id) == "renewed"
    return Renewed(operation.ttl_ms) if renewed else Lost()


# --- deciding ---


def _encode_settle(operation: op.SettleMany) -> Call:
    holder_id = operation.holder_id
    flags = _flags(decided=operation.decided, idle=operation.idle, unheard=operation.unheard)
    head = (operation.state, flags, "1" if holder_id is None else "2")
    if holder_id is None:
        return script_call("settle", keys_of(operation.sku), *head, *operation.order_ids)
    orders = [part for order_id in operation.order_ids for part in (order_id, holder_id)]
    return script_call("settle", keys_of(operation.sku), *head, *orders)


def _flags(*, decided: bool, idle: bool = False, unheard: bool = False) -> str:
    return "d" * decided + "i" * idle + "u" * unheard or "0"


def _ended(
    sku: str, state: OrderState, order_ids: Sequence[str], reply: Reply
) -> list[Settled | Superseded | SegmentedError | None]:
    kind_of(sku, reply)
    sequence = int(reply[1])
    answers: list[Settled | Superseded | SegmentedError | None] = []
    done: dict[str, tuple[int, int, int | None]] = {}  # most lines of a batch are the same few
    for order_id, line in zip(order_ids, text(reply[2]).split("\n"), strict=True):
        found = done.get(line)
        if found is None:
            kind, *fields = line.split("\t")
            if kind != "done":
                answers.append(_not_ended(sku, state, order_id, kind, fields))
                continue
            quantity, segment, fence = (*fields, "")[:3]
            found = done[line] = int(quantity), int(segment), int(fence) if fence else None
        answers.append(Settled(order_id, state, *found, sequence, replay=False))
    return answers


def _not_ended(
    sku: str, state: OrderState, order_id: str, kind: str, fields: Sequence[str]
) -> Settled | Superseded | SegmentedError | None:
    match kind:
        case "settled":
            return settled_line(order_id, fields)
        case "superseded":
            return Superseded(order_id, int(fields[0]))
        case "unknown":
            return OrderUnknown(order_id)
        case "queued":
            return OrderQueued(order_id)
        case "gated":
            return PoolGated(sku, order_id, "store" if state == "confirmed" else "void")
        case "drifted":
            return PoolDrifted(sku)
        case _:
            return None


def _decode_settle(operation: op.SettleMany, reply: Reply) -> tuple[Settled | SegmentedError | None, ...]:
    answers = _ended(operation.sku, operation.state, operation.order_ids, reply)
    return tuple(None if isinstance(answer, Superseded) else answer for answer in answers)


def _one(sku: str, state: OrderState, order_id: str, reply: Reply) -> Settled | Superseded | None:
    (answer,) = _ended(sku, state, (order_id,), reply)
    if isinstance(answer, SegmentedError):
        raise answer
    return answer


def _encode_confirm(operation: op.Confirm) -> Call:
    arguments = ("confirmed", _flags(decided=operation.stored), "2", operation.order_id, operation.holder_id or "")
    return script_call("settle", keys_of(operation.sku), *arguments)


def _decode_confirm(operation: op.Confirm, reply: Reply) -> Settled:
    return _one(operation.sku, "confirmed", operation.order_id, reply)  # type: ignore[return-value]  # the script has no other answer


def _encode_cancel(operation: op.Cancel) -> Call:
    head = ("cancelled", _flags(decided=operation.voided, unheard=operation.unheard), "2")
    return script_call("settle", keys_of(operation.sku), *head, operation.order_id, operation.holder_id or "")


def _decode_cancel(operation: op.Cancel, reply: Reply) -> Settled | Superseded:
    return _one(operation.sku, "cancelled", operation.order_id, reply)  # type: ignore[return-value]  # the script has no other answer


def _wakes(operation: op.Confirm | op.Cancel) -> tuple[str, str] | None:
    """Return the channel to wake and the holder id, if given: its segment is freed if it still has it."""
    if operation.holder_id is None:
        return None
    return shard_keys(operation.sku).freed, operation.holder_id


def _encode_expire(operation: op.Expire) -> Call:
    arguments = ("expired", _flags(decided=operation.voided), "1", operation.order_id)
    return script_call("settle", keys_of(operation.sku), *arguments)


def _decode_expire(operation: op.Expire, reply: Reply) -> Settled | None:
    return _one(operation.sku, "expired", operation.order_id, reply)  # type: ignore[return-value]  # the script has no other answer


def _encode_expire_due(operation: op.ExpireDue) -> Call:
    return script_call("expire_due", keys_of(operation.sku), operation.limit)


def _decode_expire_due(operation: op.ExpireDue, reply: Reply) -> tuple[tuple[Settled, ...], bool]:
    kind_of(operation.sku, reply)
    sequence, lines = text(reply[1]), text(reply[3])
    settled = []
    for line in lines.split("\n") if lines else ():
        order_id, quantity, segment, fence = (*line.split("\t"), "")[:4]
        settled.append(settled_line(order_id, ("e", quantity, segment, fence, sequence), replay=False))
    return tuple(settled), text(reply[2]) == "1"


CODECS: Final = {
    op.Reserve: Codec(_encode_reserve, _decode_reserve),
    op.ReserveMany: Codec(_encode_reserve_many, _decode_reserve_many),
    op.Grant: Codec(_encode_grant, _decode_grant),
    op.RenewGrant: Codec(_encode_renew, _decode_renew),
    op.Confirm: Codec(_encode_confirm, _decode_confirm, wakes=_wakes),
    op.Cancel: Codec(_encode_cancel, _decode_cancel, wakes=_wakes),
    op.Expire: Codec(_encode_expire, _decode_expire),
    op.SettleMany: Codec(_encode_settle, _decode_settle),
    op.ExpireDue: Codec(_encode_expire_due, _decode_expire_due),
}
