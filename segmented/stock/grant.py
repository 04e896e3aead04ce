"""A granted order: units, and the lock of a segment."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from functools import partial as bind
from traceback import clear_frames
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, NoReturn, Self, TypeVar

from segmented import events, protocol as op
from segmented.errors import (
    AlreadySettled,
    GrantLost,
    GrantSuperseded,
    InvalidInput,
    LeaseLost,
    NotGranted,
    PoolGated,
    SegmentedError,
    StoreBusy,
    StoreUnavailable,
)
from segmented.locks.claim import LeaseClaim
from segmented.locks.keeper import WarnsWhenDropped, async_keeper, thread_keeper
from segmented.locks.lease_state import LeaseState, tend_plan, trusted_until
from segmented.models import Acquired, Granted, Lost, Refusal, Renewed
from segmented.models.ids import plural
from segmented.models.orders import as_cancelled, as_confirmed
from segmented.plans import run_async, run_sync
from segmented.plans.tasks import to_the_end
from segmented.process import THIS
from segmented.stock.plans import leave_plan

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator
    from types import TracebackType

    from segmented.clock import Clock
    from segmented.models import Order, Settled
    from segmented.stock.no_gate import AsyncPoolGate, PoolGate
    from segmented.stock.settings import KeepOn


GrantT = TypeVar("GrantT", bound=AbstractAsyncContextManager[Any])


@dataclass(frozen=True, slots=True)
class EndClaim(LeaseClaim):
    """The end of a grant that the server still owes an answer to, for a keeper that repeats it until the hold ends."""

    kind: ClassVar[str] = "segment"
    ending: op.Operation[Any]

    def renewing(self, ttl_ms: int) -> NoReturn:
        """Raise: a grant is renewed together with the hold of its units."""
        raise NotImplementedError

    def releasing(self) -> op.Operation[Any]:
        """Return the operation that ends the grant."""
        return self.ending


class GrantState(WarnsWhenDropped):
    """A reservation together with its segment's lease. Losing the lease returns no units.

    A grant that is dropped before it is confirmed or cancelled gives a ResourceWarning: its segment stays locked until
    the lease ends, and its units stay reserved until the hold ends. It gives none once the program has read
    `holder_id`, with which the order can be confirmed elsewhere.
    """

    _is_settled = True
    """Whether it was confirmed, cancelled or kept; until it is complete, there is nothing to end."""

    def __init__(
        self,
        pool: Any,  # noqa: ANN401  # sync or async, as the class says
        granted: Granted,
        asked_at: float,
        ttl_ms: int,
        hold_ms: int,
        keep_on: KeepOn = (),
    ) -> None:
        """Create a grant of `pool`, requested at local time `asked_at`: its lease lives `ttl_ms`, its hold `hold_ms`.

        The lease is trusted a little shorter than that. If the body of the `with` statement raises an error in
        `keep_on`, its outcome is unknown: the units stay.
        """
        self.pool = pool
        """The pool, or the shard, that owns the segment and the units."""
        self._decided_by: Any = None
        """The gate whose order database decides the order, with the order, if there is one."""
        self.keep_on = keep_on
        self.answer = granted
        self.order_id = granted.order_id
        self.quantity = granted.quantity
        self.segment = granted.segment
        self.fencing_token = granted.fencing_token
        self.epoch = granted.epoch
        self.replay = granted.replay
        self.trusted_until = trusted_until(asked_at, ttl_ms)
        self._hold_ms = hold_ms
        self._process_id = THIS.process_id
        self._clock: Clock = pool.store.clock
        self._is_handed_on = False
        self._owed: LeaseState | None = None
        """The end that a keeper repeats."""
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

    def _is_sold(self, error: BaseException | None) -> bool | None:
        """Return whether a block that ended with `error` has sold the order; None if that is unknown."""
        return None if isinstance(error, self.keep_on) else error is None

    def _ending(self, *, is_sold: bool | None) -> op.Operation[Any]:
        """Return the operation that ends the grant; with None, one that frees its segment and leaves the order open."""
        order = self.pool.sku, self.order_id, self.answer.holder_id
        if is_sold is None:
            return op.ReleaseGrant(*order)
        return op.Confirm(*order) if is_sold else op.Cancel(*order)

    def _owe(self, failure: BaseException, ending: op.Operation[Any]) -> LeaseState | None:
        """Note an end that failed; return what a keeper is to repeat, unless the store has refused it.

        The body has run: a customer may have paid. So the end is repeated until the hold ends, as a release is.
        """
        if self._is_settled or self._owed is not None or isinstance(failure, GeneratorExit):
            return None
        if isinstance(failure, SegmentedError) and not isinstance(failure, StoreUnavailable):
            return None
        claim = EndClaim(f"segment {self.segment}", self.holder_id, self._hold_ms, ending)
        acquired = Acquired(self.fencing_token, self._hold_ms, replay=False)
        self._owed = LeaseState(claim, acquired, self._clock.now(), self._clock)
        self._owed.owe_release(at_once=not isinstance(failure, SegmentedError))
        return self._owed

    def _withdraw(self) -> None:
        """Stop the keeper from repeating an earlier end: the caller asks for one again."""
        if self._owed is not None:
            self._owed.has_ended = True
            self._owed = None

    def _begin_body(self) -> None:
        """Raise InvalidInput if the grant has ended: one grant runs one body."""
        if self._is_settled:
            message = f"the grant of order {self.order_id!r} has ended: ask for the order again, and use the new answer"
            raise InvalidInput(message)

    def _note_dropped(self) -> str | None:
        if not self.is_trusted or self._is_handed_on or THIS.process_id != self._process_id:
            return None
        stay = plural(self.quantity, "unit", "stays")
        return (
            f"grant of order {self.order_id!r} was dropped: its {self.quantity} {stay} "
            "reserved until its hold ends; confirm or cancel it, or use it in a with statement"
        )

    def note_renewal(self, answer: Renewed | Lost, asked_at: float) -> None:
        """Trust the lease as long as a renewal, requested at local time `asked_at`, says."""
        if isinstance(answer, Lost):
            events.count("segmented.lease.losses", 1, ("segment",))
            self.trusted_until = asked_at
        else:
            self.trusted_until = trusted_until(asked_at, answer.ttl_ms)

    def __repr__(self) -> str:
        units = f"{self.quantity} {plural(self.quantity, 'unit')}, segment {self.segment}"
        return f"<{type(self).__name__} order {self.order_id!r}: {units}, token {self.fencing_token}>"


def unanswered_claim(operation: op.Grant, error: BaseException) -> EndClaim | None:
    """Return the claim to the segment that a grant which ended by `error` may have taken, for the keeper that frees it.

    None if it took none, or if the caller chose the holder id: a repeat may continue with the lease already.
    """
    if operation.repeatable or not isinstance(error, StoreUnavailable) or isinstance(error, StoreBusy):
        return None
    name, order_id = f"a segment of {operation.sku}", operation.order.order_id
    ending = op.ReleaseGrant(operation.sku, order_id, operation.holder_id)
    return EndClaim(name, operation.holder_id, operation.ttl_ms, ending)


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
