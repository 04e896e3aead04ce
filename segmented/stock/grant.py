"""A granted order: units, and the lock of a segment."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial as bind
from traceback import clear_frames
from typing import TYPE_CHECKING, Any, Self

from segmented.errors import AlreadySettled, GrantLost, GrantSuperseded, PoolGated, SegmentedError
from segmented.locks.keeper import async_keeper, thread_keeper
from segmented.locks.lease_state import tend_plan
from segmented.models.orders import as_cancelled, as_confirmed
from segmented.plans import run_async, run_sync
from segmented.plans.tasks import to_the_end
from segmented.stock.grant_state import GrantState
from segmented.stock.plans import leave_plan

if TYPE_CHECKING:
    from types import TracebackType

    from segmented.models import Order, Settled
    from segmented.stock.no_gate import AsyncPoolGate, PoolGate


class AsyncGrant(GrantState):
    """A granted order, for asyncio."""

    pool: Any  # an AsyncPool, whose module imports this one
    _decided_by: tuple[AsyncPoolGate, Order] | None

    def decided_by(self, gate: AsyncPoolGate, order: Order) -> Self:
        """Note that the gate's order database decides the order."""
        self._decided_by = gate, order
        return self

    async def confirm(self) -> Settled:
        """Make the order final and free the segment. With a gate, its order database stores the order first.

        Raises AlreadySettled if the order has ended otherwise, for example because its hold ended. A call that the
        store does not answer, or that an exception of a signal handler ends, is repeated in the background until the
        hold ends; another `confirm` or `cancel` of this grant takes its place.
        """
        try:
            settled = await self._ended(is_sold=True)
        except BaseException as failure:
            await self._end_later(failure, is_sold=True)
            raise
        self._is_settled = True
        return settled

    async def cancel(self) -> Settled:
        """Give the units back and free the segment.

        Raises GrantSuperseded if another holder has taken over the order, and AlreadySettled if it is confirmed.
        """
        try:
            settled = await self._ended(is_sold=False)
        except BaseException as failure:
            await self._end_later(failure, is_sold=False)
            raise
        self._is_settled = True
        return settled

    async def _ended(self, *, is_sold: bool) -> Settled:
        self._withdraw()
        if self._decided_by is None:
            end = self.pool.confirm if is_sold else self.pool.cancel
            settled: Settled = await end(self.order_id, holder_id=self.answer.holder_id)
            return settled
        gate, order = self._decided_by
        if is_sold:
            return as_confirmed(await gate.confirm_grant(self, order))
        return as_cancelled(await gate.cancel_order(self.pool, self.order_id, self.holder_id))

    async def _end_later(self, failure: BaseException, *, is_sold: bool | None, is_over: bool = False) -> None:
        """End what `failure` has kept from ending: at once if the program may be about to exit, else by the keeper.

        After a cancellation, or an exception of a signal handler, there may be no task or thread to repeat it later. A
        gate's step that failed may be repeated by the holder: its segment is only freed if the grant `is_over`.
        """
        # threads: is_struck = not isinstance(failure, SegmentedError | GeneratorExit)
        if isinstance(failure, AlreadySettled | GrantSuperseded):
            self._is_settled = True
        if self._decided_by is not None:
            # threads: if is_struck and is_sold is not None and not self._is_settled:
            # threads:     clear_frames(failure.__traceback__)  # a cursor in one of them would keep SQLite's write lock
            # threads:     with suppress(Exception):
            # threads:         self._ended(is_sold=is_sold)
            # threads:         self._is_settled = True
            if not is_over:
                return
            is_sold = None
        owed = self._owe(failure, self._ending(is_sold=is_sold))
        if owed is None:
            return
        try:
            if isinstance(failure, asyncio.CancelledError):  # asyncio only
                await to_the_end(bind(run_async, tend_plan([owed]), self.pool.store))
            # threads: if is_struck:
            # threads:     run_sync(tend_plan([owed]), self.pool.store)
        finally:
            if not owed.is_over:
                async_keeper(self.pool.store).watch(owed, self.pool.store)

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
        try:
            if self._is_settled:
                return
            is_sold = self._is_sold(error)
            if is_sold is None:
                await run_async(leave_plan(self.pool.sku, self.order_id, self.holder_id), self.pool.store)
                self._is_settled = True
            elif is_sold:
                await self.confirm()
            else:
                await self.cancel()
        except SegmentedError as failure:
            await self._free()
            if error is None and isinstance(failure, AlreadySettled):
                raise GrantLost(self.order_id, failure.state) from failure
            if error is None:
                raise
            error.add_note(f"and the order could not be cancelled: {failure}")
        except BaseException as failure:  # of a gate's database, or of a signal handler at any point
            await self._end_later(failure, is_sold=self._is_sold(error), is_over=True)
            raise

    async def _free(self) -> None:
        """Free the segment of an order that its database has still to decide: a repeat continues with the units."""
        if self._decided_by is not None:
            await run_async(leave_plan(self.pool.sku, self.order_id, self.holder_id), self.pool.store)


# --- For threads: written by `make sync` from the classes above. ---


class Grant(GrantState):
    """A granted order, for threads."""

    pool: Any  # an Pool, whose module imports this one
    _decided_by: tuple[PoolGate, Order] | None

    def decided_by(self, gate: PoolGate, order: Order) -> Self:
        """Note that the gate's order database decides the order."""
        self._decided_by = gate, order
        return self

    def confirm(self) -> Settled:
        """Make the order final and free the segment. With a gate, its order database stores the order first.

        Raises AlreadySettled if the order has ended otherwise, for example because its hold ended. A call that the
        store does not answer, or that an exception of a signal handler ends, is repeated in the background until the
        hold ends; another `confirm` or `cancel` of this grant takes its place.
        """
        try:
            settled = self._ended(is_sold=True)
        except BaseException as failure:
            self._end_later(failure, is_sold=True)
            raise
        self._is_settled = True
        return settled

    def cancel(self) -> Settled:
        """Give the units back and free the segment.

        Raises GrantSuperseded if another holder has taken over the order, and AlreadySettled if it is confirmed.
        """
        try:
            settled = self._ended(is_sold=False)
        except BaseException as failure:
            self._end_later(failure, is_sold=False)
            raise
        self._is_settled = True
        return settled

    def _ended(self, *, is_sold: bool) -> Settled:
        self._withdraw()
        if self._decided_by is None:
            end = self.pool.confirm if is_sold else self.pool.cancel
            settled: Settled = end(self.order_id, holder_id=self.answer.holder_id)
            return settled
        gate, order = self._decided_by
        if is_sold:
            return as_confirmed(gate.confirm_grant(self, order))
        return as_cancelled(gate.cancel_order(self.pool, self.order_id, self.holder_id))

    def _end_later(self, failure: BaseException, *, is_sold: bool | None, is_over: bool = False) -> None:
        """End what `failure` has kept from ending: at once if the program may be about to exit, else by the keeper.

        After a cancellation, or an exception of a signal handler, there may be no task or thread to repeat it later. A
        gate's step that failed may be repeated by the holder: its segment is only freed if the grant `is_over`.
        """
        is_struck = not isinstance(failure, SegmentedError | GeneratorExit)
        if isinstance(failure, AlreadySettled | GrantSuperseded):
            self._is_settled = True
        if self._decided_by is not None:
            if is_struck and is_sold is not None and not self._is_settled:
                clear_frames(failure.__traceback__)  # a cursor in one of them would keep SQLite's write lock
                with suppress(Exception):
                    self._ended(is_sold=is_sold)
                    self._is_settled = True
            if not is_over:
                return
            is_sold = None
        owed = self._owe(failure, self._ending(is_sold=is_sold))
        if owed is None:
            return
        try:
            if is_struck:
                run_sync(tend_plan([owed]), self.pool.store)
        finally:
            if not owed.is_over:
                thread_keeper(self.pool.store).watch(owed, self.pool.store)

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
        try:
            if self._is_settled:
                return
            is_sold = self._is_sold(error)
            if is_sold is None:
                run_sync(leave_plan(self.pool.sku, self.order_id, self.holder_id), self.pool.store)
                self._is_settled = True
            elif is_sold:
                self.confirm()
            else:
                self.cancel()
        except SegmentedError as failure:
            self._free()
            if error is None and isinstance(failure, AlreadySettled):
                raise GrantLost(self.order_id, failure.state) from failure
            if error is None:
                raise
            error.add_note(f"and the order could not be cancelled: {failure}")
        except BaseException as failure:  # of a gate's database, or of a signal handler at any point
            self._end_later(failure, is_sold=self._is_sold(error), is_over=True)
            raise

    def _free(self) -> None:
        """Free the segment of an order that its database has still to decide: a repeat continues with the units."""
        if self._decided_by is not None:
            run_sync(leave_plan(self.pool.sku, self.order_id, self.holder_id), self.pool.store)
