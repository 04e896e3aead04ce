"""The pool for threads."""

from __future__ import annotations

from contextlib import suppress
from copy import copy
from dataclasses import replace
from functools import partial as bind
from traceback import clear_frames
from typing import TYPE_CHECKING, Self, TypeVar

from segmented import protocol as op
from segmented.errors import (
    AlreadySettled,
    GrantLost,
    GrantSuperseded,
    InvalidInput,
    PoolGated,
    PoolNotGated,
    SegmentedError,
)
from segmented.locks.durations import DEFAULT_TIMEOUT, checked_timeout
from segmented.locks.hints import POOL_HINTS, hinted_options
from segmented.locks.keeper import release_later, thread_keeper
from segmented.locks.lease_state import tend_plan
from segmented.models import Granted, Order, Settled
from segmented.plans import perform, run_sync
from segmented.plans.store_kinds import checked_gate
from segmented.stock.as_asked import all_as_asked, as_cancelled, as_confirmed
from segmented.stock.grant import GrantState, KeepOn, unanswered_claim
from segmented.stock.order_handle import OrderHandle
from segmented.stock.outbox import UNASKED, Noted, Outbox, submit_plan, to_publish
from segmented.stock.plans import (
    due_plan,
    expire_plan,
    leave_plan,
    one_plan,
    renew_plan,
    resolve_plan,
    settle_many_plan,
    unheard_plan,
)
from segmented.stock.pool_changes import PoolChanges
from segmented.stock.settings import DEFAULT_HOLD, DEFAULT_TTL, RESOLVED, as_order, checked_verdicts
from segmented.stock.sold_out_mark import grant_marked, reserve_many_marked, reserve_marked, returning

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType

    from segmented.clock import Duration
    from segmented.models import OrderRecord, Refusal, Taken
    from segmented.models.submitted import Accepted
    from segmented.plans import Plan
    from segmented.plans.drivers import Store
    from segmented.stock.plans import Verdict
    from segmented.stock.pool_gate import PoolGate

AnswerT = TypeVar("AnswerT")


@hinted_options(POOL_HINTS, waits="pool.grant")
class Pool(PoolChanges):
    """The stock of one sku, split over segments with one lock each.

    Never oversells, and never reports sold out while enough units are free. The segment locks bound how many holders
    work concurrently and protect an outside resource. Lock and units are taken in one atomic step, so a lost lock never
    sells a unit twice.
    """

    def __init__(
        self,
        store: Store,
        sku: str,
        *,
        ttl: Duration = DEFAULT_TTL,
        hold: Duration = DEFAULT_HOLD,
        sold_out_mark: Duration = 0.0,
        outbox: Outbox | None = None,
        gate: PoolGate[Pool, Grant] | None = None,
    ) -> None:
        """Sell `sku` from `store`. A segment's lease lives `ttl` seconds, units stay reserved for `hold` seconds.

        `sold_out_mark` saves round trips: for that many seconds after a refusal, this process refuses every new order
        that wants more than was free then (0.1 is a good value; 0, the default, turns it off). Use it only in the
        process that creates the order ids. If another process may have placed the order before, leave it off: a repeat
        would be refused although the order has its units. `outbox` says how orders are submitted to workers. With
        a `gate`, its order database has the final say: every call below asks it first, or tells it, as it needs.
        """
        super().__init__(store, sku, ttl=ttl, hold=hold, sold_out_mark=sold_out_mark)
        self.outbox = outbox or UNASKED
        self._noted = Noted(store.clock)
        if gate is not None:
            self._plain, self.gate = copy(self), checked_gate(gate, "Pool", is_async=False)
            self._decision = bind(self.gate.decision_on, self._plain)

    def grant(  # noqa: PLR0913  # options of one call, each by name
        self,
        order: Order | str,
        *,
        quantity: int = 1,
        customer_id: str | None = None,
        timeout: Duration | None = DEFAULT_TIMEOUT,
        holder_id: str | None = None,
        keep_refusal: bool = False,
        partial: bool = False,
        fair: bool = False,
        keep_on: KeepOn = (),
    ) -> Grant | Refusal:
        """Take units and a free segment's lock, waiting up to `timeout` seconds (default: 60; None: forever) for it.

        In a `with` statement the order is confirmed at the end of the body, or cancelled if the body raises; a refusal
        raises NotGranted there. Pass the same `holder_id` again to repeat a call. `keep_refusal` stores a sold-out
        answer as the order's final state. `partial` accepts fewer units if fewer are left. `fair` serves callers in
        order of arrival across processes, at the cost of two more round trips. `keep_on` has the errors after which it
        is unknown whether the customer has paid, such as (PaymentTimeout,): if the body raises one, the segment is
        freed, and the units stay reserved until the hold ends or the order is confirmed or cancelled. Raises
        OrderMismatch when the id exists with other content. With a gate, an order that its database has decided gets
        that answer and no units.
        """
        operation = self._settings.grant(
            order,
            quantity,
            customer_id,
            holder_id=holder_id,
            keep_refusal=keep_refusal,
            partial=partial,
            fair=fair,
            keep_on=keep_on,
        )
        seconds = checked_timeout(timeout)
        plan = bind(grant_marked, self._mark, operation, seconds, fair=fair)
        return self._granted(operation, plan, keep_on)

    def _granted(
        self,
        operation: op.Grant,
        plan: Callable[[], Plan[tuple[Granted | Refusal, float]]],
        keep_on: KeepOn,
    ) -> Grant | Refusal:
        order, made = operation.order, list[Grant]()

        def ask() -> Grant | Refusal:
            answer, asked_at = run_sync(plan(), self.store)
            if not isinstance(answer, Granted):
                return answer
            made.append(Grant(self, answer, asked_at, self._settings.ttl_ms, self._settings.hold_ms, keep_on))
            return made[-1]

        try:
            if self.gate is None:
                return ask()
            asked = order.quantity if operation.partial else None
            answer = self.gate.grant_order(self.plain, order, ask, asked=asked)
        except BaseException as error:
            operation = replace(operation, sku=self.sku)  # of a pool in shards, this is one of them
            if claim := unanswered_claim(operation, error):
                release_later(claim, self.store)
                raise
            replays = [grant.handed_on().replay for grant in made]
            run_sync(unheard_plan(operation, error, replays, is_gated=self.gate is not None), self.store)
            raise
        return answer.decided_by(self.gate, order) if isinstance(answer, Grant) else answer

    def _verified(self, plan: Callable[[], Plan[AnswerT]]) -> AnswerT:
        if self.gate is None:
            return run_sync(plan(), self.store)
        return self.gate.verified(self.plain, lambda: run_sync(plan(), self.store))

    def reserve(
        self, order: Order | str, *, quantity: int = 1, customer_id: str | None = None, partial: bool = False
    ) -> Taken:
        """Reserve units for the pool's hold time, without a lock; with `partial`, fewer units if fewer are left."""
        operation = self._settings.reserve(order, quantity, customer_id, partial=partial)
        (answer,) = self._taken(
            (operation.order,), lambda _: one_plan(reserve_marked(self._mark, operation)), partial=partial
        )
        if isinstance(answer, SegmentedError):
            raise answer
        return answer

    def reserve_many(self, orders: Iterable[Order], *, partial: bool = False) -> list[Taken | SegmentedError]:
        """Reserve for many orders, up to 1,000 in a round trip, each as if alone and in this order.

        Returns one answer for each order, in their order; a failure that `reserve` would have raised takes its answer's
        place. An id that occurs twice is a repeat. If a later round trip fails, the earlier ones stand: call again with
        the same ids.
        """
        operation = self._settings.reserve_many(orders, partial=partial)

        def plan(left: tuple[Order, ...]) -> Plan[list[Taken | SegmentedError]]:
            return reserve_many_marked(self._mark, replace(operation, orders=left))

        return [*self._taken(operation.orders, plan, partial=partial)]

    def submit(self, order: Order | str, *, quantity: int = 1, customer_id: str | None = None) -> OrderHandle:
        """Accept an order and queue it for a worker: one round trip, then a message in the background.

        The handle reports the order's outcome. The pool's `outbox` says whether units are taken now or by the worker;
        an immediate refusal is an outcome too. Safe to repeat. Raises OrderMismatch for an id with other content.
        """
        (answer,) = self.submit_many((as_order(order, quantity, customer_id),))
        if isinstance(answer, SegmentedError):
            raise answer
        return answer

    def submit_many(self, orders: Iterable[Order]) -> list[OrderHandle | SegmentedError]:
        """Submit many orders, up to 1,000 in a round trip; returns a handle, or the failure of `submit`, for each."""
        operation = self._settings.submit_many(orders, self.outbox)

        def plan(left: tuple[Order, ...]) -> Plan[list[Accepted | SegmentedError]]:
            return submit_plan(self._mark, self.outbox, replace(operation, orders=left), noted=self._noted)

        answers = self._taken(operation.orders, plan, partial=False)
        if self.outbox.publisher is not None:
            for segment, waiting in to_publish(answers).items():
                self.outbox.publisher.put(self.sku, waiting, segment)
        return [
            answer
            if isinstance(answer, SegmentedError)
            else OrderHandle(self.store, self.sku, order.order_id, answer, decision=self._decision)
            for order, answer in zip(operation.orders, answers, strict=True)
        ]

    def confirm(self, order_id: str, *, holder_id: str | None = None) -> Settled:
        """Make the order final; a repeat changes nothing, and its answer has `replay=True`.

        Raises AlreadySettled for an order that ended otherwise, with its state, and OrderUnknown. With a holder id only
        that holder's segment is freed, not that of a successor in the same order. With a `gate`, its order database
        stores the order first; a gated pool without its gate raises PoolGated.
        """
        if self.gate is not None:
            return as_confirmed(self.gate.confirm_order(self.plain, order_id, holder_id))
        return as_confirmed(self.store.execute(self._settings.confirm(order_id, holder_id=holder_id)))

    def cancel(self, order_id: str, *, holder_id: str | None = None) -> Settled:
        """Give the units back. If they are back already, the answer has `replay=True` and the state of the order.

        Raises AlreadySettled for a confirmed order, and OrderUnknown; with a holder id GrantSuperseded if another
        holder has the order now.
        With a `gate`, its order database voids the order first; a gated pool without its gate raises PoolGated.
        """
        if self.gate is not None:
            return as_cancelled(self.gate.cancel_order(self.plain, order_id, holder_id))
        operation = self._settings.cancel(order_id, holder_id=holder_id)
        return as_cancelled(run_sync(returning(self._mark, perform(operation)), self.store))

    def confirm_many(self, order_ids: Iterable[str]) -> list[Settled | SegmentedError]:
        """Confirm many orders, up to 1,000 in a round trip; returns one answer each, or the failure of `confirm`."""
        if self.gate is not None:
            return all_as_asked(as_confirmed, self.gate.confirm_orders(self.plain, order_ids))
        operation = self._settings.settle_many("confirmed", order_ids)
        return all_as_asked(as_confirmed, run_sync(settle_many_plan(operation), self.store))

    def cancel_many(self, order_ids: Iterable[str]) -> list[Settled | SegmentedError]:
        """Cancel many orders, up to 1,000 in a round trip; returns one answer each, or the failure of `cancel`."""
        if self.gate is not None:
            return all_as_asked(as_cancelled, self.gate.cancel_orders(self.plain, order_ids))
        operation = self._settings.settle_many("cancelled", order_ids)
        plan = returning(self._mark, settle_many_plan(operation))
        return all_as_asked(as_cancelled, run_sync(plan, self.store))

    def expire(
        self, *, limit: int = 1_000, resolver: Callable[[OrderRecord], Verdict] | None = None
    ) -> tuple[Settled, ...]:
        """Give back the units of expired holds, up to `limit` orders, 100 in a step. Returns what this call decided.

        A gated pool expires nothing on its own (raises PoolGated): ask its order database (`expire_voided`). If another
        authority decides its orders, pass a `resolver`, which gets each expired order, at most 5,000, and returns
        "confirm", "release" or "wait".
        """
        limit = self._settings.expire_limit(limit)
        if self.gate is not None:
            if resolver is not None:
                raise InvalidInput(RESOLVED)
            return self.gate.expire_orders(self.plain, limit)
        if resolver is None:
            return run_sync(returning(self._mark, expire_plan(self.sku, limit)), self.store)
        state = self.state()
        if not state.gated:
            raise PoolNotGated(self.sku)
        if state.sale_id:  # an order database decides, and no resolver
            raise PoolGated(self.sku, None)
        records = run_sync(due_plan(self.sku, limit), self.store)
        verdicts = {record.order_id: resolver(record) for record in records}
        return run_sync(returning(self._mark, resolve_plan(self.sku, checked_verdicts(verdicts))), self.store)

    def renew(self, grant: GrantState) -> None:
        """Extend a grant's lease and hold. Raises LeaseLost when it is too late."""
        operation = op.RenewGrant(
            self.sku, grant.order_id, grant.answer.holder_id, self._settings.ttl_ms, self._settings.hold_ms
        )
        grant._note_renewal(*self._verified(lambda: renew_plan(operation)))  # noqa: SLF001  # two halves of one object
        grant.require()

    def __repr__(self) -> str:
        """Show the sku and the store."""
        gate = "" if self.gate is None else f", gate={self.gate!r}"
        return f"Pool({self.sku!r}, {self.store!r}{gate})"


class Grant(GrantState):
    """A granted order, for threads."""

    pool: Pool
    _decided_by: tuple[PoolGate[Pool, Grant], Order] | None

    def decided_by(self, gate: PoolGate[Pool, Grant], order: Order) -> Self:
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
            return end(self.order_id, holder_id=self.answer.holder_id)
        gate, order = self._decided_by
        if is_sold:
            return as_confirmed(gate.confirm_grant(self, order))
        return as_cancelled(gate.cancel_order(self.pool, self.order_id, self.holder_id))

    def _end_later(self, failure: BaseException, *, is_sold: bool | None, is_over: bool = False) -> None:
        """End what `failure` has kept from ending: at once after an exception of a signal handler, else by the keeper.

        The program may be about to exit, and then no thread of it would repeat anything. A gate's database may fail in
        ways of its own, after which the holder may repeat it: the segment is only freed if the grant `is_over`.
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
