"""The model of submitted orders: accepting them, and a worker's envelope, in the order of the scripts' steps."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from segmented import protocol as op
from segmented.errors import EpochEnded, OrderMismatch, OrderUnknown, SegmentedError
from segmented.keys import shard_keys
from segmented.models import Busy, Closed, Decided, Order, Reserved, Settled, SoldOut
from segmented.models.orders import decided_as
from segmented.models.submitted import (
    SUBMITTED_UNTIL_MS,
    BegunOrder,
    Dead,
    Queued,
    TakenOrders,
    TooManyOthers,
)
from segmented.protocol.outbox.model_upkeep import OutboxUpkeep
from segmented.protocol.pool.model import customer_missing
from segmented.protocol.pool.model_records import (
    Entry,
    ModelPool,
    Room,
    entry_of,
    new_record,
    part_count,
    reserved_answer,
    settled_answer,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from segmented.models import EntryKind, OrderRecord

ALL: Final = 1_000
TAKE_WORK: Final = 5
"""Work of beginning one order, besides its parts."""
WITH_OTHERS: Final = {0: ALL, 1: 10}
"""Maximum orders in one envelope, by how often one of them was begun; after more attempts it is alone."""


@dataclass(slots=True)
class _Envelope:
    """What one `TakeOrders` has done so far."""

    asked: op.TakeOrders
    room: Room = field(default_factory=Room)
    segment: int | None = None
    fencing_token: int = 0
    has_looked: bool = False
    busy_ms: int | None = None
    """Milliseconds after which a segment may be free for it, if it found none."""
    ahead: int = 0
    """Processes ahead in the pool's line then."""
    taken: list[OrderRecord] = field(default_factory=list)
    moved: list[OrderRecord] = field(default_factory=list)
    refused: dict[str, OrderRecord] = field(default_factory=dict)
    limited: set[str] = field(default_factory=set)
    """The refused orders whose customer has reached the limit."""
    begun: dict[str, Entry] = field(default_factory=dict)
    is_earlier: bool = False
    """Whether an earlier step took the segment."""

    @property
    def holds(self) -> bool:
        """Return whether orders are held under the segment's lock."""
        return self.is_earlier or bool(self.taken or self.moved)


class OutboxModel(OutboxUpkeep):
    """Pools by sku, with their submitted orders."""

    def bodies(self) -> dict[type[op.Operation[Any]], Callable[[Any], object]]:
        """Return the method that performs each operation."""
        return {
            **super().bodies(),
            op.QueueOrders: self.queue,
            op.TakeOrders: self.take,
            op.RenewWork: self.renew_work,
        }

    # --- accepting ---

    def queue(self, operation: op.QueueOrders) -> tuple[Queued | Reserved | Decided | Closed | SegmentedError, ...]:
        """Accept orders whose units a worker takes."""
        pool = self.found(operation.sku)
        answers = tuple(self._queue(pool, order) for order in operation.orders)
        waiting = [answer.order_id for answer in answers if isinstance(answer, Queued | Reserved)]
        self.enter_outbox(pool, waiting, operation.publish_after_ms)
        return answers

    def _queue(self, pool: ModelPool, order: Order) -> Queued | Reserved | Decided | Closed | SegmentedError:
        try:
            record = self._known(pool, order)
        except OrderMismatch as error:
            return error
        if record is not None:
            if record.state != "reserved":
                return decided_as(settled_answer(record, replay=True))
            pool.holds[order.order_id] = SUBMITTED_UNTIL_MS
            return reserved_answer(pool, record, replay=True)
        if pool.queued(order.order_id):
            return Queued(order.order_id, replay=True)
        if pool.is_closed:
            return Closed(order.order_id)
        if pool.limit_per_customer is not None and order.customer_id is None:
            return customer_missing(pool.sku, order)
        entry = pool.entries.setdefault(order.order_id, Entry())
        entry.order = order
        return Queued(order.order_id, replay=False)

    # --- working ---

    def take(self, operation: op.TakeOrders) -> TakenOrders:
        """Begin to process the orders of one message, in as many steps as their number and their parts need."""
        pool = self.found(operation.sku)
        if pool.gated and operation.epoch not in {None, pool.epoch}:
            raise EpochEnded(pool.sku, pool.epoch)
        taken = self._take_some(_Envelope(operation))
        while left := operation.order_ids[len(taken.orders) :]:
            for busy in taken.orders:
                if isinstance(busy, Busy) and not busy.is_in_hand:  # later orders must not get its units
                    refused = (replace(busy, order_id=order_id) for order_id in left)
                    return replace(taken, orders=(*taken.orders, *refused))
            rest = replace(operation, order_ids=left, earlier=len(taken.orders), lease=taken.lease())
            found = self._take_some(_Envelope(rest))
            taken = replace(found, orders=(*taken.orders, *found.orders))
        return taken

    def _take_some(self, envelope: _Envelope) -> TakenOrders:
        """Begin to process the first orders, in one step."""
        operation = envelope.asked
        pool, found = self.found(operation.sku), {}
        for order_id in operation.order_ids:
            if envelope.room.is_full:
                break
            envelope.room.work += TAKE_WORK
            if order_id in pool.orders:
                envelope.room.work += part_count(pool.orders[order_id])
            found[order_id] = self._begin(pool, envelope, order_id)
        self._write_down(pool, "reserved", envelope.taken)
        self._write_down(pool, "granted", envelope.moved)
        self._write_down(pool, "refused", list(envelope.refused.values()), limited=envelope.limited)
        for order_id in envelope.begun:
            self._hold_begun(pool, order_id, operation.hold_ms)
            if order_id in pool.outbox:
                pool.outbox[order_id] = self._now_ms() + operation.work_ms
        for order_id in envelope.refused:
            found[order_id] = settled_answer(pool.orders[order_id], replay=True)
        for order_id, answer in found.items():
            if isinstance(answer, Settled | OrderUnknown):
                pool.leave_outbox(order_id, is_dead_kept=True)
        self._end_turn(pool, envelope)
        answers = (
            self._begun(pool, envelope, order_id) if answer is None else answer for order_id, answer in found.items()
        )
        numbered = (
            replace(answer, sequence=pool.sequence) if isinstance(answer, Busy) else answer for answer in answers
        )
        free_in_ms = self._free_in_ms(pool) if envelope.busy_ms is None else envelope.busy_ms
        return TakenOrders(tuple(numbered), free_in_ms, pool.epoch, is_gated=pool.gated, ahead=envelope.ahead)

    def _end_turn(self, pool: ModelPool, envelope: _Envelope) -> None:
        """Free the segment if nothing was taken under it, and notify the next process of the line."""
        if envelope.segment is None:
            if envelope.busy_ms is None:  # no order needed a segment
                self._line(pool).pass_turn(envelope.asked.party, self._clock.now(), 0)
            return
        if not envelope.holds:
            del pool.locks[envelope.segment]
            pool.note_free_at(envelope.segment, self._now_ms())
            self._publish(shard_keys(pool.sku).freed)
        self._line(pool).tell_following(self._free_in_ms(pool) if envelope.holds else 0)

    def _begin(
        self, pool: ModelPool, envelope: _Envelope, order_id: str
    ) -> Settled | Busy | TooManyOthers | Dead | SegmentedError | None:
        """Return the reason against processing an order; None if it is begun, or refused."""
        record, entry = pool.binding(order_id), pool.entries.get(order_id, Entry())
        operation, now_ms = envelope.asked, self._now_ms()
        is_own = entry.worker == operation.holder_id
        if record is not None and record.state != "reserved":
            return settled_answer(record, replay=True)
        is_submitted = order_id in pool.outbox or order_id in pool.dead if record else entry.order is not None
        if not is_submitted:
            return OrderUnknown(order_id)
        answer: Busy | None = None
        if entry.until_ms > now_ms and not is_own:
            return Busy(order_id, 0, entry.until_ms - now_ms, is_in_hand=True)
        if order_id in pool.dead or (entry.begun >= operation.begun_max and not is_own):
            self.bury(pool, order_id, entry, operation.hold_ms)
            return Dead(order_id, entry.begun)
        if not is_own and operation.earlier + len(operation.order_ids) > WITH_OTHERS.get(entry.begun, 1):
            return TooManyOthers(order_id)
        if record is not None:
            answer = self._move(pool, envelope, record)
        elif entry.order is not None:
            answer = self._decide(pool, envelope, entry.order)
        if answer is None and order_id not in envelope.refused:
            begun = replace(
                entry,
                begun=entry.begun + (not is_own),
                published=0,
                until_ms=now_ms + operation.work_ms,
                worker=operation.holder_id,
            )
            pool.entries[order_id] = envelope.begun[order_id] = begun
            if record is not None:
                self._hold_begun(pool, order_id, operation.hold_ms)  # now: the next order may need due units
        return answer

    def _hold_begun(self, pool: ModelPool, order_id: str, hold_ms: int) -> None:
        """Hold units: while the order is in the outbox, or for a limited time."""
        if order_id in pool.outbox:
            pool.holds[order_id] = SUBMITTED_UNTIL_MS
        else:
            self._hold(pool, pool.orders[order_id], hold_ms)

    def _segment(self, pool: ModelPool, envelope: _Envelope) -> int | None:
        """Return the segment of this envelope, taken when the first order needs it."""
        if not envelope.has_looked:
            envelope.has_looked = True
            segment, token = envelope.asked.lease or (None, 0)
            holder_id, until_ms = pool.locks.get(segment, ("", 0)) if segment is not None else ("", 0)
            if holder_id == envelope.asked.holder_id and until_ms > self._now_ms():
                envelope.segment, envelope.fencing_token, envelope.is_earlier = segment, token, True
                return segment
            envelope.segment, busy_ms, envelope.ahead = self._segment_in_turn(pool, envelope.asked.party)
            if envelope.segment is None:
                envelope.busy_ms = busy_ms
            else:
                envelope.fencing_token = self.next_fence(pool, envelope.asked.above)
                lapses_at = self._now_ms() + envelope.asked.ttl_ms
                pool.locks[envelope.segment] = (envelope.asked.holder_id, lapses_at)
                pool.note_free_at(envelope.segment, lapses_at)
        return envelope.segment

    def _decide(self, pool: ModelPool, envelope: _Envelope, order: Order) -> Busy | None:
        """Take an order's units, or refuse it; it was accepted, so a pool closed since then still serves it."""
        segment = self._segment(pool, envelope)
        if segment is None:
            return Busy(order.order_id, 0, envelope.busy_ms)
        is_closed, pool.is_closed = pool.is_closed, False
        allowed = self._allowed(pool, order, envelope.room, partial=False)
        pool.is_closed = is_closed
        if isinstance(allowed, Busy):
            envelope.room.is_stuck = True
            return replace(allowed, free_in_ms=0)
        if not isinstance(allowed, int):
            refused = replace(new_record(order, order.quantity, -1, ()), state="refused")
            envelope.refused[order.order_id] = refused
            if not isinstance(allowed, SoldOut):
                envelope.limited.add(order.order_id)
            return None
        parts = pool.gather(segment, allowed)
        envelope.room.work += len(parts) if len(parts) > 1 else 0
        leased = replace(
            new_record(order, allowed, segment, parts),
            holder_id=envelope.asked.holder_id,
            fencing_token=envelope.fencing_token,
        )
        envelope.taken.append(self._take(pool, leased))
        return None

    def _move(self, pool: ModelPool, envelope: _Envelope, record: OrderRecord) -> Busy | None:
        """Move an order whose holder's lease has expired to this envelope's segment."""
        if record.holder_id is None:
            return None
        lease = self._lease(pool, record)
        if lease is not None:
            is_own = record.holder_id == envelope.asked.holder_id
            return None if is_own else Busy(record.order_id, 0, lease[1] - self._now_ms(), is_in_hand=True)
        segment = self._segment(pool, envelope)
        if segment is None:
            return Busy(record.order_id, 0, envelope.busy_ms)
        moved = replace(
            record, segment=segment, holder_id=envelope.asked.holder_id, fencing_token=envelope.fencing_token
        )
        envelope.moved.append(moved)
        pool.orders[record.order_id] = moved
        return None

    def _write_down(
        self, pool: ModelPool, kind: EntryKind, records: list[OrderRecord], *, limited: Collection[str] = ()
    ) -> None:
        if not records:
            return
        lines = [replace(entry_of(one), note="limit" if one.order_id in limited else "") for one in records]
        sequence = self.append(pool, kind, lines)
        for record in records:
            pool.undone.discard(record.order_id)
            pool.orders[record.order_id] = replace(record, sequence=sequence)

    def _begun(self, pool: ModelPool, envelope: _Envelope, order_id: str) -> BegunOrder:
        record, entry = pool.orders[order_id], envelope.begun[order_id]
        return BegunOrder(
            Order(order_id, record.asked, record.customer_id),
            record.quantity,
            record.segment,
            record.parts,
            record.fencing_token,
            pool.epoch,
            record.sequence,
            entry.begun,
        )

    def renew_work(self, operation: op.RenewWork) -> tuple[str, ...]:
        """Extend a worker's time for its orders."""
        pool, own = self.found(operation.sku), []
        until_ms = self._now_ms() + operation.work_ms
        for order_id in operation.order_ids:
            record, entry = pool.orders.get(order_id), pool.entries.get(order_id)
            if record is None or record.state != "reserved" or entry is None or entry.worker != operation.holder_id:
                continue
            own.append(order_id)
            entry.until_ms = until_ms
            if order_id in pool.outbox:
                pool.outbox[order_id] = max(pool.outbox[order_id], until_ms)
            self._hold(pool, record, operation.hold_ms)
            if record.holder_id == operation.holder_id and self._lease(pool, record):
                self._renew(pool, record, operation.ttl_ms, operation.hold_ms)
        return tuple(own)
