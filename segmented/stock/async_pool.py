"""The pool for asyncio: a second shell over the plans that `pool` runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, Self

from segmented import operations as op
from segmented.errors import NotGranted, SegmentedError
from segmented.locks.durations import checked_timeout
from segmented.models import Busy, Granted, Order, Settled, SoldOut, Superseded
from segmented.plans import perform, run_async
from segmented.stock.audit import AuditReport, audit_plan
from segmented.stock.grant import GrantState
from segmented.stock.plans import expire_plan, grant_plan, renew_plan, reserve_plan
from segmented.stock.settings import DEFAULT_HOLD, DEFAULT_TTL, PoolSettings, as_order

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import TracebackType

    from segmented.models import AlreadyOpen, Opened, PoolState, Reserved
    from segmented.plans.drivers import AsyncStore


class AsyncPool:
    """A stock of one sku, split over segments that are locked one by one; otherwise as `Pool`."""

    def __init__(self, store: AsyncStore, sku: str, *, ttl: float = DEFAULT_TTL, hold: float = DEFAULT_HOLD) -> None:
        """Sell `sku` from `store`. A segment's lease lives `ttl` seconds, units stay reserved for `hold` seconds."""
        self.store = store
        self._settings = PoolSettings(sku, ttl=ttl, hold=hold)
        self.sku = sku

    async def open(self, *, stock: int, segments: int, gated: bool = False, epoch: int = 1) -> Opened | AlreadyOpen:
        """Open the pool once; opening again changes nothing and says what is there."""
        return await self.store.execute(self._settings.open(stock, segments, gated=gated, epoch=epoch))

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
    ) -> Granting:
        """`await` it for the answer, or use it as `async with pool.grant(order) as grant`; see `Pool.grant`."""
        operation = self._settings.grant(as_order(order, quantity), holder_id=holder_id, keep_refusal=keep_refusal)
        return Granting(self, operation, checked_timeout(timeout))

    async def reserve(self, order: Order | str, *, quantity: int = 1) -> Reserved | SoldOut | Busy | Settled:
        """Take units for the pool's hold time, without a lock."""
        plan = reserve_plan(self.sku, as_order(order, quantity), self._settings.hold_ms)
        return await run_async(plan, self.store)

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

    async def expire(self, *, limit: int = 1_000) -> tuple[Settled, ...]:
        """Give back what lapsed holds kept, up to `limit` orders. Raises PoolGated; see `expire_voided`."""
        return await run_async(expire_plan(self.sku, limit), self.store)

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

    async def _granted(self, operation: op.Grant, timeout: float | None) -> AsyncGrant | SoldOut | Busy | Settled:
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

    def __await__(self) -> Generator[Any, Any, AsyncGrant | SoldOut | Busy | Settled]:
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


def _refuse(refusal: SoldOut | Busy | Settled) -> NoReturn:
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
