"""K segments, each with its own lock: an order is processed under the lock of any free segment.

One lock for the whole stock: the same code with one segment.

Batches: one lock, one slow step and one commit for B orders. The first order of a batch takes a segment with units and
lock in one step. A second step reserves the units of the others from any segments. After the slow step a third step
confirms all of them, which frees the segment. If the critical section commits, the whole batch is stored in one
transaction before that.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, ClassVar

from bench.strategies.base import Refused, RefusedByGate, Sold
from bench.strategies.pooled import PooledStrategy
from segmented import protocol as op
from segmented.errors import SegmentedError
from segmented.models import Decided, Order, Reserved, Settled, SoldOut
from segmented.orders.answers import Confirmed
from segmented.orders.deciding import Claim
from segmented.orders.sale import take_order
from segmented.plans import run_sync
from segmented.stock import Grant
from segmented.stock.plans import settle_many_plan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.strategies.base import Answer
    from segmented.orders import Gate


class SegmentLocks(PooledStrategy):
    """A pool of K segments."""

    name: ClassVar[str] = "segment-locks"
    summary: ClassVar[str] = "K segments of a pool, each with its lock; any free one serves"

    def buy(self, order: Order) -> Answer:
        """Wait for a segment, run the slow step, store the order if it commits, confirm."""
        if self.gate is not None:
            return self._buy_gated(order, self.gate)
        grant = self.pool.grant(order)
        if isinstance(grant, SoldOut):
            return Refused(grant.sequence, grant.quantity)
        if not isinstance(grant, Grant):
            raise SegmentedError(f"order {order.order_id!r}: {grant.describe()}")
        granted_at = time.monotonic()
        self.context.section.run()
        grant.confirm()
        return Sold(granted_at, time.monotonic(), grant.segment, self.store.attempts())

    def _buy_gated(self, order: Order, gate: Gate) -> Answer:
        granted_at, segment = 0.0, 0

        def body(grant: Grant) -> None:
            nonlocal granted_at, segment
            granted_at, segment = time.monotonic(), grant.segment
            self.context.section.run()

        answer = take_order(self.pool, gate, order, timeout=None, body=body)
        match answer:
            case Settled():
                return Sold(granted_at, time.monotonic(), segment, self.store.attempts())
            case Decided():
                return RefusedByGate()
            case SoldOut(quantity=quantity, sequence=sequence):
                return Refused(sequence, quantity)
        raise SegmentedError(f"order {order.order_id!r}: {answer.describe()}")


class GlobalLock(SegmentLocks):
    """A pool of one segment."""

    name: ClassVar[str] = "global-lock"
    summary: ClassVar[str] = "one lock for the whole stock: a pool of one segment"
    has_segments: ClassVar[bool] = False


class SegmentBatches(SegmentLocks):
    """A pool of K segments that sells in batches."""

    name: ClassVar[str] = "segment-batches"
    summary: ClassVar[str] = "K segments of a pool, each with its lock; B orders under one hold of it"
    has_batches: ClassVar[bool] = True

    def buy_batch(self, orders: Sequence[Order]) -> list[Answer]:
        """Wait for a segment, take all units, run the slow step once, confirm all."""
        first, *others = orders
        grant = self.pool.grant(first)
        if isinstance(grant, SoldOut):
            return self._none(grant, orders)
        if not isinstance(grant, Grant):
            raise SegmentedError(f"order {first.order_id!r}: {grant.describe()}")
        granted_at = time.monotonic()  # the lock is held from here, so reserving the others' units counts
        taken = self.pool.reserve_many(others) if others else []
        self.context.section.run()
        fenced = Claim(first, self.pool.sku, grant.segment, grant.epoch, grant.fencing_token)
        confirmed = self._confirmed(fenced, [one for one in taken if isinstance(one, Reserved)])
        # one shared value: it never changes
        answer = Sold(granted_at, time.monotonic(), grant.segment, self.store.attempts())
        answers: list[Answer] = [answer if first.order_id in confirmed else RefusedByGate()]
        sequence = 0
        for one in taken:
            if isinstance(one, Reserved):
                sequence = one.sequence
                answers.append(answer if one.order_id in confirmed else RefusedByGate())
            elif isinstance(one, SoldOut):
                # it names the change before the call, but was decided after the served orders of the same call
                answers.append(Refused(max(one.sequence, sequence), one.quantity))
            elif isinstance(one, SegmentedError):
                raise one
            else:
                raise SegmentedError(f"order {one.order_id!r}: {one.describe()}")
        return answers

    def _none(self, refusal: SoldOut, orders: Sequence[Order]) -> list[Answer]:
        """Refuse all orders by one refusal: too few units are left for any order of that quantity."""
        if any(order.quantity < refusal.quantity for order in orders):
            first, *others = orders
            return [Refused(refusal.sequence, first.quantity), *self.buy_batch(others)]
        return [Refused(refusal.sequence, order.quantity) for order in orders]

    def _confirmed(self, fenced: Claim, reserved: Sequence[Reserved]) -> set[str]:
        """Store the batch if it commits, confirm it, and thereby free the segment. Return the final orders."""
        ids = [fenced.order.order_id, *(one.order_id for one in reserved)]
        if self.gate is not None:
            sku = self.pool.sku
            claims = [Claim(Order(one.order_id, one.quantity), sku, one.segment, one.epoch, None) for one in reserved]
            stored = self.gate.confirm_many([fenced, *claims])
            ids = [one for one, answer in zip(ids, stored, strict=True) if isinstance(answer, Confirmed)]
        operation = op.SettleMany(self.pool.sku, "confirmed", tuple(ids), decided=self.gate is not None)
        settled = run_sync(settle_many_plan(operation), self.pool.store)
        return {one.order_id for one in settled if isinstance(one, Settled) and one.state == "confirmed"}
