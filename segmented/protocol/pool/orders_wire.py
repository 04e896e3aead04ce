"""Orders over the wire: taking units. Each Lua file starts with its script's contract."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from segmented import protocol as op
from segmented.errors import (
    InvalidInput,
    PoolDrifted,
    SegmentedError,
)
from segmented.keys import shard_keys
from segmented.ledger_lines import parse_parts
from segmented.models import (
    Busy,
    Closed,
    Decided,
    Granted,
    LimitReached,
    Lost,
    Order,
    Released,
    Renewed,
    Reserved,
    Settled,
    SoldOut,
    Taken,
)
from segmented.models.orders import ANOTHER, decided_as, mismatch_of, took_segment
from segmented.protocol.lock.operations import NEWCOMER
from segmented.protocol.lock.wire import asked_of, has_left, leaving_call
from segmented.protocol.pool.wire import STATES, keys_of, kind_of
from segmented.protocol.wire import Call, Codec, always, json_text, load_script, optional_number, text, unsure_if_lost

if TYPE_CHECKING:
    from collections.abc import Sequence

    from segmented.errors import OrderMismatch
    from segmented.protocol.wire import Finish, Reply, Sight


RESERVED: Final = frozenset({"reserved", b"reserved"})
GRANTED: Final = frozenset({"granted", b"granted"})
"""First words of the usual answers, as text and as bytes; `kind_of` reads the others."""


# --- lines of an answer ---


def lines_of(value: Reply) -> list[str]:
    """Split an item of an answer into its lines."""
    return (value.decode() if isinstance(value, bytes) else str(value)).split("\n")


def settled_line(order_id: str, fields: Sequence[str], *, replay: bool = True) -> Settled:
    """Read a decision: an earlier one or, if it is not a replay or marked as this call's own, a new one."""
    state, quantity, segment, fence, sequence, *own = fields
    return Settled(
        order_id=order_id,
        state=STATES[state],
        quantity=int(quantity),
        segment=int(segment) if segment else -1,
        fencing_token=int(fence) if fence else None,
        sequence=int(sequence),
        replay=replay and not own,
    )


def _refused(sku: str, order: Order, line: str) -> SoldOut | Busy | Decided | Closed | LimitReached | SegmentedError:
    """Read a line that grants nothing."""
    kind, *fields = line.split("\t")
    order_id = order.order_id
    match kind:
        case "sold_out":
            available, reserved, sequence, epoch = map(int, fields[:4])
            free_in_ms = optional_number(fields[4])
            return SoldOut(order_id, order.quantity, available, reserved, sequence, epoch=epoch, free_in_ms=free_in_ms)
        case "settled":
            return decided_as(settled_line(order_id, fields))
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
            return other_content(order, fields)


def other_content(order: Order, fields: Sequence[str]) -> OrderMismatch:
    """Read what is stored under the id of an order."""
    quantity, *customer = fields
    stored = order.customer_id if customer == ["="] else ANOTHER if customer else None
    return mismatch_of(order, int(quantity), stored)


def customer_missing(sku: str, order: Order) -> InvalidInput:
    """Return the error for an order without a customer in a pool that limits customers."""
    message = f"order {order.order_id!r} names no customer, but pool {sku!r} limits what one may have"
    return InvalidInput(message)


# --- taking ---


class _Copy:
    """A copy of a `Reserved` under another order id, which becomes a `Reserved` when its class is set.

    A frozen dataclass sets its fields one by one through `object.__setattr__`, which takes several times as long, and a
    batch makes a thousand of them.
    """

    __slots__ = Reserved.__slots__

    def __init__(self, order_id: str, like: Reserved) -> None:
        self.order_id = order_id
        self.quantity = like.quantity
        self.segment = like.segment
        self.parts = like.parts
        self.epoch = like.epoch
        self.sequence = like.sequence
        self.replay = like.replay
        self.hold_until_ms = like.hold_until_ms


def _encode_reserve(operation: op.Reserve) -> Call:
    order = operation.order
    customer = () if order.customer_id is None else (f"[{json_text(order.customer_id)}]",)
    head = (operation.hold_ms, "1" if operation.partial else "0", "")
    arguments = (*head, f"[{json_text(order.order_id)}]", order.quantity, *customer)
    return Call(load_script("reserve"), keys_of(operation.sku), arguments)


def _encode_reserve_many(operation: op.ReserveMany) -> Call:
    orders = operation.orders
    after = "" if operation.publish_after_ms is None else operation.publish_after_ms
    quantities, customers = [order.quantity for order in orders], [order.customer_id for order in orders]
    lists: list[Any] = [[order.order_id for order in orders], quantities]
    if quantities and quantities.count(quantities[0]) == len(quantities):
        lists[1] = quantities[0]
    if any(customers):
        lists.append([customer or "" for customer in customers])
    head = (operation.hold_ms, "1" if operation.partial else "0", after)
    return Call(load_script("reserve"), keys_of(operation.sku), (*head, *map(json_text, lists)))


def _reserved(sku: str, orders: Sequence[Order], reply: Reply) -> list[Taken | SegmentedError]:
    if reply[0] not in RESERVED:
        kind_of(sku, reply)
    epoch, sequence, hold_until_ms = int(reply[1]), int(reply[2]), int(reply[4])
    answers: list[Taken | SegmentedError] = []
    alike: dict[str, Reserved] = {}  # most lines of a batch are the same few
    for order, line in zip(orders, lines_of(reply[3]), strict=False):  # maybe of the first orders only
        like = alike.get(line)
        if like is not None:
            copy: Any = _Copy(order.order_id, like)
            copy.__class__ = Reserved
            answers.append(copy)
        elif line[0].isdigit():
            alike[line] = like = _granted(order.order_id, line, epoch, sequence, hold_until_ms)
            answers.append(like)
        else:
            answers.append(_refused(sku, order, line))
    return answers


def _granted(order_id: str, line: str, epoch: int, sequence: int, hold_until_ms: int) -> Reserved:
    """Read a line that grants. The sequence number and the end of the hold are the answer's, unless it names others."""
    segment, quantity, *rest = line.split("\t")
    number, units = int(segment), int(quantity)
    parts = parse_parts(rest[0], segment=number, quantity=units) if rest and rest[0] else ((number, units),)
    is_known = len(rest) > 1
    if is_known and rest[1] != "+":
        sequence, hold_until_ms = int(rest[1]), int(rest[2])
    is_repeat = is_known and rest[-1] != "own"
    return Reserved(order_id, units, number, parts, epoch, sequence, replay=is_repeat, hold_until_ms=hold_until_ms)


def _decode_reserve(operation: op.Reserve, reply: Reply) -> Taken:
    (answer,) = _reserved(operation.sku, (operation.order,), reply)
    if isinstance(answer, SegmentedError):
        raise answer
    return answer


def _decode_reserve_many(operation: op.ReserveMany, reply: Reply) -> tuple[Taken | SegmentedError, ...]:
    return tuple(_reserved(operation.sku, operation.orders, reply))


def _reserve_rest(operation: op.ReserveMany, answers: tuple[Taken | SegmentedError, ...]) -> Finish:
    """Ask for the orders that one step was too short for, because those before them have many parts."""
    while left := operation.orders[len(answers) :]:
        busy = next((answer for answer in answers if isinstance(answer, Busy)), None)
        if busy is None:
            answers += yield replace(operation, orders=left)
        else:  # later orders must not get its units
            answers += tuple(replace(busy, order_id=order.order_id) for order in left)
    return answers


def _encode_grant(operation: op.Grant) -> Call:
    order = operation.order
    wanted = (order.order_id, order.quantity, order.customer_id or "", "1" if operation.partial else "0")
    lease = (operation.holder_id, operation.ttl_ms, operation.hold_ms, "1" if operation.keep_refusal else "0")
    asked = () if operation.party == NEWCOMER else (asked_of(operation.party),)
    return Call(load_script("grant"), keys_of(operation.sku), (*wanted, *lease, operation.above, *asked))


def _decode_grant(operation: op.Grant, reply: Reply) -> Granted | SoldOut | Busy | Decided | Closed | LimitReached:
    if reply[0] not in GRANTED:
        return _not_granted(operation, reply)
    segment, quantity, free_in_ms = int(reply[2]), int(reply[3]), int(reply[7])
    return Granted(
        order_id=operation.order.order_id,
        quantity=quantity,
        segment=segment,
        parts=parse_parts(text(reply[4]), segment=segment, quantity=quantity) if reply[4] else ((segment, quantity),),
        holder_id=operation.holder_id,
        fencing_token=int(reply[5]),
        epoch=int(reply[1]),
        sequence=int(reply[6]),
        free_in_ms=None if free_in_ms < 0 else free_in_ms,
        replay=int(reply[8]) == 1,
    )


def _not_granted(operation: op.Grant, reply: Reply) -> SoldOut | Busy | Decided | Closed | LimitReached:
    order = operation.order
    kind = kind_of(operation.sku, reply, order.order_id)
    if kind == "busy":
        return Busy(order.order_id, int(reply[1]), optional_number(reply[2]), ahead=int(reply[3]))
    if kind == "in_hand":
        return Busy(order.order_id, int(reply[1]), optional_number(reply[2]), is_in_hand=True)
    if kind == "sold_out":
        available, reserved, sequence, epoch = map(int, reply[1:5])
        return SoldOut(order.order_id, order.quantity, available, reserved, sequence, replay=True, epoch=epoch)
    answer = _refused(operation.sku, order, kind)
    if isinstance(answer, SegmentedError):
        raise answer
    return answer


def _encode_renew(operation: op.RenewGrant) -> Call:
    lease = (operation.holder_id, operation.ttl_ms, operation.hold_ms)
    return Call(load_script("renew_grant"), keys_of(operation.sku), (operation.order_id, *lease))


def _decode_renew(operation: op.RenewGrant, reply: Reply) -> Renewed | Lost:
    renewed = kind_of(operation.sku, reply, operation.order_id) == "renewed"
    return Renewed(operation.ttl_ms) if renewed else Lost()


def _encode_leave(operation: op.LeavePoolLine) -> Call:
    keys = shard_keys(operation.sku)
    return leaving_call((keys.lock, keys.meta, keys.freed, keys.line), operation.party)


def _encode_release(operation: op.ReleaseGrant) -> Call:
    return Call(load_script("release_grant"), keys_of(operation.sku), (operation.order_id, operation.holder_id))


def _decode_release(operation: op.ReleaseGrant, reply: Reply) -> Released | Lost:
    return Released() if kind_of(operation.sku, reply, operation.order_id) == "released" else Lost()


def woken_by(operation: op.Confirm | op.Cancel | op.ReleaseGrant | op.SettleMany) -> tuple[str, str] | None:
    """Return the channel to wake and the holder id, if given: its segment is freed if it still has it."""
    if operation.holder_id is None:
        return None
    return shard_keys(operation.sku).freed, operation.holder_id


def _sight_of_many(reply: Reply, _: object) -> Sight:
    return int(reply[1]), int(reply[2]), 0


CODECS: Final = {
    op.Reserve: Codec(_encode_reserve, _decode_reserve, acknowledges=always),
    op.ReserveMany: Codec(
        _encode_reserve_many, _decode_reserve_many, finish=_reserve_rest, acknowledges=always, sight=_sight_of_many
    ),
    op.Grant: Codec(_encode_grant, _decode_grant, takes=took_segment, acknowledges=always),
    op.RenewGrant: Codec(_encode_renew, _decode_renew),
    op.LeavePoolLine: Codec(_encode_leave, has_left),
    op.ReleaseGrant: Codec(_encode_release, _decode_release, wakes=woken_by, doubt=unsure_if_lost),
}
