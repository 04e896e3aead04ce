"""The pool for threads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from segmented import operations as op
from segmented.errors import NotGranted, PoolNotGated, SegmentedError
from segmented.locks.durations import checked_timeout
from segmented.models import Granted, Order, Settled, Superseded
from segmented.plans import run_sync
from segmented.stock.audit import AuditReport, audit_plan
from segmented.stock.grant import GrantState
from segmented.stock.plans import (
    due_plan,
    expire_plan,
    grant_plan,
    renew_plan,
    reserve_many_plan,
    reserve_plan,
    resolve_plan,
    settle_many_plan,
)
from segmented.stock.settings import DEFAULT_HOLD, DEFAULT_TTL, PoolSettings, as_order, checked_verdicts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType

    from segmented.models import (
        AlreadyOpen,
        Closed,
        Opened,
        OrderRecord,
        PoolClosed,
        PoolState,
        Refusal,
        Resized,
        Restocked,
        Taken,
        TooFew,
    )
    from segmented.plans.drivers import Store
    from segmented.stock.plans import Verdict


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

    def open(
        self,
        *,
        stock: int,
        segments: int,
        gated: bool = False,
        epoch: int = 1,
        customer_limit: int | None = None,
    ) -> Opened | AlreadyOpen:
        """Open the pool once; opening again changes nothing and says what is there.

        `gated`: somebody else, such as an order database, decides every order's fate, so nothing expires before it has
        been asked. With a `customer_limit` every order names its customer, who gets no more units than that.
        """
        operation = self._settings.open(stock, segments, gated=gated, epoch=epoch, customer_limit=customer_limit)
        return self.store.execute(operation)

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
        partial: bool = False,
    ) -> Grant | Refusal:
        """Take units and a free segment's lock, waiting up to `timeout` seconds (None: for ever) for a segment.

        In a `with` statement the order is confirmed at the end of the body, or cancelled if the body raises; a refusal
        raises NotGranted there. `holder_id` makes an explicit repeat recognisable; `keep_refusal` stores a sold-out
        answer as the order's final state. `partial` takes what is left, if that is less. Raises OrderMismatch when the
        id exists with other content.
        """
        operation = self._settings.grant(
            as_order(order, quantity), holder_id=holder_id, keep_refusal=keep_refusal, partial=partial
        )
        answer, asked_at = run_sync(grant_plan(operation, checked_timeout(timeout)), self.store)
        return Grant(self, answer, asked_at) if isinstance(answer, Granted) else answer

    def reserve(self, order: Order | str, *, quantity: int = 1, partial: bool = False) -> Taken:
        """Take units for the pool's hold time, without a lock; with `partial`, what is left if that is less."""
        operation = op.Reserve(self.sku, as_order(order, quantity), self._settings.hold_ms, partial)
        return run_sync(reserve_plan(operation), self.store)

    def reserve_many(self, orders: Iterable[Order], *, partial: bool = False) -> list[Taken | SegmentedError]:
        """Reserve for many orders, up to 1,000 in a round trip, each as if alone and in this order.

        One answer an order, in their order; the failure that `reserve` would have raised stands in its place. An id
        that comes twice is a repeat. If a later round trip fails, the earlier ones stand: call again with the same ids.
        """
        operation = op.ReserveMany(self.sku, tuple(orders), self._settings.hold_ms, partial)
        return run_sync(reserve_many_plan(operation), self.store)

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

    def confirm_many(self, order_ids: Iterable[str]) -> list[Settled | SegmentedError | None]:
        """Confirm many orders, up to 1,000 in a round trip; one answer an order, or the failure of `confirm`."""
        operation = op.SettleMany(self.sku, "confirmed", tuple(order_ids))
        return run_sync(settle_many_plan(operation), self.store)

    def cancel_many(self, order_ids: Iterable[str], *, voided: bool = False) -> list[Settled | SegmentedError | None]:
        """Cancel many orders, up to 1,000 in a round trip; one answer an order, or the failure of `cancel`."""
        operation = op.SettleMany(self.sku, "cancelled", tuple(order_ids), voided)
        return run_sync(settle_many_plan(operation), self.store)

    def expire(
        self, *, limit: int = 1_000, resolver: Callable[[OrderRecord], Verdict] | None = None
    ) -> tuple[Settled, ...]:
        """Give back what lapsed holds kept, up to `limit` orders, 100 in a step. Returns what this call decided.

        A gated pool gives nothing back by itself (PoolGated): its order database is asked (`expire_voided`), or a
        `resolver`, which is called with each order whose hold has lapsed and says "confirm", "release" or "wait".
        """
        if resolver is None:
            return run_sync(expire_plan(self.sku, limit), self.store)
        self._require_gated()
        records = run_sync(due_plan(self.sku, limit), self.store)
        verdicts = {record.order_id: resolver(record) for record in records}
        return run_sync(resolve_plan(self.sku, checked_verdicts(verdicts)), self.store)

    def _require_gated(self) -> None:
        if not (self.state()).gated:
            raise PoolNotGated(self.sku)

    def restock(self, units: int, *, restock_id: str) -> Restocked | Closed:
        """Put units in while the sale runs, once for each id. Raises ChangeMismatch for an id of another change."""
        return self.store.execute(self._settings.restock(units, restock_id))

    def withdraw(self, units: int, *, withdraw_id: str) -> Restocked | TooFew:
        """Take free units out while the sale runs, all or none, once for each id. Raises ChangeMismatch."""
        return self.store.execute(self._settings.withdraw(units, withdraw_id))

    def resize(self, segments: int) -> Resized:
        """Change the number of segments while the sale runs, without a pause; free units are split evenly.

        Whoever holds a segment that goes away finishes undisturbed.
        """
        return self.store.execute(self._settings.resize(segments))

    def close(self) -> PoolClosed:
        """Take no new orders any more. What is reserved can still be confirmed, cancelled, or lapse."""
        return self.store.execute(op.ClosePool(self.sku))

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
