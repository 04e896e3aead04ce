"""Submitted orders over the wire. Each Lua file starts with its script's contract."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from segmented import protocol as op
from segmented.errors import OrderUnknown, PoolDrifted, SegmentedError
from segmented.keys import OUTBOXES, message_keys, shard_keys
from segmented.ledger_lines import parse_parts
from segmented.models import Busy, Closed, Decided, Order, Reserved, Settled
from segmented.models.orders import decided_as
from segmented.models.submitted import (
    SUBMITTED_UNTIL_MS,
    BegunOrder,
    Dead,
    DeadOrder,
    KeptMessage,
    OutboxState,
    Queued,
    Replayed,
    Submitted,
    SubmittedState,
    SweepSuperseded,
    Swept,
    TakenOrders,
    TooManyOthers,
    encodable,
    one_line,
)
from segmented.protocol.lock.operations import NEWCOMER
from segmented.protocol.lock.wire import asked_of
from segmented.protocol.pool.orders_wire import customer_missing, other_content, settled_line
from segmented.protocol.pool.wire import SCAN_COUNT, keys_of, kind_of, order_record
from segmented.protocol.wire import (
    Call,
    Codec,
    always,
    load_script,
    optional_number,
    plain_call,
    readable,
    script_call,
    text,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from segmented.protocol.wire import Finish, Reply, Sight

PUT_OFF_MAX: Final = 500
"""Orders put off in one step: burying 1,000 with ids of 256 bytes took 10 ms of the server's time."""
MESSAGES_MAX: Final = 1_000
"""Maximum kept messages of one queue: a broken publisher must not fill the stock's server."""
TAKEN: Final = frozenset({"taken", b"taken"})
"""First word of the usual answer, as text and as bytes; `kind_of` reads the others."""


# --- accepting ---


def _encode_queue(operation: op.QueueOrders) -> Call:
    flat = [part for order in operation.orders for part in (order.order_id, order.quantity, order.customer_id or "")]
    return Call(load_script("queue_orders"), keys_of(operation.sku), (operation.publish_after_ms, *flat))


def _decode_queue(
    operation: op.QueueOrders, reply: Reply
) -> tuple[Queued | Reserved | Decided | Closed | SegmentedError, ...]:
    kind_of(operation.sku, reply)
    epoch, lines = int(reply[1]), text(reply[2]).split("\n")
    return tuple(
        _queued(operation.sku, order, line, epoch) for order, line in zip(operation.orders, lines, strict=True)
    )


def _queued(sku: str, order: Order, line: str, epoch: int) -> Queued | Reserved | Decided | Closed | SegmentedError:
    kind, *fields = line.split("\t")
    match kind:
        case "queued":
            return Queued(order.order_id, replay=fields[0] == "1")
        case "settled":
            return decided_as(settled_line(order.order_id, fields))
        case "reserved":
            segment, quantity = int(fields[0]), int(fields[1])
            parts = parse_parts(fields[2], segment=segment, quantity=quantity)
            known = (order.order_id, quantity, segment, parts, epoch, int(fields[3]))
            return Reserved(*known, replay=True, hold_until_ms=SUBMITTED_UNTIL_MS)
        case "closed":
            return Closed(order.order_id)
        case "nobody":
            return customer_missing(sku, order)
        case _:
            return other_content(order, fields)


# --- working ---


def _encode_take(operation: op.TakeOrders) -> Call:
    head = (
        operation.holder_id,
        operation.ttl_ms,
        operation.hold_ms,
        operation.work_ms,
        operation.begun_max,
        operation.above,
        "" if operation.epoch is None else operation.epoch,
        operation.earlier,
        *(operation.lease or ("", "" if operation.party == NEWCOMER else asked_of(operation.party))),
        *operation.assignment.texts,
    )
    return Call(load_script("take_orders"), keys_of(operation.sku), (*head, *operation.order_ids))


def _decode_take(operation: op.TakeOrders, reply: Reply) -> TakenOrders:
    if reply[0] not in TAKEN:
        kind_of(operation.sku, reply)
    epoch, sequence, lines = int(reply[1]), int(reply[2]), text(reply[4]).split("\n")
    orders = tuple(
        _taken(operation.sku, order_id, line, epoch, sequence)
        for order_id, line in zip(operation.order_ids, lines, strict=False)  # maybe of the first orders only
    )
    is_gated, ahead = text(reply[0]) == "taken_gated", int(reply[5]) if len(reply) > 5 else 0  # noqa: PLR2004  # the last one
    return TakenOrders(orders, optional_number(reply[3]), epoch, is_gated=is_gated, ahead=ahead)


def _take_rest(operation: op.TakeOrders, taken: TakenOrders) -> Finish:
    """Begin the orders that one step was too short for, under the same segment's lock."""
    while left := operation.order_ids[len(taken.orders) :]:
        busy = next((one for one in taken.orders if isinstance(one, Busy) and not one.is_in_hand), None)
        if busy is not None:  # later orders must not get its units
            more = tuple(replace(busy, order_id=order_id) for order_id in left)
            return replace(taken, orders=taken.orders + more)
        found = yield replace(operation, order_ids=left, earlier=len(taken.orders), lease=taken.lease())
        taken = replace(found, orders=taken.orders + found.orders)
    return taken


def _taken(
    sku: str, order_id: str, line: str, epoch: int, sequence: int
) -> BegunOrder | Settled | Busy | TooManyOthers | Dead | SegmentedError:
    kind, *fields = line.split("\t")
    match kind:
        case "work":
            quantity, segment, parts, customer, asked, fence, _, begun = fields
            number, units = int(segment), int(quantity)
            return BegunOrder(
                Order(order_id, int(asked) if asked else units, customer or None),
                units,
                number,
                parse_parts(parts, segment=number, quantity=units) if parts else ((number, units),),
                int(fence) if fence else None,
                epoch,
                int(fields[6]),
                int(begun),
            )
        case "settled":
            return settled_line(order_id, fields)
        case "in_hand" | "busy":
            return Busy(order_id, sequence, optional_number(fields[0]), is_in_hand=kind == "in_hand")
        case "alone":
            return TooManyOthers(order_id)
        case "dead":
            return Dead(order_id, int(fields[0]))
        case "drifted":
            return PoolDrifted(sku)
        case _:
            return OrderUnknown(order_id)


def _encode_renew(operation: op.RenewWork) -> Call:
    head = (operation.holder_id, operation.ttl_ms, operation.hold_ms, operation.work_ms)
    return script_call("renew_work", keys_of(operation.sku), *head, *operation.order_ids)


def _decode_renew(operation: op.RenewWork, reply: Reply) -> tuple[str, ...]:
    kind_of(operation.sku, reply)
    return tuple(text(order_id) for order_id in reply[1:])


def _encode_put_off(operation: op.PutOff) -> Call:
    counts = "1" if operation.counts else "0"
    why = (operation.delay_ms, counts, operation.begun_max, one_line(operation.reason))
    head = (*why, operation.holder_id, operation.hold_ms)
    return script_call("put_off", keys_of(operation.sku), *head, *operation.order_ids[:PUT_OFF_MAX])


def _decode_put_off(operation: op.PutOff, reply: Reply) -> int:
    kind_of(operation.sku, reply)
    return int(reply[1])


def _has_more_than_a_page(operation: op.PutOff) -> bool:
    return len(operation.order_ids) > PUT_OFF_MAX


def _put_off_rest(operation: op.PutOff, buried: int) -> Finish:
    for first in range(PUT_OFF_MAX, len(operation.order_ids), PUT_OFF_MAX):
        page = operation.order_ids[first : first + PUT_OFF_MAX]
        buried += yield replace(operation, order_ids=page)
    return buried


# --- the outbox ---


def _encode_sweep(operation: op.SweepOutbox) -> Call:
    fence = "" if operation.fencing_token is None else operation.fencing_token
    times = (operation.base_ms, operation.most_ms, operation.hold_ms, operation.begun_max, *operation.assignment.texts)
    return script_call("sweep_outbox", keys_of(operation.sku), operation.limit, fence, *times)


def _decode_sweep(operation: op.SweepOutbox, reply: Reply) -> Swept | SweepSuperseded:
    if kind_of(operation.sku, reply) == "superseded":
        return SweepSuperseded(int(reply[1]))
    flat = [text(part) for part in reply[2]]
    due = tuple((flat[index], int(flat[index + 1])) for index in range(0, len(flat), 2))
    return Swept(due, tuple(text(order_id) for order_id in reply[3]), is_more_due=text(reply[1]) == "1")


def _encode_read_submitted(operation: op.ReadSubmitted) -> Call:
    return script_call("read_submitted", keys_of(operation.sku), *operation.order_ids)


def _decode_read_submitted(operation: op.ReadSubmitted, reply: Reply) -> tuple[Submitted, ...]:
    read_at_ms = int(text(reply[1]))
    rows = zip(operation.order_ids, *reply[2:7], strict=True)
    return tuple(replace(_submitted(*row), read_at_ms=read_at_ms) for row in rows)


def _submitted(order_id: str, raw: Reply, entry: Reply, due: Reply, dead: Reply, hold: Reply) -> Submitted:
    fields = (*(readable(entry).split("\t") if entry else ("0", "0")), "", "", "", "", "")
    begun, published, quantity, customer, reason, until, worker = fields[:7]
    record = None if raw is None else order_record(order_id, raw, _time(hold))
    state: SubmittedState = "queued" if quantity else "unknown"
    if record is not None and quantity and text(raw).startswith("v"):
        record = None  # it was undone, and is queued again
    if record is not None:
        state = record.state
    dead_fields = readable(dead).split("\t") if dead is not None else []
    if dead_fields and state in {"queued", "reserved", "unknown"}:
        state = "dead"
        begun, reason = dead_fields[0], dead_fields[2]
    return Submitted(
        order_id,
        state,
        record,
        int(begun),
        int(published),
        reason,
        is_in_outbox=due is not None,
        order=Order(order_id, int(quantity), customer or None) if quantity and record is None else None,
        worker=worker,
        until_ms=int(until or 0),
        due_ms=_time(due),
        dead_at_ms=int(dead_fields[1]) if dead_fields else None,
    )


def _time(score: Reply) -> int | None:
    return None if score is None else int(float(score))


def _encode_read_outbox(operation: op.ReadOutbox) -> Call:
    return script_call("read_outbox", keys_of(operation.sku))


def _decode_read_outbox(operation: op.ReadOutbox, reply: Reply) -> OutboxState:
    kind_of(operation.sku, reply)
    return OutboxState(*(int(part) for part in reply[1:5]))


def _encode_note(operation: op.NoteOutbox) -> Call:
    return plain_call("SADD", OUTBOXES, operation.sku)


def _decode_note(_: op.NoteOutbox, __: Reply) -> None:
    return None


def _encode_list_outboxes(_: op.ListOutboxes) -> Call:
    return plain_call("SMEMBERS", OUTBOXES)


def _decode_list_outboxes(_: op.ListOutboxes, reply: Reply) -> tuple[str, ...]:
    return tuple(sorted(readable(sku) for sku in reply))  # one that no pool has stops no other


# --- the dead-letter set ---


def _encode_list_dead(operation: op.ListDead) -> Call:
    return plain_call("HSCAN", shard_keys(operation.sku).dead, operation.cursor, "COUNT", SCAN_COUNT)


def _decode_list_dead(_: op.ListDead, reply: Reply) -> tuple[int, tuple[DeadOrder, ...]]:
    cursor, found = reply
    return int(cursor), tuple(_dead(text(order_id), readable(raw)) for order_id, raw in _pairs(found))


def _dead(order_id: str, raw: str) -> DeadOrder:
    begun, at_ms, reason = raw.split("\t")[:3]
    return DeadOrder(order_id, int(begun), int(at_ms), reason)


def _encode_replay(operation: op.ReplayDead) -> Call:
    return script_call("replay_dead", keys_of(operation.sku), *operation.order_ids)


def _decode_replay(operation: op.ReplayDead, reply: Reply) -> tuple[Replayed | Settled | None, ...]:
    kind_of(operation.sku, reply)
    answers: list[Replayed | Settled | None] = []
    for order_id, line in zip(operation.order_ids, text(reply[1]).split("\n"), strict=True):
        kind, *fields = line.split("\t")
        if kind == "settled":
            answers.append(settled_line(order_id, fields))
        else:
            answers.append(Replayed(order_id) if kind == "replayed" else None)
    return tuple(answers)


def _encode_keep(operation: op.KeepMessage) -> Call:
    keys = message_keys(operation.queue).listed()
    kept = (one_line(operation.reason), encodable(operation.text))
    return script_call("keep_message", keys, operation.digest, MESSAGES_MAX, *kept)


def _decode_keep(_: op.KeepMessage, reply: Reply) -> bool:
    return int(reply) == 1


def _encode_list_messages(operation: op.ListMessages) -> Call:
    return script_call("list_messages", message_keys(operation.queue).listed())


def _decode_list_messages(_: op.ListMessages, reply: Reply) -> tuple[KeptMessage, ...]:
    kept, now_ms = [], int(text(reply[0]))
    for digest, raw in _pairs(reply[1]):
        at_ms, reason, body = readable(raw).split("\t", 2)
        kept.append(KeptMessage(text(digest), int(at_ms), reason, body, max(0, now_ms - int(at_ms))))
    return tuple(sorted(kept, key=lambda one: (one.at_ms, one.digest)))


def _encode_drop(operation: op.DropMessage) -> Call:
    return plain_call("HDEL", message_keys(operation.queue).kept, operation.digest)


def _decode_drop(_: op.DropMessage, reply: Reply) -> bool:
    return int(reply) == 1


# --- helpers ---


def _pairs(found: Reply) -> Sequence[tuple[Reply, Reply]]:
    return list(found.items()) if isinstance(found, dict) else list(zip(found[::2], found[1::2], strict=True))


def _sight_of_taken(reply: Reply, answer: TakenOrders) -> Sight:
    tokens = [order.fencing_token or 0 for order in answer.orders if isinstance(order, BegunOrder)]
    return int(reply[1]), int(reply[2]), max(tokens, default=0)


CODECS: Final = {
    op.QueueOrders: Codec(_encode_queue, _decode_queue, acknowledges=always),
    op.TakeOrders: Codec(_encode_take, _decode_take, finish=_take_rest, takes=TakenOrders.lease, sight=_sight_of_taken),
    op.RenewWork: Codec(_encode_renew, _decode_renew),
    op.PutOff: Codec(_encode_put_off, _decode_put_off, finish=_put_off_rest, finishes=_has_more_than_a_page),
    op.SweepOutbox: Codec(_encode_sweep, _decode_sweep),
    op.ReadSubmitted: Codec(_encode_read_submitted, _decode_read_submitted),
    op.ReadOutbox: Codec(_encode_read_outbox, _decode_read_outbox),
    op.NoteOutbox: Codec(_encode_note, _decode_note),
    op.ListOutboxes: Codec(_encode_list_outboxes, _decode_list_outboxes),
    op.ListDead: Codec(_encode_list_dead, _decode_list_dead),
    op.ReplayDead: Codec(_encode_replay, _decode_replay),
    op.KeepMessage: Codec(_encode_keep, _decode_keep),
    op.ListMessages: Codec(_encode_list_messages, _decode_list_messages),
    op.DropMessage: Codec(_encode_drop, _decode_drop),
}
