"""A granted order for asyncio, and the call that returns it, which is an `async with` statement too."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, suppress
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from segmented.errors import AlreadySettled, GrantLost, GrantSuperseded, NotGranted, PoolGated, SegmentedError
from segmented.models import Granted, Order, Refusal, Settled
from segmented.plans import run_async
from segmented.stock.as_asked import as_cancelled, as_confirmed
from segmented.stock.grant import GrantState, KeepOn
from segmented.stock.plans import leave_plan

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator
    from types import TracebackType

    from segmented.stock.async_pool import AsyncPool
    from segmented.stock.pool_gate import AsyncPoolGate

GrantT = TypeVar("GrantT", bound=AbstractAsyncContextManager[Any])


class Granting(Generic[GrantT]):
    """A pending grant: an awaitable and an asynchronous context manager."""

    def __init__(self, ask: Callable[[], Coroutine[Any, Any, GrantT | Refusal]]) -> None:
        """Create a pending call; `ask` is called when this is awaited or entered."""
        self._ask = ask
        self._grant: GrantT | None = None

    def __await__(self) -> Generator[Any, Any, GrantT | Refusal]:
        """Return the grant or the refusal."""
        return self._ask().__await__()

    async def __aenter__(self) -> GrantT:
        """Return the grant; raises NotGranted on a refusal."""
        answer = await self
        if isinstance(answer, Refusal):
            raise NotGranted(answer)
        self._grant = answer
        await answer.__aenter__()
        return answer

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Confirm the order, or cancel it if the body raised."""
        if self._grant is not None:
            await self._grant.__aexit__(kind, error, trace)


class AsyncGrant(GrantState):
    """A granted order, for asyncio."""

    def __init__(self, pool: AsyncPool, granted: Granted, asked_at: float, keep_on: KeepOn = ()) -> None:
        """Create a grant of `pool`, requested at local time `asked_at`."""
        super().__init__(granted, pool._settings.ttl_ms, asked_at, pool.store.clock, keep_on)  # noqa: SLF001  # made by it
        self.pool = pool
        """The pool, or the shard, that owns the segment and the units."""
        self._decided_by: tuple[AsyncPoolGate[AsyncPool, AsyncGrant], Order] | None = None

    def decided_by(self, gate: AsyncPoolGate[AsyncPool, AsyncGrant], order: Order) -> Self:
        """Note that the gate's order database decides the order."""
        self._decided_by = gate, order
        return self

    async def confirm(self) -> Settled:
        """Make the order final and free the segment. See `Grant.confirm`."""
        try:
            if self._decided_by is None:
                settled = await self.pool.confirm(self.order_id, holder_id=self.answer.holder_id)
            else:
                gate, order = self._decided_by
                settled = as_confirmed(await gate.confirm_grant(self, order))
        except AlreadySettled:
            self._is_settled = True
            raise
        self._is_settled = True
        return settled

    async def cancel(self) -> Settled:
        """Give the units back and free the segment. See `Grant.cancel`."""
        try:
            if self._decided_by is None:
                settled = await self.pool.cancel(self.order_id, holder_id=self.answer.holder_id)
            else:
                gate = self._decided_by[0]
                settled = as_cancelled(await gate.cancel_order(self.pool, self.order_id, self.holder_id))
        except (AlreadySettled, GrantSuperseded):
            self._is_settled = True
            raise
        self._is_settled = True
        return settled

    async def renew(self) -> None:
        """Extend the lease and the hold. Raises LeaseLost when it is too late."""
        await self.pool.renew(self)

    async def __aenter__(self) -> Self:
        """Return the grant. Raises PoolGated for a gated pool without its gate, InvalidInput if the grant has ended."""
        self._begin_body()
        if self._decided_by is None:
            is_gated = True
            try:
                is_gated = await self.pool.is_gated()
            finally:
                if is_gated:
                    await self._abandon()
            if is_gated:
                raise PoolGated(self.pool.sku, self.order_id, "store")
        return self

    async def _abandon(self) -> None:
        """Free the segment; units that no order database decides on go back."""
        with suppress(SegmentedError):
            await self.pool.cancel(self.order_id, holder_id=self.holder_id)
        await run_async(leave_plan(self.pool.sku, self.order_id, self.holder_id), self.pool.store)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Confirm the order, or cancel it if the body raised, without hiding the body's error.

        After an error in `keep_on` only the segment is freed. Raises GrantLost if the order ended while the body ran.
        """
        if self._is_settled:
            return
        if isinstance(error, self.keep_on):
            self._is_settled = True
            await run_async(leave_plan(self.pool.sku, self.order_id, self.holder_id), self.pool.store)
            return
        if error is not None:
            try:
                await self.cancel()
            except SegmentedError as failure:
                error.add_note(f"and the order could not be cancelled: {failure}")
                await self._free()
            return
        try:
            await self.confirm()
        except AlreadySettled as ended:
            await self._free()
            raise GrantLost(self.order_id, ended.state) from ended
        except BaseException:
            await self._free()
            raise

    async def _free(self) -> None:
        """Free the segment of an order that its database has still to decide: a repeat continues with the units."""
        if self._decided_by is not None:
            await run_async(leave_plan(self.pool.sku, self.order_id, self.holder_id), self.pool.store)
