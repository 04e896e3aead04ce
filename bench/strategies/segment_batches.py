"""K segments, each with its own lock, and B orders under one hold of it: one lock, one slow step, one commit for all.

The first order of a batch takes a segment, with units and lock in one step; the others' units are reserved in a second
one, from any segments; after the slow step a third confirms all of them, which frees the segment. Where the critical
section commits, the whole batch is stored in one transaction before that.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, ClassVar

from bench.strategies.base import Refused, RefusedByGate, Sold
from bench.strategies.segment_locks import SegmentLocks
from segmented.errors import SegmentedError
from segmented.models import Order, Reserved, Settled, SoldOut
from segmented.orders.answers import Confirmed
from segmented.orders.standing import Claim
from segmented.stock import Grant

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.strategies.base import Answer


class SegmentBatches(SegmentLocks):
    """A pool of K segments that serves batches."""

    name: ClassVar[str] = "segment-batches"
    summary: ClassVar[str] = "K segments of a pool, each with its lock; B orders under one hold of it"
    has_batches: ClassVar[bool] = True

    def buy_batch(self, orders: Sequence[Order]) -> list[Answer]:
        """Wait for a segment, take the units of all, do the slow step once, confirm all."""
        first, *others = orders
        grant = self.pool.grant(first)
        if isinstance(grant, SoldOut):
            return self._none(grant, orders)
        if not isinstance(grant, Grant):
            message = f"order {first.order_id!r}: {grant.describe()}"
            raise SegmentedError(message)
        granted_at = time.monotonic()  # the lock is held from here, so what the others' units take is part of it
        taken = self.pool.reserve_many(others) if others else []
        self.context.section.run()
        fenced = Claim(first, self.pool.sku, grant.segment, grant.epoch, grant.fencing_token)
        confirmed = self._confirmed(fenced, [one for one in taken if isinstance(one, Reserved)])
        # one value for all of them: it never changes
        answer = Sold(granted_at, time.monotonic(), grant.segment, self.store.attempts())
        answers: list[Answer] = [answer if first.order_id in confirmed else RefusedByGate()]
        sequence = 0
        for one in taken:
            if isinstance(one, Reserved):
                sequence = one.sequence
                answers.append(answer if one.order_id in confirmed else RefusedByGate())
            elif isinstance(one, SoldOut):
                # it names the change before the call, but was decided behind those of the same call that were served
                answers.append(Refused(max(one.sequence, sequence), one.quantity))
            elif isinstance(one, SegmentedError):
                raise one
            else:
                message = f"order {one.order_id!r}: {one.describe()}"
                raise SegmentedError(message)
        return answers

    def _none(self, refusal: SoldOut, orders: Sequence[Order]) -> list[Answer]:
        """Refuse all by one refusal: with so few units left, nobody who asks for as many gets any at that moment."""
        if any(order.quantity < refusal.quantity for order in orders):
            first, *others = orders
            return [Refused(refusal.sequence, first.quantity), *self.buy_batch(others)]
        return [Refused(refusal.sequence, order.quantity) for order in orders]

    def _confirmed(self, fenced: Claim, reserved: Sequence[Reserved]) -> set[str]:
        """Store the batch where it commits, confirm it, and so free the segment. Returns the orders that are final."""
        ids = [fenced.order.order_id, *(one.order_id for one in reserved)]
        if self.gate is not None:
            sku = self.pool.sku
            claims = [Claim(Order(one.order_id, one.quantity), sku, one.segment, one.epoch, None) for one in reserved]
            stored = self.gate.confirm_many([fenced, *claims])
            ids = [one for one, answer in zip(ids, stored, strict=True) if isinstance(answer, Confirmed)]
        settled = self.pool.confirm_many(ids)
        return {one.order_id for one in settled if isinstance(one, Settled) and one.state == "confirmed"}
