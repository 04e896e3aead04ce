"""The pool for asyncio: a second shell over the plans that `pool` runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, Self

from segmented import operations as op
from segmented.errors import NotGranted, PoolNotGated, SegmentedError
from segmented.locks.durations import checked_timeout
from segmented.models import Granted, Order, Settled, Superseded
from segmented.plans import perform, run_async
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
    from collections.abc import Awaitable, Callable, Generator, Iterable
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
    from segmented.plans.drivers import AsyncStore
    from segmented.stock.plans import Verdict


class AsyncPool:
    """A stock of one sku, split over segments that are locked one by one; otherwise as `Pool`."""

    def __init__(self, store: AsyncStore, sku: str, *, ttl: float = DEFAULT_TTL, hold: float = DEFAULT_HOLD) -> None:
        """Sell `sku` from `store`. A segment's lease lives `ttl` seconds, units stay reserved for `hold` seconds."""
        self.store = store
        self._settings = PoolSettings(sku, ttl=ttl, hold=hold)
        self.sku = sku

    async def open(
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
        return await self.store.execute(operation)

    async def state(self) -> PoolState:
        """Read totals and units a segment in one step. Raises PoolMissing."""
        return await self.store.execute(op.ReadPool(self.sku))

    def grant(
        self,
        order: Order | str,
        *,
        quantity: int = 1,
        timeout: float | None = None,
        holder_id: str | None = None,
        keep_refusal: bool = False,
        partial: bool = False,
    ) -> Granting:
        """`await` it for the answer, or use it as `async with pool.grant(order) as grant`; see `Pool.grant`."""
        operation = self._settings.grant(
            as_order(order, quantity), holder_id=holder_id, keep_refusal=keep_refusal, partial=partial
        )
        return Granting(self, operation, checked_timeout(timeout))

    async def reserve(self, order: Order | str, *, quantity: int = 1, partial: bool = False) -> Taken:
        """Take units for the pool's hold time, without a lock; with `partial`, what is left if that is less."""
        operation = op.Reserve(self.sku, as_order(order, quantity), self._settings.hold_ms, partial)
        return await run_async(reserve_plan(operation), self.store)

    async def reserve_many(self, orders: Iterable[Order], *, partial: bool = False) -> list[Taken | SegmentedError]:
        """Reserve for many orders, up to 1,000 in a round trip, each as if alone and in this order.

        One answer an order, in their order; the failure that `reserve` would have raised stands in its place. An id
        that comes twice is a repeat. If a later round trip fails, the earlier ones stand: call again with the same ids.
        """
        operation = op.ReserveMany(self.sku, tuple(orders), self._settings.hold_ms, partial)
        return await run_async(reserve_many_plan(operation), self.store)

    async def confirm(self, order_id: str, *, holder_id: str | None = None) -> Settled:
        """Make the order final; the answer says what had already happened, if anything had.

        With a holder id only that holder's segment is freed, not that of a successor in the same order.
        """
        return await run_async(perform(op.Confirm(self.sku, order_id, holder_id)), self.store)

    async def cancel(
        self, order_id: str, *, holder_id: str | None = None, voided: bool = False
    ) -> Settled | Superseded:
        """Give the units back; with a holder id only while the order is still that holder's.

        Of a gated pool, only what its order database has `voided`; raises PoolGated otherwise.
        """
        return await run_async(perform(op.Cancel(self.sku, order_id, holder_id, voided)), self.store)

    async def confirm_many(self, order_ids: Iterable[str]) -> list[Settled | SegmentedError | None]:
        """Confirm many orders, up to 1,000 in a round trip; one answer an order, or the failure of `confirm`."""
        operation = op.SettleMany(self.sku, "confirmed", tuple(order_ids))
        return await run_async(settle_many_plan(operation), self.store)

    async def cancel_many(
        self, order_ids: Iterable[str], *, voided: bool = False
    ) -> list[Settled | SegmentedError | None]:
        """Cancel many orders, up to 1,000 in a round trip; one answer an order, or the failure of `cancel`."""
        operation = op.SettleMany(self.sku, "cancelled", tuple(order_ids), voided)
        return await run_async(settle_many_plan(operation), self.store)

    async def expire(
        self, *, limit: int = 1_000, resolver: Callable[[OrderRecord], Awaitable[Verdict]] | None = None
    ) -> tuple[Settled, ...]:
        """Give back what lapsed holds kept, up to `limit` orders, 100 in a step. Returns what this call decided.

        A gated pool gives nothing back by itself (PoolGated): its order database is asked (`expire_voided`), or a
        `resolver`, which is called with each order whose hold has lapsed and says "confirm", "release" or "wait".
        """
        if resolver is None:
            return await run_async(expire_plan(self.sku, limit), self.store)
        await self._require_gated()
        records = await run_async(due_plan(self.sku, limit), self.store)
        verdicts = {record.order_id: await resolver(record) for record in records}
        return await run_async(resolve_plan(self.sku, checked_verdicts(verdicts)), self.store)

    async def _require_gated(self) -> None:
        if not (await self.state()).gated:
            raise PoolNotGated(self.sku)

    async def restock(self, units: int, *, restock_id: str) -> Restocked | Closed:
        """Put units in while the sale runs, once for each id. Raises ChangeMismatch for an id of another change."""
        return await self.store.execute(self._settings.restock(units, restock_id))

    async def withdraw(self, units: int, *, withdraw_id: str) -> Restocked | TooFew:
        """Take free units out while the sale runs, all or none, once for each id. Raises ChangeMismatch."""
        return await self.store.execute(self._settings.withdraw(units, withdraw_id))

    async def resize(self, segments: int) -> Resized:
        """Change the number of segments while the sale runs, without a pause; free units are split evenly.

        Whoever holds a segment that goes away finishes undisturbed.
        """
        return await self.store.execute(self._settings.resize(segments))

    async def close(self) -> PoolClosed:
        """Take no new orders any more. What is reserved can still be confirmed, cancelled, or lapse."""
        return await self.store.execute(op.ClosePool(self.sku))

    async def audit(self) -> AuditReport:
        """Fold the ledger and compare it with every number; safe while the pool sells."""
        return (await run_async(audit_plan(self.sku), self.store))[0]

    async def renew(self, grant: GrantState) -> None:
        """Push the end of a grant's lease and hold out. Raises LeaseLost when it is too late."""
        operation = op.RenewGrant(
            self.sku, grant.order_id, grant.holder_id, self._settings.ttl_ms, self._settings.hold_ms
        )
        grant._note_renewal(*(await run_async(renew_plan(operation), self.store)))  # noqa: SLF001  # two halves of one object
        grant.require()

    async def _granted(self, operation: op.Grant, timeout: float | None) -> AsyncGrant | Refusal:
        answer, asked_at = await run_async(grant_plan(operation, timeout), self.store)
        return AsyncGrant(self, answer, asked_at) if isinstance(answer, Granted) else answer

    def __repr__(self) -> str:
        """Name the pool."""
        return f"AsyncPool({self.sku!r}, {self.store!r})"


class Granting:
    """A grant that has not begun: awaitable, and an asynchronous context manager."""

    def __init__(self, pool: AsyncPool, operation: op.Grant, timeout: float | None) -> None:
        """Ask `pool` when asked."""
        self._pool = pool
        self._operation = operation
        self._timeout = timeout
        self._grant: AsyncGrant | None = None

    def __await__(self) -> Generator[Any, Any, AsyncGrant | Refusal]:
        """Return the answer."""
        return self._pool._granted(self._operation, self._timeout).__await__()  # noqa: SLF001  # made by the pool

    async def __aenter__(self) -> AsyncGrant:
        """Return the grant; raises NotGranted on a refusal."""
        answer = await self
        if not isinstance(answer, AsyncGrant):
            _refuse(answer)
        self._grant = answer
        return answer

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Confirm; or cancel if the body raised."""
        if self._grant is not None:
            await self._grant.__aexit__(kind, error, trace)


def _refuse(refusal: Refusal) -> NoReturn:
    raise NotGranted(refusal)


class AsyncGrant(GrantState):
    """A granted order, for asyncio."""

    def __init__(self, pool: AsyncPool, granted: Granted, asked_at: float) -> None:
        """Belong to `pool`."""
        super().__init__(granted, pool._settings.ttl_ms, asked_at, pool.store.clock)  # noqa: SLF001  # made by the pool
        self._pool = pool

    async def confirm(self) -> Settled:
        """Make it final and free the segment."""
        settled = await self._pool.confirm(self.order_id, holder_id=self.holder_id)
        self._is_settled = True
        return settled

    async def cancel(self) -> Settled | Superseded:
        """Give the units back and free the segment, unless another holder has the order by now."""
        answer = await self._pool.cancel(self.order_id, holder_id=self.holder_id)
        self._is_settled = True
        return answer

    async def renew(self) -> None:
        """Push the end of the lease and the hold out. Raises LeaseLost when it is too late."""
        await self._pool.renew(self)

    async def __aenter__(self) -> Self:
        """Return the grant."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Confirm; or cancel if the body raised, without hiding its error."""
        if self._is_settled:
            return
        if error is None:
            settled = await self.confirm()
            if settled.state != "confirmed":
                raise NotGranted(settled)
            return
        try:
            await self.cancel()
        except SegmentedError as failure:
            error.add_note(f"and the order could not be cancelled: {failure}")
