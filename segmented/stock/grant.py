"""A granted order: its units and its segment's lease. The state of both kinds, and the grant for threads."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Literal, Self

from segmented.errors import (
    AlreadySettled,
    GrantLost,
    GrantSuperseded,
    InvalidInput,
    LeaseLost,
    PoolGated,
    SegmentedError,
)
from segmented.locks.dropped import WarnsWhenDropped
from segmented.locks.lease_state import trusted_until
from segmented.models import Granted, Lost, Order, Renewed, Settled
from segmented.plans import run_sync
from segmented.stock.as_asked import as_cancelled, as_confirmed
from segmented.stock.plans import leave_plan

if TYPE_CHECKING:
    from types import TracebackType

    from segmented.clock import Clock
    from segmented.stock.pool import Pool
    from segmented.stock.pool_gate import PoolGate

KeepOn = type[BaseException] | tuple[type[BaseException], ...]
"""Errors of a body after which it is unknown whether the order was paid, so that its units stay reserved."""


class GrantState(WarnsWhenDropped):
    """A reservation together with its segment's lease. Losing the lease returns no units.

    A grant that is dropped before it is confirmed or cancelled gives a ResourceWarning: its segment stays locked until
    the lease ends, and its units stay reserved until the hold ends. It gives none once the program has read
    `holder_id`, with which the order can be confirmed elsewhere.
    """

    _is_settled = True
    """Whether it was confirmed, cancelled or kept; until it is complete, there is nothing to end."""

    def __init__(self, granted: Granted, ttl_ms: int, asked_at: float, clock: Clock, keep_on: KeepOn) -> None:
        """Create the state; the lease is trusted for `ttl_ms`, less a margin, from local time `asked_at`.

        If the body of the `with` statement raises an error in `keep_on`, its outcome is unknown: the units stay.
        """
        self.keep_on = keep_on
        self.answer = granted
        self.order_id = granted.order_id
        self.quantity = granted.quantity
        self.segment = granted.segment
        self.fencing_token = granted.fencing_token
        self.epoch = granted.epoch
        self.replay = granted.replay
        self.trusted_until = trusted_until(asked_at, ttl_ms)
        self._process_id = os.getpid()
        self._clock = clock
        self._is_handed_on = False
        self._is_settled = False

    def __bool__(self) -> Literal[True]:
        """Return True: the units are taken."""
        return True

    @property
    def holder_id(self) -> str:
        """Return the holder's id, with which another process can confirm the order and free its segment."""
        return self.handed_on().holder_id

    def handed_on(self) -> Granted:
        """Return the answer. Its end is not this handle's duty any more: it may be dropped without a warning."""
        self._is_handed_on = True
        return self.answer

    @property
    def is_trusted(self) -> bool:
        """Return whether the holder may still act on the segment."""
        return not self._is_settled and self._clock.now() < self.trusted_until

    def require(self) -> None:
        """Raise LeaseLost unless the lease can be trusted now."""
        if not self.is_trusted:
            name = f"segment {self.segment}"
            raise LeaseLost(name, self.answer.holder_id)

    def _begin_body(self) -> None:
        """Raise InvalidInput if the grant has ended: one grant runs one body."""
        if self._is_settled:
            message = f"the grant of order {self.order_id!r} has ended: ask for the order again, and use the new answer"
            raise InvalidInput(message)

    def _note_dropped(self) -> str | None:
        if not self.is_trusted or self._is_handed_on or os.getpid() != self._process_id:
            return None
        return (
            f"grant of order {self.order_id!r} was dropped: its {self.quantity} units stay reserved until its hold "
            "ends; confirm or cancel it, or use it in a with statement"
        )

    def _note_renewal(self, answer: Renewed | Lost, asked_at: float) -> None:
        if isinstance(answer, Lost):
            self.trusted_until = asked_at
        else:
            self.trusted_until = trusted_until(asked_at, answer.ttl_ms)

    def __repr__(self) -> str:
        """Show the order, units, segment and fencing token."""
        units = f"{self.quantity} units, segment {self.segment}"
        return f"<{type(self).__name__} order {self.order_id!r}: {units}, token {self.fencing_token}>"


class Grant(GrantState):
    """A granted order, for threads."""

    def __init__(self, pool: Pool, granted: Granted, asked_at: float, keep_on: KeepOn = ()) -> None:
        """Create a grant of `pool`, requested at local time `asked_at`."""
        super().__init__(granted, pool._settings.ttl_ms, asked_at, pool.store.clock, keep_on)  # noqa: SLF001  # made by it
        self.pool = pool
        """The pool, or the shard, that owns the segment and the units."""
        self._decided_by: tuple[PoolGate[Pool, Grant], Order] | None = None

    def decided_by(self, gate: PoolGate[Pool, Grant], order: Order) -> Self:
        """Note that the gate's order database decides the order."""
        self._decided_by = gate, order
        return self

    def confirm(self) -> Settled:
        """Make the order final and free the segment. With a gate, its order database stores the order first.

        Raises AlreadySettled if the order has ended otherwise, for example because its hold ended.
        """
        try:
            if self._decided_by is None:
                settled = self.pool.confirm(self.order_id, holder_id=self.answer.holder_id)
            else:
                gate, order = self._decided_by
                settled = as_confirmed(gate.confirm_grant(self, order))
        except AlreadySettled:
            self._is_settled = True
            raise
        self._is_settled = True
        return settled

    def cancel(self) -> Settled:
        """Give the units back and free the segment.

        Raises GrantSuperseded if another holder has taken over the order, and AlreadySettled if it is confirmed.
        """
        try:
            if self._decided_by is None:
                settled = self.pool.cancel(self.order_id, holder_id=self.answer.holder_id)
            else:
                settled = as_cancelled(self._decided_by[0].cancel_order(self.pool, self.order_id, self.holder_id))
        except (AlreadySettled, GrantSuperseded):
            self._is_settled = True
            raise
        self._is_settled = True
        return settled

    def renew(self) -> None:
        """Extend the lease and the hold. Raises LeaseLost when it is too late."""
        self.pool.renew(self)

    def __enter__(self) -> Self:
        """Return the grant. Raises PoolGated for a gated pool without its gate, InvalidInput if the grant has ended."""
        self._begin_body()
        if self._decided_by is None:
            is_gated = True
            try:
                is_gated = self.pool.is_gated()
            finally:
                if is_gated:
                    self._abandon()
            if is_gated:
                raise PoolGated(self.pool.sku, self.order_id, "store")
        return self

    def _abandon(self) -> None:
        """Free the segment; units that no order database decides on go back."""
        with suppress(SegmentedError):
            self.pool.cancel(self.order_id, holder_id=self.holder_id)
        run_sync(leave_plan(self.pool.sku, self.order_id, self.holder_id), self.pool.store)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Confirm the order, or cancel it if the body raised, without hiding the body's error.

        After an error in `keep_on` only the segment is freed. Raises GrantLost if the order ended while the body ran.
        """
        if self._is_settled:
            return
        if isinstance(error, self.keep_on):
            self._is_settled = True
            run_sync(leave_plan(self.pool.sku, self.order_id, self.holder_id), self.pool.store)
            return
        if error is not None:
            try:
                self.cancel()
            except SegmentedError as failure:
                error.add_note(f"and the order could not be cancelled: {failure}")
                self._free()
            return
        try:
            self.confirm()
        except AlreadySettled as ended:
            self._free()
            raise GrantLost(self.order_id, ended.state) from ended
        except BaseException:
            self._free()
            raise

    def _free(self) -> None:
        """Free the segment of an order that its database has still to decide: a repeat continues with the units."""
        if self._decided_by is not None:
            run_sync(leave_plan(self.pool.sku, self.order_id, self.holder_id), self.pool.store)
