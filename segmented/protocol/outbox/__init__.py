"""Operations on submitted orders: the outbox, from which orders are published to workers, and the dead-letter set."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Final

from segmented.errors import OrderUnknown, PoolDrifted, SegmentedError
from segmented.keys import OUTBOXES, message_key, shard_keys
from segmented.ledger_lines import parse_parts
from segmented.models import Busy
from segmented.models.orders import Closed, Decided, Order, Reserved, Settled
from segmented.models.pools import UNASSIGNED, Assignment
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
from segmented.protocol.base import Operation, is_one
from segmented.protocol.lock import NEWCOMER, asked_of
from segmented.protocol.pool import keys_of, kind_of, order_record
from segmented.protocol.pool.orders import refused_line, settled_line
from segmented.protocol.wire import (
    Call,
    Finish,
    Reply,
    Sight,
    always,
    load_script,
    optional_number,
    pairs_in,
    plain_call,
    readable,
    scan_call,
    script_call,
    text,
)
from segmented.values import light_dataclass

PUT_OFF_MAX: Final = 500
"""Orders put off in one step: burying 1,000 with ids of 256 bytes took 10 ms of the server's time."""
MESSAGES_MAX: Final = 1_000
"""Maximum kept messages of one queue: a broken publisher must not fill the stock's server."""
TAKEN_ORDERS: Final = frozenset({"taken", b"taken"})
"""First word of the usual answer, as text and as bytes; `kind_of` reads the others."""


@light_dataclass(frozen=True, slots=True)
class QueueOrders(Operation[tuple[Queued | Reserved | Decided | Closed | SegmentedError, ...]]):
    """Accept up to 1,000 orders whose units a worker will take, with their outbox entries, in one step."""

    sku: str
    orders: tuple[Order, ...]
    publish_after_ms: int

    def call(self) -> Call:
        flat = [part for order in self.orders for part in (order.order_id, order.quantity, order.customer_id or "")]
        return Call(load_script("queue_orders"), keys_of(self.sku), (self.publish_after_ms, *flat))

    def answer(self, reply: Reply) -> tuple[Queued | Reserved | Decided | Closed | SegmentedError, ...]:
        epoch, lines = int(reply[1]), text(reply[2]).split("\n")
        return tuple(_queued(self.sku, order, line, epoch) for order, line in zip(self.orders, lines, strict=True))

    acknowledges = always


@light_dataclass(frozen=True, slots=True)
class TakeOrders(Operation[TakenOrders]):
    """Begin to process up to 1,000 different orders of one message, under one segment's lock if needed.

    One step for 200 orders, or for fewer if they have many parts.
    """

    lease_kind: ClassVar = "segment"
    sku: str
    order_ids: tuple[str, ...]
    holder_id: str
    ttl_ms: int
    hold_ms: int
    work_ms: int
    """Time after which another worker may begin."""
    begun_max: int
    above: int = 0
    """The order database has accepted this token: take a higher one."""
    epoch: int | None = None
    """The epoch in which the worker has asked the order database for these orders: raises EpochEnded if a gated pool is
    in another one. None: not compared.
    """
    earlier: int = 0
    """How many orders of the message earlier steps have answered."""
    lease: tuple[int, int] | None = None
    """The segment that an earlier step took for the message, and its fencing token."""
    assignment: Assignment = UNASSIGNED
    """Queue and step of the worker: raises AssignedElsewhere if the pool names others."""
    party: str = NEWCOMER
    """As for `Grant`, but a segment is left to the processes that wait in any case."""

    def call(self) -> Call:
        work = (self.holder_id, self.ttl_ms, self.hold_ms, self.work_ms, self.begun_max)
        known = (self.above, "" if self.epoch is None else self.epoch, self.earlier)
        lease = self.lease or ("", "" if self.party == NEWCOMER else asked_of(self.party))
        arguments = (*work, *known, *lease, *self.assignment.texts, *self.order_ids)
        return Call(load_script("take_orders"), keys_of(self.sku), arguments)

    def answer(self, reply: Reply) -> TakenOrders:
        if reply[0] not in TAKEN_ORDERS:
            kind_of(self.sku, reply)
        epoch, sequence, lines = int(reply[1]), int(reply[2]), text(reply[4]).split("\n")
        orders = tuple(
            _taken(self.sku, order_id, line, epoch, sequence)
            for order_id, line in zip(self.order_ids, lines, strict=False)  # maybe of the first orders only
        )
        is_gated, ahead = text(reply[0]) == "taken_gated", int(reply[5]) if len(reply) > 5 else 0  # noqa: PLR2004  # the last one
        return TakenOrders(orders, optional_number(reply[3]), epoch, is_gated=is_gated, ahead=ahead)

    def continued(self, taken: TakenOrders) -> Finish:
        """Begin the orders that one step was too short for, under the same segment's lock."""
        while left := self.order_ids[len(taken.orders) :]:
            busy = next((one for one in taken.orders if isinstance(one, Busy) and not one.is_in_hand), None)
            if busy is not None:  # later orders must not get its units
                more = tuple(replace(busy, order_id=order_id) for order_id in left)
                return replace(taken, orders=taken.orders + more)
            found = yield replace(self, order_ids=left, earlier=len(taken.orders), lease=taken.lease())
            taken = replace(found, orders=taken.orders + found.orders)
        return taken

    def takes(self, answer: Any) -> bool:
        return bool(answer.lease())

    def sight(self, reply: Reply, answer: TakenOrders) -> Sight:
        tokens = [order.fencing_token or 0 for order in answer.orders if isinstance(order, BegunOrder)]
        return int(reply[1]), int(reply[2]), max(tokens, default=0)


@light_dataclass(frozen=True, slots=True)
class RenewWork(Operation[tuple[str, ...]]):
    """Extend a worker's time for its orders; returns those that are still its own."""

    sku: str
    order_ids: tuple[str, ...]
    holder_id: str
    ttl_ms: int
    hold_ms: int
    work_ms: int

    def call(self) -> Call:
        head = (self.holder_id, self.ttl_ms, self.hold_ms, self.work_ms)
        return script_call("renew_work", keys_of(self.sku), *head, *self.order_ids)

    def answer(self, reply: Reply) -> tuple[str, ...]:
        return tuple(text(order_id) for order_id in reply[1:])


@light_dataclass(frozen=True, slots=True)
class PutOff(Operation[int]):
    """Give orders back unfinished, for `delay_ms`; returns how many became dead because they were begun too often.

    One step for 500 orders.
    """

    sku: str
    order_ids: tuple[str, ...]
    holder_id: str
    delay_ms: int
    counts: bool
    """Whether the orders themselves failed; if the worker stopped for another reason, they do not count as begun."""
    begun_max: int
    reason: str
    hold_ms: int = 600_000
    """Time for which the units of dead orders stay reserved."""

    def call(self) -> Call:
        why = (self.delay_ms, int(self.counts), self.begun_max, one_line(self.reason))
        head = (*why, self.holder_id, self.hold_ms)
        return script_call("put_off", keys_of(self.sku), *head, *self.order_ids[:PUT_OFF_MAX])

    def answer(self, reply: Reply) -> int:
        return int(reply[1])

    def continued(self, buried: int) -> Finish:
        for first in range(PUT_OFF_MAX, len(self.order_ids), PUT_OFF_MAX):
            buried += yield replace(self, order_ids=self.order_ids[first : first + PUT_OFF_MAX])
        return buried


@light_dataclass(frozen=True, slots=True)
class SweepOutbox(Operation[Swept | SweepSuperseded]):
    """Return up to `limit` orders to publish again; each one's delay doubles every time."""

    sku: str
    limit: int
    fencing_token: int | None
    base_ms: int
    most_ms: int
    hold_ms: int
    begun_max: int
    assignment: Assignment = UNASSIGNED
    """Queue and step of the workers that get the messages: raises AssignedElsewhere if the pool names others."""

    def call(self) -> Call:
        times = (self.base_ms, self.most_ms, self.hold_ms, self.begun_max, *self.assignment.texts)
        return script_call("sweep_outbox", keys_of(self.sku), self.limit, self.fencing_token, *times)

    def answer(self, reply: Reply) -> Swept | SweepSuperseded:
        if kind_of(self.sku, reply) == "superseded":
            return SweepSuperseded(int(reply[1]))
        return Swept(
            tuple((text(order_id), int(begun)) for order_id, begun in pairs_in(reply[2])),
            tuple(text(order_id) for order_id in reply[3]),
            is_more_due=text(reply[1]) == "1",
            traces={readable(order_id): readable(trace) for order_id, trace in pairs_in(reply[4])},
        )


@light_dataclass(frozen=True, slots=True)
class NoteTraces(Operation[int]):
    """Keep the trace context of up to 1,000 submitted orders while they are in the outbox; returns of how many."""

    sku: str
    order_ids: tuple[str, ...]
    trace: str

    def call(self) -> Call:
        return script_call("note_traces", keys_of(self.sku), self.trace, *self.order_ids)

    def answer(self, reply: Reply) -> int:
        return int(reply[1])


@light_dataclass(frozen=True, slots=True)
class ReadSubmitted(Operation[tuple[Submitted, ...]]):
    """Read the full state of up to 1,000 orders, in the given order."""

    sku: str
    order_ids: tuple[str, ...]

    def call(self) -> Call:
        return script_call("read_submitted", keys_of(self.sku), *self.order_ids)

    def answer(self, reply: Reply) -> tuple[Submitted, ...]:
        read_at_ms = int(text(reply[1]))
        rows = zip(self.order_ids, *reply[2:7], strict=True)
        return tuple(replace(_submitted(*row), read_at_ms=read_at_ms) for row in rows)


@light_dataclass(frozen=True, slots=True)
class ReadOutbox(Operation[OutboxState]):
    """Count the waiting orders."""

    sku: str

    def call(self) -> Call:
        return script_call("read_outbox", keys_of(self.sku))

    def answer(self, reply: Reply) -> OutboxState:
        return OutboxState(*(int(part) for part in reply[1:5]))


@light_dataclass(frozen=True, slots=True)
class ListDead(Operation[tuple[int, tuple[DeadOrder, ...]]]):
    """Read some of the dead-letter set, and the next cursor (0 at the end)."""

    sku: str
    cursor: int

    def call(self) -> Call:
        return scan_call("HSCAN", shard_keys(self.sku).dead, self.cursor)

    def answer(self, reply: Reply) -> tuple[int, tuple[DeadOrder, ...]]:
        return int(reply[0]), tuple(_dead(text(order_id), readable(raw)) for order_id, raw in pairs_in(reply[1]))


@light_dataclass(frozen=True, slots=True)
class ReplayDead(Operation[tuple[Replayed | Settled | None, ...]]):
    """Publish up to 1,000 dead orders again; returns a decided order's final state; None: not in the set."""

    sku: str
    order_ids: tuple[str, ...]

    def call(self) -> Call:
        return script_call("replay_dead", keys_of(self.sku), *self.order_ids)

    def answer(self, reply: Reply) -> tuple[Replayed | Settled | None, ...]:
        answers: list[Replayed | Settled | None] = []
        for order_id, line in zip(self.order_ids, text(reply[1]).split("\n"), strict=True):
            kind, *fields = line.split("\t")
            if kind == "settled":
                answers.append(settled_line(order_id, fields))
            else:
                answers.append(Replayed(order_id) if kind == "replayed" else None)
        return tuple(answers)


@light_dataclass(frozen=True, slots=True)
class ListOutboxes(Operation[tuple[str, ...]]):
    """List the pools that orders were submitted to."""

    def call(self) -> Call:
        return plain_call("SMEMBERS", OUTBOXES)

    def answer(self, reply: Reply) -> tuple[str, ...]:
        return tuple(sorted(readable(sku) for sku in reply))  # one that no pool has stops no other


@light_dataclass(frozen=True, slots=True)
class KeepMessage(Operation[bool]):
    """Keep a message that no worker could read, once; False if too many are kept already."""

    queue: str
    digest: str
    reason: str
    text: str

    def call(self) -> Call:
        keys = [message_key(self.queue)]
        return script_call("keep_message", keys, self.digest, MESSAGES_MAX, one_line(self.reason), encodable(self.text))

    answer = is_one


@light_dataclass(frozen=True, slots=True)
class ListMessages(Operation[tuple[KeptMessage, ...]]):
    """Read the messages that no worker could read, oldest first."""

    queue: str

    def call(self) -> Call:
        return script_call("list_messages", [message_key(self.queue)])

    def answer(self, reply: Reply) -> tuple[KeptMessage, ...]:
        kept, now_ms = [], int(text(reply[0]))
        for digest, raw in pairs_in(reply[1]):
            at_ms, reason, body = readable(raw).split("\t", 2)
            kept.append(KeptMessage(text(digest), int(at_ms), reason, body, max(0, now_ms - int(at_ms))))
        return tuple(sorted(kept, key=lambda one: (one.at_ms, one.digest)))


@light_dataclass(frozen=True, slots=True)
class DropMessage(Operation[bool]):
    """Delete a kept message; False if there was none."""

    queue: str
    digest: str

    def call(self) -> Call:
        return plain_call("HDEL", message_key(self.queue), self.digest)

    answer = is_one


def _queued(sku: str, order: Order, line: str, epoch: int) -> Queued | Reserved | Decided | Closed | SegmentedError:
    kind, *fields = line.split("\t")
    match kind:
        case "queued":
            return Queued(order.order_id, replay=fields[0] == "1")
        case "reserved":
            segment, quantity = int(fields[0]), int(fields[1])
            parts = parse_parts(fields[2], segment=segment, quantity=quantity)
            known = (order.order_id, quantity, segment, parts, epoch, int(fields[3]))
            return Reserved(*known, replay=True, hold_until_ms=SUBMITTED_UNTIL_MS)
        case _:
            return refused_line(sku, order, line)  # type: ignore[return-value]  # it refuses for no other reason


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


def _dead(order_id: str, raw: str) -> DeadOrder:
    begun, at_ms, reason = raw.split("\t")[:3]
    return DeadOrder(order_id, int(begun), int(at_ms), reason)
