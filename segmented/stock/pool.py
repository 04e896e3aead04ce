"""The pool for threads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from segmented import operations as op
from segmented.errors import NotGranted, SegmentedError
from segmented.locks.durations import checked_timeout
from segmented.models import Busy, Granted, Order, Settled, SoldOut, Superseded
from segmented.plans import run_sync
from segmented.stock.audit import AuditReport, audit_plan
from segmented.stock.grant import GrantState
from segmented.stock.plans import expire_plan, grant_plan, renew_plan, reserve_plan
from segmented.stock.settings import DEFAULT_HOLD, DEFAULT_TTL, PoolSettings, as_order

if TYPE_CHECKING:
    from types import TracebackType

    from segmented.models import AlreadyOpen, Opened, PoolState, Reserved
    from segmented.plans.drivers import Store


class Pool:
    """A stock of one sku, split over segments that are locked one by one.

    Never oversells, and never says sold out while enough units are free. A segment's lock bounds how many work at once
    and protects an outside resource; the units are taken in the same step as the lock, so losing the lock sells nothing
    twice.
    """

    def __init__(self, store: Store, sku: str, *, ttl: float = DEFAULT_TTL, hold: float = DEFAULT_HOLD) -> None:
        """Sell `sku` from `store`. A segment's lease lives `ttl` seconds, units stay reserved for `hold` seconds."""
        self.store = store
        self._settings = PoolSettings(sku, ttl=ttl, hold=hold)
        self.sku = sku
        self._is_gated: bool | None = None

    def open(self, *, stock: int, segments: int, gated: bool = False, epoch: int = 1) -> Opened | AlreadyOpen:
        """Open the pool once; opening again changes nothing and says what is there.

        `gated`: an order database decides every order's fate, so nothing expires before it has been asked.
        """
        return self.store.execute(self._settings.open(stock, segments, gated=gated, epoch=epoch))

    def state(self) -> PoolState:
        """Read totals and units a segment in one step. Raises PoolMissing."""
        return self.store.execute(op.ReadPool(self.sku))

    def is_gated(self) -> bool:
        """Return whether an order database decides this pool's orders; the server is asked once. Raises PoolMissing."""
        if self._is_gated is None:
            self._is_gated = self.state().gated
        return self._is_gated

    def grant(
        self,
        order: Order | str,
        *,
        quantity: int = 1,
        timeout: float | None = None,
        holder_id: str | None = None,
        keep_refusal: bool = False,
    ) -> Grant | SoldOut | Busy | Settled:
        """Take units and a free segment's lock, waiting up to `timeout` seconds (None: for ever) for a segment.

        In a `with` statement the order is confirmed at the end of the body, or cancelled if the body raises; a refusal
        raises NotGranted there. `holder_id` makes an explicit repeat recognisable; `keep_refusal` stores a sold-out
        answer as the order's final state. Raises OrderMismatch when the id exists with other content.
        """
        operation = self._settings.grant(as_order(order, quantity), holder_id=holder_id, keep_refusal=keep_refusal)
        answer, asked_at = run_sync(grant_plan(operation, checked_timeout(timeout)), self.store)
        return Grant(self, answer, asked_at) if isinstance(answer, Granted) else answer

    def reserve(self, order: Order | str, *, quantity: int = 1) -> Reserved | SoldOut | Busy | Settled:
        """Take units for the pool's hold time, without a lock."""
        plan = reserve_plan(self.sku, as_order(order, quantity), self._settings.hold_ms)
        return run_sync(plan, self.store)

    def confirm(self, order_id: str, *, holder_id: str | None = None) -> Settled:
        """Make the order final; the answer says what had already happened, if anything had.

        With a holder id only that holder's segment is freed, not that of a successor in the same order.
        """
        return self.store.execute(op.Confirm(self.sku, order_id, holder_id))

    def cancel(self, order_id: str, *, holder_id: str | None = None, voided: bool = False) -> Settled | Superseded:
        """Give the units back; with a holder id only while the order is still that holder's.

        Of a gated pool, only what its order database has `voided`; raises PoolGated otherwise.
        """
        return self.store.execute(op.Cancel(self.sku, order_id, holder_id, voided))

    def expire(self, *, limit: int = 1_000) -> tuple[Settled, ...]:
        """Give back what lapsed holds kept, up to `limit` orders. Raises PoolGated; see `expire_voided`."""
        return run_sync(expire_plan(self.sku, limit), self.store)

    def audit(self) -> AuditReport:
        """Fold the ledger and compare it with every number; safe while the pool sells."""
        return run_sync(audit_plan(self.sku), self.store)[0]

    def renew(self, grant: GrantState) -> None:
        """Push the end of a grant's lease and hold out. Raises LeaseLost when it is too late."""
        operation = op.RenewGrant(
            self.sku, grant.order_id, grant.holder_id, self._settings.ttl_ms, self._settings.hold_ms
        )
        grant._note_renewal(*run_sync(renew_plan(operation), self.store))  # noqa: SLF001  # two halves of one object
        grant.require()

    def __repr__(self) -> str:
        """Name the pool."""
        return f"Pool({self.sku!r}, {self.store!r})"


class Grant(GrantState):
    """A granted order, for threads."""

    def __init__(self, pool: Pool, granted: Granted, asked_at: float) -> None:
        """Belong to `pool`."""
        super().__init__(granted, pool._settings.ttl_ms, asked_at, pool.store.clock)  # noqa: SLF001  # made by it
        self._pool = pool

    def confirm(self) -> Settled:
        """Make it final and free the segment."""
        settled = self._pool.confirm(self.order_id, holder_id=self.holder_id)
        self._is_settled = True
        return settled

    def cancel(self) -> Settled | Superseded:
        """Give the units back and free the segment, unless another holder has the order by now."""
        answer = self._pool.cancel(self.order_id, holder_id=self.holder_id)
        self._is_settled = True
        return answer

    def renew(self) -> None:
        """Push the end of the lease and the hold out. Raises LeaseLost when it is too late."""
        self._pool.renew(self)

    def __enter__(self) -> Self:
        """Return the grant."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Confirm; or cancel if the body raised, without hiding its error."""
        if self._is_settled:
            return
        if error is None:
            settled = self.confirm()
            if settled.state != "confirmed":
                raise NotGranted(settled)
            return
        try:
            self.cancel()
        except SegmentedError as failure:
            error.add_note(f"and the order could not be cancelled: {failure}")
