"""The model of stock pools, deciding: confirming, cancelling and expiring orders, one or many."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from segmented import protocol as op
from segmented.errors import EpochEnded, OrderQueued, OrderUnknown, PoolGated, SegmentedError
from segmented.models import Lost, OrderRecord, Released, Settled, Superseded
from segmented.protocol.pool.model_books import PoolBooks
from segmented.protocol.pool.model_records import (
    ORDER_WORK,
    ModelPool,
    Room,
    is_plain,
    new_record,
    part_count,
    settled_answer,
)

SettledState = Literal["confirmed", "cancelled", "expired"]
ALIVE = "alive"
REPEATED = "repeated"


class PoolDeciding(PoolBooks):
    """Pools by sku: deciding orders."""

    def confirm(self, operation: op.Confirm) -> Settled:
        """Confirm an order."""
        pool = self.found(operation.sku)
        known = pool.binding(operation.order_id)
        if _is_late(pool, operation, known):
            raise EpochEnded(pool.sku, pool.epoch)
        pool, record = self._found_to_end(operation.sku, operation.order_id)
        answer = self._undecided(pool, record, "confirmed", operation, decided=operation.stored)
        if isinstance(answer, SegmentedError):
            raise answer
        if isinstance(answer, Settled):
            return answer
        keeps = () if operation.holder_id in {None, record.holder_id} else (record.order_id,)
        return self._settled_one(pool, record, "confirmed", keeps, quiet=operation.quiet)

    def cancel(self, operation: op.Cancel) -> Settled | Superseded:
        """Cancel an order."""
        pool = self.found(operation.sku)
        record = _queued_record(pool, operation.order_id) or self._found(operation.sku, operation.order_id)[1]
        answer = self._undecided(pool, record, "cancelled", operation, decided=operation.voided)
        if isinstance(answer, SegmentedError):
            raise answer
        if isinstance(answer, Settled | Superseded):
            return answer
        return self._settled_one(pool, record, "cancelled", unheard=operation.unheard, quiet=operation.quiet)

    def expire(self, operation: op.Expire) -> Settled | None:
        """Expire an order."""
        pool, record = self._found_to_end(operation.sku, operation.order_id)
        answer = self._undecided(pool, record, "expired", operation, decided=operation.voided)
        if isinstance(answer, SegmentedError):
            raise answer
        if answer == ALIVE:
            return None
        return answer if isinstance(answer, Settled) else self._settled_one(pool, record, "expired")

    def release_grant(self, operation: op.ReleaseGrant) -> Released | Lost:
        """Free a grant's segment; the units stay reserved."""
        pool, record = self._found(operation.sku, operation.order_id)
        if record.holder_id != operation.holder_id or not self._lease(pool, record):
            return Lost()
        self._free(pool, record)
        return Released()

    def settle_many(self, operation: op.SettleMany) -> tuple[Settled | SegmentedError | None, ...]:
        """End many orders, each as if alone, in as many steps as their parts need."""
        answers = self._settle_some(operation)
        while left := operation.order_ids[len(answers) :]:
            answers += self._settle_some(replace(operation, order_ids=left))
        return tuple(answers)

    def _settle_some(self, operation: op.SettleMany) -> list[Settled | SegmentedError | None]:
        """End the first orders, in one step."""
        pool, room = self.found(operation.sku), Room()
        ending: dict[str, OrderRecord] = {}
        found: list[Settled | Superseded | SegmentedError | str | None] = []
        for order_id in operation.order_ids:
            if room.is_full:
                break
            if operation.idle and self._is_in_hand(pool, order_id):
                found.append(ALIVE)
                continue
            record = pool.binding(order_id)
            waits = not operation.idle or order_id in pool.outbox
            if record is not None and not (waits and self._ends_plainly(pool, record, operation, ending)):
                room.work += ORDER_WORK + part_count(record)
            is_left = not waits and record is not None and record.state == "reserved"
            is_late = not is_left and _is_late(pool, operation, record)
            record = record or (_queued_record(pool, order_id) if operation.state == "cancelled" else None)
            if is_late:
                found.append(EpochEnded(pool.sku, pool.epoch))
            elif is_left or record is None:
                is_queued = is_left or pool.queued(order_id)
                found.append(OrderQueued(order_id) if is_queued else OrderUnknown(order_id))
            elif order_id in ending:
                found.append(REPEATED)
            else:
                answer = self._undecided(pool, record, operation.state, operation, decided=operation.decided)
                found.append(answer)
                if answer is None:
                    ending[order_id] = record
        settled = self._settled_many(pool, operation, ending)
        answers: list[Settled | SegmentedError | None] = []
        for order_id, one in zip(operation.order_ids, found, strict=False):
            answers.append(_answer(settled.get(order_id), one))
        return answers

    def _is_in_hand(self, pool: ModelPool, order_id: str) -> bool:
        entry = pool.entries.get(order_id)
        return entry is not None and entry.until_ms > self._now_ms()

    def _settled_many(
        self, pool: ModelPool, operation: op.SettleMany, ending: dict[str, OrderRecord]
    ) -> dict[str, OrderRecord]:
        if not ending:
            return {}
        holder_id = operation.holder_id
        keeps = [order_id for order_id, record in ending.items() if holder_id not in {None, record.holder_id}]
        records = list(ending.values())
        noted = {"unheard": operation.unheard, "sold_before": operation.sold_before, "quiet": operation.quiet}
        ended = self._settle(pool, records, operation.state, keeps=keeps, **noted)
        return {record.order_id: record for record in ended}

    def _ends_plainly(
        self, pool: ModelPool, record: OrderRecord, operation: op.SettleMany, ending: dict[str, OrderRecord]
    ) -> bool:
        """Return whether a reservation can be ended with others that are alike."""
        order_id = record.order_id
        is_due = operation.state != "expired" or pool.holds.get(order_id, 0) <= self._now_ms()
        is_noted = operation.unheard or operation.sold_before
        may_end = (operation.decided or not pool.gated) and not is_noted and not _is_late(pool, operation, record)
        return may_end and is_due and operation.holder_id is None and order_id not in ending and is_plain(record)

    def _settled_one(
        self,
        pool: ModelPool,
        record: OrderRecord,
        state: SettledState,
        keeps: tuple[str, ...] = (),
        *,
        unheard: bool = False,
        quiet: bool = False,
    ) -> Settled:
        (settled,) = self._settle(pool, [record], state, keeps=keeps, unheard=unheard, quiet=quiet)
        return settled_answer(settled, replay=False)

    def _undecided(
        self,
        pool: ModelPool,
        record: OrderRecord,
        state: SettledState,
        operation: op.Confirm | op.Cancel | op.Expire | op.SettleMany,
        *,
        decided: bool,
    ) -> Settled | Superseded | SegmentedError | str | None:
        """Return the reason against ending a reservation, or None."""
        holder_id = None if isinstance(operation, op.Expire) else operation.holder_id
        quiet = not isinstance(operation, op.Expire) and operation.quiet
        is_holders = holder_id in {None, record.holder_id}
        if record.state != "reserved":
            is_own = holder_id is not None and holder_id == record.holder_id
            if is_own or (state == "confirmed" and is_holders):
                self._free(pool, record, quiet=quiet)
            return settled_answer(record, replay=True)
        if state == "cancelled" and not is_holders:
            return Superseded(record.order_id, record.fencing_token or 0)
        if state == "expired" and (
            pool.holds.get(record.order_id, 0) > self._now_ms() or self._lease(pool, record) is not None
        ):
            return ALIVE
        if pool.gated and not decided:
            return PoolGated(pool.sku, record.order_id, "store" if state == "confirmed" else "void")
        return None


def _answer(
    ended: OrderRecord | None, found: Settled | Superseded | SegmentedError | str | None
) -> Settled | SegmentedError | None:
    """Return the answer of one order of many: what was found, or how the step ended it."""
    if ended is not None and (found is None or found == REPEATED):
        return settled_answer(ended, replay=found is not None)
    return found if isinstance(found, Settled | SegmentedError) else None


def _is_late(pool: ModelPool, operation: op.Confirm | op.SettleMany, record: OrderRecord | None) -> bool:
    """Return whether an order is to be confirmed that was stored before the pool's epoch, which has not ended it."""
    is_confirm = getattr(operation, "state", "confirmed") == "confirmed"
    is_earlier = operation.epoch is not None and operation.epoch < pool.epoch
    return is_confirm and is_earlier and (record is None or record.state == "reserved")


def _queued_record(pool: ModelPool, order_id: str) -> OrderRecord | None:
    """Return a queued order as a reservation of no units: it may be cancelled before a worker decides it."""
    order = pool.queued(order_id)
    return None if order is None else new_record(order, 0, -1, ())
