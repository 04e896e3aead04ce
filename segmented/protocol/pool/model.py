"""The model of stock pools: the steps of the scripts, in their order, without their handling of keys."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from segmented import protocol as op
from segmented.errors import InvalidInput, OrderMismatch, SegmentedError
from segmented.keys import shard_keys
from segmented.models import (
    Busy,
    Closed,
    Decided,
    Granted,
    LimitReached,
    Lost,
    Order,
    OrderRecord,
    Renewed,
    Reserved,
    SoldOut,
    Taken,
)
from segmented.models.orders import decided_as
from segmented.models.submitted import SUBMITTED_UNTIL_MS
from segmented.protocol.audit.model import PoolAudits
from segmented.protocol.lock.line_model import LineModel
from segmented.protocol.pool.model_deciding import PoolDeciding
from segmented.protocol.pool.model_records import (
    ORDER_WORK,
    RUN,
    ModelPool,
    Room,
    as_of_now,
    entry_of,
    new_record,
    part_count,
    reserved_answer,
    settled_answer,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class PoolModel(PoolDeciding):
    """Pools by sku: taking units, and deciding orders."""

    def bodies(self) -> dict[type[op.Operation[Any]], Callable[[Any], object]]:
        """Return the method that performs each operation."""
        return {
            op.OpenPool: self.open,
            op.CheckProfile: self.check_profile,
            op.ReadPool: self.read,
            op.Reserve: self.reserve,
            op.ReserveMany: self.reserve_many,
            op.Grant: self.grant,
            op.RenewGrant: self.renew,
            op.LeavePoolLine: self.leave_line,
            op.ReleaseGrant: self.release_grant,
            op.Confirm: self.confirm,
            op.Cancel: self.cancel,
            op.Expire: self.expire,
            op.SettleMany: self.settle_many,
            op.ExpireDue: self.expire_due,
            op.PinOrder: self.pin,
            op.Restock: self.restock,
            op.Withdraw: self.withdraw,
            op.Resize: self.resize,
            op.ClosePool: self.close,
            op.ListDue: self.list_due,
            op.ReadOrders: self.read_orders,
            op.ScanOrders: self.scan_orders,
            op.ReadLedger: self.read_ledger,
            op.ReadSteps: self.read_steps,
            **PoolAudits(self._clock, self.found, self._pools).bodies(),
        }

    # --- taking ---

    def reserve(self, operation: op.Reserve) -> Taken:
        """Take units without a lock, for one order."""
        many = op.ReserveMany(operation.sku, (operation.order,), operation.hold_ms, operation.partial)
        (answer,) = self.reserve_many(many)
        if isinstance(answer, SegmentedError):
            raise answer
        return answer

    def reserve_many(self, operation: op.ReserveMany) -> tuple[Taken | SegmentedError, ...]:
        """Take units without a lock, order by order, in as many steps as their parts need."""
        answers = self._reserve_some(operation)
        while left := operation.orders[len(answers) :]:
            busy = next((answer for answer in answers if isinstance(answer, Busy)), None)
            if busy is None:
                answers += self._reserve_some(replace(operation, orders=left))
            else:  # later orders must not get its units
                answers += [replace(busy, order_id=order.order_id) for order in left]
        return tuple(answers)

    def _reserve_some(self, operation: op.ReserveMany) -> list[Taken | SegmentedError]:
        """Take units for the first orders, in one step."""
        pool = self.found(operation.sku)
        is_submitted = operation.publish_after_ms is not None
        hold_until_ms = SUBMITTED_UNTIL_MS if is_submitted else self._now_ms() + operation.hold_ms
        start = pool.sequence // (RUN if is_submitted else 1) % pool.segment_count
        room = Room()
        answers: list[Taken | SegmentedError] = []
        taken: dict[str, int] = {}
        for index, order in enumerate(operation.orders):
            if room.is_full:
                break
            try:
                record = self._known(pool, order)
            except OrderMismatch as error:
                answers.append(error)
                continue
            if record is not None and order.order_id not in taken:
                room.work += ORDER_WORK + part_count(record)
                answers.append(self._reserved_again(pool, record, hold_until_ms))
                continue
            if record is None:
                room.work += 0 if self._fits(pool, order, start, room) else ORDER_WORK
                allowed = self._allowed(pool, order, room, partial=operation.partial)
                if not isinstance(allowed, int):
                    answers.append(allowed)
                    room.is_stuck = isinstance(allowed, Busy)
                    continue
                parts = pool.gather(start, allowed)
                start = parts[0][0]
                record = self._take(pool, new_record(order, allowed, parts[0][0], parts))
                room.work += part_count(record)
                taken[order.order_id] = index
            answers.append(reserved_answer(pool, record, replay=index != taken[order.order_id]))
        if taken:
            records = [pool.orders[order_id] for order_id in taken]
            sequence = self.append(pool, "reserved", [entry_of(record) for record in records])
            for record in records:
                pool.orders[record.order_id] = replace(record, sequence=sequence)
                pool.holds[record.order_id] = hold_until_ms
            answers = [
                replace(answer, sequence=sequence, hold_until_ms=hold_until_ms)
                if isinstance(answer, Reserved) and answer.order_id in taken
                else answer
                for answer in answers
            ]
        answers = [as_of_now(pool, answer) for answer in answers]
        if operation.publish_after_ms is not None:
            reserved = [answer.order_id for answer in answers if isinstance(answer, Reserved)]
            self.enter_outbox(pool, reserved, operation.publish_after_ms)
        return answers

    @staticmethod
    def _fits(pool: ModelPool, order: Order, segment: int, room: Room) -> bool:
        """Return whether an order needs no check but that of one segment's units."""
        is_open = pool.limit_per_customer is None and not pool.is_closed and not room.is_stuck
        return is_open and pool.stock[segment] >= order.quantity

    def enter_outbox(self, pool: ModelPool, order_ids: Iterable[str], after_ms: int) -> None:
        """Publish these orders again after that time, unless they are due sooner already."""
        for order_id in order_ids:
            pool.outbox.setdefault(order_id, self._now_ms() + after_ms)

    def grant(self, operation: op.Grant) -> Granted | SoldOut | Busy | Decided | Closed | LimitReached:
        """Take units and a segment's lock."""
        pool, order = self.found(operation.sku), operation.order
        record = self._known(pool, order)
        quantity = 0
        # 1. a known order
        if record is not None:
            answer = self._answer_of_known(pool, record, operation)
            if answer is not None:
                return answer
        # 2. too few units
        else:
            allowed = self._allowed(pool, order, Room(), partial=operation.partial)
            if isinstance(allowed, SegmentedError):
                raise allowed
            if isinstance(allowed, SoldOut) and operation.keep_refusal:
                allowed = self._keep_refusal(pool, order, allowed)
            if not isinstance(allowed, (int, Busy)):
                self._line(pool).pass_turn(operation.party, self._clock.now(), 0)
            if not isinstance(allowed, int):
                return allowed
            quantity = allowed
        # 3. a free segment
        segment, free_in_ms, ahead = self._segment_in_turn(pool, operation.party)
        if segment is None:
            return Busy(order.order_id, pool.sequence, free_in_ms, ahead=ahead)
        # 4. units, from this segment first
        now_ms = self._now_ms()
        pool.locks[segment] = (operation.holder_id, now_ms + operation.ttl_ms)
        pool.note_free_at(segment, now_ms + operation.ttl_ms)
        again = record
        if again is None:
            again = self._take(pool, new_record(order, quantity, segment, pool.gather(segment, quantity)))
        leased = replace(
            again,
            segment=segment,
            holder_id=operation.holder_id,
            fencing_token=self.next_fence(pool, operation.above),
        )
        self._hold(pool, leased, operation.hold_ms)
        sequence = self.append(pool, "reserved" if record is None else "granted", [entry_of(leased)])
        leased = replace(leased, sequence=sequence)
        pool.orders[order.order_id] = leased
        self._line(pool).tell_following(self._free_in_ms(pool))
        return self._granted(pool, leased, replay=record is not None)

    def renew(self, operation: op.RenewGrant) -> Renewed | Lost:
        """Extend a grant's lease and hold."""
        pool, record = self._found(operation.sku, operation.order_id)
        if record.state != "reserved" or record.holder_id != operation.holder_id or not self._lease(pool, record):
            return Lost()
        self._renew(pool, record, operation.ttl_ms, operation.hold_ms)
        return Renewed(operation.ttl_ms)

    def _allowed(
        self, pool: ModelPool, order: Order, room: Room, *, partial: bool
    ) -> int | SoldOut | Busy | Closed | LimitReached | InvalidInput:
        """Return how many units an order gets, or its refusal."""
        if room.is_stuck:
            return Busy(order.order_id, pool.sequence, 0)
        if pool.is_closed:
            return Closed(order.order_id)
        wanted = order.quantity
        if pool.limit_per_customer is not None:
            if order.customer_id is None:
                return customer_missing(pool.sku, order)
            limited = self._limited(pool, order, order.customer_id, room, partial=partial)
            if not isinstance(limited, int):
                return limited
            wanted = limited
        refusal = self._want_of_units(pool, order, wanted, room)
        if refusal is None:
            return wanted
        if isinstance(refusal, Busy) or not (partial and pool.available):
            return refusal
        return min(wanted, pool.available)

    def _limited(
        self, pool: ModelPool, order: Order, customer_id: str, room: Room, *, partial: bool
    ) -> int | Busy | LimitReached:
        """Return how many units the customer may have; expired orders do not count."""
        limit, wanted = pool.limit_per_customer or 0, order.quantity
        left = limit - pool.bought.get(customer_id, 0)
        if left >= wanted:
            return wanted
        is_more_due = self.give_back_some(pool, room)
        has = pool.bought.get(customer_id, 0)
        left = limit - has
        if left < wanted and is_more_due:
            return Busy(order.order_id, pool.sequence, 0)
        if left > 0 and (partial or left >= wanted):
            return min(wanted, left)
        return LimitReached(order.order_id, wanted, customer_id, limit, has)

    def _take(self, pool: ModelPool, record: OrderRecord) -> OrderRecord:
        pool.undone.discard(record.order_id)
        pool.available -= record.quantity
        pool.reserved += record.quantity
        pool.add_bought(record.customer_id, record.quantity)
        pool.orders[record.order_id] = record
        return record

    def _hold(self, pool: ModelPool, record: OrderRecord, hold_ms: int) -> None:
        pool.holds[record.order_id] = max(pool.holds.get(record.order_id, 0), self._now_ms() + hold_ms)

    def _reserved_again(self, pool: ModelPool, record: OrderRecord, hold_until_ms: int) -> Reserved | Decided:
        if record.state != "reserved":
            return decided_as(settled_answer(record, replay=True))
        pool.holds[record.order_id] = max(pool.holds.get(record.order_id, 0), hold_until_ms)
        return reserved_answer(pool, record, replay=True)

    def _keep_refusal(self, pool: ModelPool, order: Order, refusal: SoldOut) -> SoldOut:
        kept = replace(new_record(order, order.quantity, -1, ()), state="refused")
        pool.undone.discard(order.order_id)
        kept = replace(kept, sequence=self.append(pool, "refused", [entry_of(kept)]))
        pool.orders[order.order_id] = kept
        pool.leave_outbox(order.order_id)
        return replace(refusal, sequence=kept.sequence)

    def _answer_of_known(
        self, pool: ModelPool, record: OrderRecord, operation: op.Grant
    ) -> Granted | SoldOut | Busy | Decided | None:
        """Answer a repeat; None if the order's lease has expired, or it never had one."""
        if record.state == "refused":
            numbers = (pool.available, pool.reserved, record.sequence)
            return SoldOut(record.order_id, record.asked, *numbers, replay=True, epoch=pool.epoch)
        if record.state != "reserved":
            return decided_as(settled_answer(record, replay=True))
        lease = self._lease(pool, record)
        if lease is None:
            return None
        if record.holder_id != operation.holder_id:
            return Busy(record.order_id, pool.sequence, lease[1] - self._now_ms(), is_in_hand=True)
        if (record.fencing_token or 0) <= operation.above:
            record = replace(record, fencing_token=self.next_fence(pool, operation.above))
            record = replace(record, sequence=self.append(pool, "granted", [entry_of(record)]))
            pool.orders[record.order_id] = record
        self._renew(pool, record, operation.ttl_ms, operation.hold_ms)
        return self._granted(pool, record, replay=True)

    def _renew(self, pool: ModelPool, record: OrderRecord, ttl_ms: int, hold_ms: int) -> None:
        lapses_at = self._now_ms() + ttl_ms
        pool.locks[record.segment] = (record.holder_id or "", lapses_at)
        pool.note_free_at(record.segment, lapses_at)
        self._hold(pool, record, hold_ms)

    def _free_segments(self, pool: ModelPool) -> list[int]:
        now_ms = self._now_ms()
        free = [segment for segment in pool.free if segment not in pool.locks or pool.locks[segment][1] <= now_ms]
        return sorted(free, key=lambda segment: (pool.free[segment], str(segment)))

    def _segment_in_turn(self, pool: ModelPool, party: str) -> tuple[int | None, int, int]:
        """Return a free segment, if it is the caller's turn, or None, when to try again, and how many are ahead."""
        line, now, free_in_ms = self._line(pool), self._clock.now(), self._free_in_ms(pool)
        segment, left_ms = self._free_in_turn(pool, party)
        if segment is not None:
            return segment, free_in_ms, 0
        if left_ms is None:
            return None, free_in_ms, line.keep_place(party, now)
        return None, *line.wait_behind(party, now, left_ms)

    def _free_in_turn(self, pool: ModelPool, party: str) -> tuple[int | None, int | None]:
        """Return a free segment that the caller may take, or for how many milliseconds it is left to others."""
        free = self._free_segments(pool)
        if not free:
            return None, None
        turn = (party, self._clock.now())
        left_ms = self._line(pool).left_to_first(*turn, count=pool.segment_count, free_count=len(free))
        return (free[0] if left_ms is None else None), left_ms

    def leave_line(self, operation: op.LeavePoolLine) -> bool:
        """Take a process that waits no more out of the pool's line."""
        line = self._line(self.found(operation.sku)) if self.has(operation.sku) else None
        return line is not None and line.leave(operation.party, self._clock.now(), 0)

    def _line(self, pool: ModelPool) -> LineModel:
        pool.line = pool.line or LineModel(shard_keys(pool.sku).freed, self._publish)
        return pool.line

    def _free_in_ms(self, pool: ModelPool) -> int:
        return max(0, min(pool.free.values()) - self._now_ms())

    def _granted(self, pool: ModelPool, record: OrderRecord, *, replay: bool) -> Granted:
        return Granted(
            order_id=record.order_id,
            quantity=record.quantity,
            segment=record.segment,
            parts=record.parts,
            holder_id=record.holder_id or "",
            fencing_token=record.fencing_token or 0,
            epoch=pool.epoch,
            sequence=record.sequence,
            free_in_ms=self._free_in_ms(pool),
            replay=replay,
        )


def customer_missing(sku: str, order: Order) -> InvalidInput:
    """Return the error for an order without a customer in a pool that limits customers."""
    message = f"order {order.order_id!r} names no customer, but pool {sku!r} limits what one may have"
    return InvalidInput(message)
