# Written by `make sync` from async_pool.py: change that module.
"""The pool for threads."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from functools import partial as bind
from typing import TYPE_CHECKING, Self, cast, overload

from segmented import protocol as op
from segmented.errors import ChangeGated, SegmentedError, StoreUnavailable
from segmented.locks.durations import DEFAULT_TIMEOUT, checked_timeout
from segmented.locks.hints import hinted
from segmented.locks.keeper import release_later
from segmented.models import Assignment, Granted, Order, Settled, checked_id
from segmented.models.orders import all_as_asked, as_cancelled, as_confirmed, as_reserved, as_returned
from segmented.plans import Plan, run_sync
from segmented.plans.store_kinds import checked_gate, checked_sync
from segmented.stock.audit import AuditReport, audit_plan
from segmented.stock.grant import Grant, GrantState, unanswered_claim
from segmented.stock.ledger import first_page_plan, next_page, trim_plan
from segmented.stock.no_gate import NoGate
from segmented.stock.order_handle import OrderHandle
from segmented.stock.outbox import UNASKED, Noted, Outbox, submit_plan, to_publish
from segmented.stock.plans import (
    available_plan,
    checked_state,
    chosen,
    door_of,
    ids_plan,
    reads,
    renew_plan,
    unheard_plan,
)
from segmented.stock.repair import RepairReport, repair_plan
from segmented.stock.settings import (
    DEFAULT_HOLD,
    DEFAULT_TTL,
    KeepOn,
    Opening,
    PoolSettings,
    as_order,
    checked_epoch,
    checked_expire_limit,
    checked_flag,
    opened_as_asked,
)
from segmented.stock.sold_out_mark import SoldOutMark, grant_marked, reserve_many_marked
from segmented.stock.thawing import thaw_plan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from segmented.clock import Duration
    from segmented.models.orders import Closed, OrderRecord, OrderState, Refusal, Reserved, Returned, Sold, Taken
    from segmented.models.pools import (
        AlreadyOpen,
        Assigned,
        LedgerEntry,
        Opened,
        PoolClosed,
        PoolState,
        Resized,
        Restocked,
        Thawed,
        TooFew,
        Trimmed,
    )
    from segmented.models.submitted import Accepted
    from segmented.plans.drivers import Store
    from segmented.stock.no_gate import PoolGate


@hinted
class Pool:
    """The stock of one sku, split over segments with one lock each.

    Never oversells, and never reports sold out while enough units are free. The segment locks bound how many holders
    work concurrently and protect an outside resource. Lock and units are taken in one atomic step, so a lost lock never
    sells a unit twice.
    """

    _decides: NoGate
    """Answers each call that decides an order or changes the stock: the gate, or what the pool does without one."""

    def __init__(
        self,
        store: Store,
        sku: str,
        *,
        ttl: Duration = DEFAULT_TTL,
        hold: Duration = DEFAULT_HOLD,
        sold_out_mark: Duration = 0.0,
        outbox: Outbox | None = None,
        gate: PoolGate | None = None,
    ) -> None:
        """Sell `sku` from `store`. A segment's lease lives `ttl` seconds, units stay reserved for `hold` seconds.

        `sold_out_mark` saves round trips: for that many seconds after a refusal, this process refuses every new order
        that wants more than was free then (0.1 is a good value; 0, the default, turns it off). Use it only in the
        process that creates the order ids. If another process may have placed the order before, leave it off: a repeat
        would be refused although the order has its units. `outbox` says how orders are submitted to workers. With
        a `gate`, an order is sold only once the order database has stored it; the calls below ask the database first.

        With asyncio, concurrent `reserve`, `confirm` and `cancel` calls without holder id are sent in batches; an idle
        pool sends a call at once. It serves one event loop, and another once the first is closed, if the store allows.
        """
        self.store = checked_sync(store, "Pool")
        settings = PoolSettings(sku, ttl=ttl, hold=hold)
        self.sku = settings.sku
        self.outbox = outbox or UNASKED
        self._noted = Noted(store.clock)
        self._found: PoolState | None = None
        self.gate: PoolGate | None = None
        """The gate, whose order database decides the pool's orders; None: the pool decides them itself."""
        self._decision: Callable[[str], Settled | None] | None = None  # the gate's, on unknown orders
        self.share(settings, SoldOutMark(sold_out_mark, store.clock, settings.sku))
        self._plain: Pool | None = None
        if gate is not None:
            self._plain = copy(self)
            self.gate = checked_gate(gate, "Pool", is_async=False)
            self._decides = cast("NoGate", gate)  # it has the same methods
            self._decision = bind(self.gate.decision_on, self.plain)

    def share(self, settings: PoolSettings, mark: SoldOutMark) -> Self:
        """Use the settings and the sold-out mark of another object for the same pool; returns this one."""
        self._settings, self._mark = settings, mark
        self._decides = self._own = NoGate(self.store, settings, mark, self._noted)
        return self

    @property
    def plain(self) -> Self:
        """The pool on which the steps of its gate work."""
        return self if self._plain is None else cast("Self", self._plain)

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

        In a `with` statement the order is confirmed at the end of the body, or cancelled if the body raises; a
        refusal raises NotGranted there. Pass the same `holder_id` again to repeat a call. `keep_refusal` stores a
        sold-out answer as the order's final state. `partial` accepts fewer units if fewer are left. `fair` serves
        callers in order of arrival across processes, at the cost of two more round trips. `keep_on` has the errors
        after which it is unknown whether the customer has paid, such as (PaymentTimeout,): if the body raises one, the
        segment is freed, and the units stay reserved until the hold ends or the order is confirmed or cancelled. Raises
        OrderMismatch when the id exists with other content. With a gate, an order that its database has decided gets
        that answer and no units.
        """
        operation = self._settings.grant(
            as_order(order, quantity, customer_id),
            holder_id=holder_id,
            keep_refusal=keep_refusal,
            partial=partial,
            fair=fair,
            keep_on=keep_on,
        )
        seconds = checked_timeout(timeout)
        plan = bind(grant_marked, self._mark, operation, seconds, fair=fair)
        return self.grant_by(operation, plan, keep_on, timeout=seconds, fair=fair)

    def grant_by(
        self,
        operation: op.Grant,
        plan: Callable[[], Plan[tuple[Granted | Refusal, float]]],
        keep_on: KeepOn,
        *,
        timeout: float | None,
        fair: bool,
    ) -> Grant | Refusal:
        """Grant an order by the given plan; a pool in shards asks one of its shards so."""
        order, made = operation.order, list[Grant]()

        def ask() -> Grant | Refusal:
            self._note_hold(operation.hold_ms)
            answer, asked_at = run_sync(plan(), self.store)
            if not isinstance(answer, Granted):
                return answer
            made.append(Grant(self, answer, asked_at, self._settings.ttl_ms, self._settings.hold_ms, keep_on))
            return made[-1]

        asked = order.quantity if operation.partial else None
        try:
            answer = self._decides.grant_order(self.plain, order, ask, asked=asked, timeout=timeout)
        except BaseException as error:
            operation = replace(operation, sku=self.sku)  # of a pool in shards, this is one of them
            if fair and isinstance(error, StoreUnavailable):
                release_later(door_of(operation, timeout), self.store)
            if claim := unanswered_claim(operation, error):
                release_later(claim, self.store)
                raise
            replays = [grant.handed_on().replay for grant in made]
            run_sync(unheard_plan(operation, error, replays, is_gated=self.gate is not None), self.store)
            raise
        return answer.decided_by(self.gate, order) if isinstance(answer, Grant) and self.gate is not None else answer

    def reserve(
        self,
        order: Order | str,
        *,
        quantity: int = 1,
        customer_id: str | None = None,
        partial: bool = False,
        hold: Duration | None = None,
    ) -> Taken:
        """Reserve units for `hold` seconds, without a lock; with `partial`, fewer units if fewer are left.

        Without `hold`, they stay reserved for the pool's hold time.

        If an asyncio call is cancelled, the pool tries for a short time in the background to cancel its order; the
        order id can be used again then. The order is kept if another call for it is under way in this pool or was
        granted it. The pool does not see a repeat that another process makes in that short time.
        """
        found, hold_ms = as_order(order, quantity, customer_id), self._settings.hold_of(hold)
        checked_flag(partial, "partial")
        if self.gate is None:  # the call that is made most: each coroutine and each value on its way costs
            return self._own.reserve(found, hold_ms, partial=partial)

        def ask(_: tuple[Order, ...]) -> list[Taken]:
            return [self._own.reserve(found, hold_ms, partial=partial)]

        (answer,) = self._decides.take_orders(self.plain, (found,), ask, partial=partial)
        if isinstance(answer, SegmentedError):
            raise answer
        return answer

    def reserve_many(self, orders: Iterable[Order], *, partial: bool = False) -> list[Taken | SegmentedError]:
        """Reserve for many orders, up to 1,000 in a round trip, each as if alone and in this order.

        Returns one answer for each order, in their order; a failure that `reserve` would have raised takes its answer's
        place. An id that occurs twice is a repeat. If a later round trip fails, the earlier ones stand: call again with
        the same ids. The units of a call that is cancelled stay reserved until their hold ends, or for such a repeat.
        """
        operation = self._settings.reserve_many(orders, partial=partial)

        def ask(left: tuple[Order, ...]) -> list[Taken | SegmentedError]:
            self._note_hold(operation.hold_ms)
            return run_sync(reserve_many_marked(self._mark, replace(operation, orders=left)), self.store)

        return [*self._decides.take_orders(self.plain, operation.orders, ask, partial=partial)]

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

        def ask(left: tuple[Order, ...]) -> list[Accepted | SegmentedError]:
            plan = submit_plan(self._mark, self.outbox, replace(operation, orders=left), noted=self._noted)
            return run_sync(plan, self.store)

        answers = self._decides.take_orders(self.plain, operation.orders, ask, partial=False)
        if self.outbox.publisher is not None:
            for segment, waiting in to_publish(answers).items():
                self.outbox.publisher.put(self.sku, waiting, segment)
        return [
            answer if isinstance(answer, SegmentedError) else self.handle(order.order_id, accepted=answer)
            for order, answer in zip(operation.orders, answers, strict=True)
        ]

    @overload
    def confirm(self, order_id: str, *, holder_id: str | None = None, within: None = None) -> Settled: ...

    @overload
    def confirm(self, order_id: str, *, within: object) -> Sold[Settled | None]: ...

    def confirm(
        self, order_id: str, *, holder_id: str | None = None, within: object = None
    ) -> Settled | Sold[Settled | None]:
        """Make the order final and free the segment. With a gate, its order database stores the order first.

        A repeat is a replay, with the units that the order has then: fewer after a return of some.
        Raises AlreadySettled if the order has ended otherwise, for example because its hold ended. An asyncio call that
        is cancelled is still done; without a holder id, or with a gate, it is also repeated in the background while a
        server does not answer.

        `within` is your own transaction on the gate's database: a Session or Connection of SQLAlchemy, the connection
        of Django or psycopg; with asyncio an Session or Connection, or psycopg's Connection. The order
        is stored when it commits, together with your rows, and the answer is a value for an order in every state: true
        if it is sold, with `state`, `replay`, and `tell` to tell the pool after the commit. One that is false is final,
        also for an order that nobody has reserved: refund it. Raises OrderQueued while a worker has yet to decide it.
        """
        if within is not None:
            return self._decides.confirm_within(self.plain, order_id, within)
        return as_confirmed(self._decides.confirm_order(self.plain, order_id, holder_id))

    def cancel(self, order_id: str, *, holder_id: str | None = None) -> Settled:
        """Give the units back and free the segment.

        Raises GrantSuperseded if another holder has taken over the order, and AlreadySettled if it is confirmed.
        """
        return as_cancelled(self._decides.cancel_order(self.plain, order_id, holder_id))

    def extend(self, order_id: str, *, seconds: Duration) -> Reserved:
        """Let an order's hold end `seconds` from now, or later: a hold is never shortened. Safe to repeat.

        Any process may call it, with the id alone. Raises AlreadySettled for an order that has ended, also because its
        hold ended before this call, whose units are back then; OrderUnknown; and OrderQueued for an order that waits
        for a worker, and has no hold.
        """
        operation = self._settings.extend(order_id, seconds)
        return as_reserved(self._decides.extend_order(self.plain, operation), "its hold is not lengthened")

    def change(self, order_id: str, *, quantity: int) -> Reserved:
        """Let a reserved order keep `quantity` units: the others are free at once. Safe to repeat.

        A limit per customer counts what the order keeps. Raises InvalidInput if the order has fewer units already,
        AlreadySettled if it has ended, OrderUnknown, and OrderInWork while a worker, a holder or a cart has it.
        """
        operation = self._settings.change(order_id, quantity)
        return as_reserved(self._decides.change_order(self.plain, operation), "its quantity is not changed")

    def return_units(self, order_id: str, units: int, *, return_id: str) -> Returned:
        """Give back units of a sold order, once for each return id: they are free again, and its customer's limit too.

        An order that has no units left is "returned". With a gate, its order database stores the return first. Raises
        InvalidInput for more units than the order has, or an order that is not sold yet, AlreadySettled for one that
        is not sold any more, ChangeMismatch if the id belongs to another return or restock, OrderUnknown, and
        OrderInWork for a line of a cart; with a gate, until the pool knows that it is sold.
        """
        operation = self._settings.return_units(order_id, units, return_id)
        if self.gate is not None:  # should this process die, workers finish the return
            self._note_hold(op.SOON_MS)
        return as_returned(self._decides.return_order(self.plain, operation), order_id)

    def confirm_many(self, order_ids: Iterable[str]) -> list[Settled | SegmentedError]:
        """Confirm many orders, up to 1,000 in a round trip; returns one answer each, or the failure of `confirm`."""
        return all_as_asked(as_confirmed, self._decides.confirm_orders(self.plain, order_ids))

    def cancel_many(self, order_ids: Iterable[str]) -> list[Settled | SegmentedError]:
        """Cancel many orders, up to 1,000 in a round trip; returns one answer each, or the failure of `cancel`."""
        return all_as_asked(as_cancelled, self._decides.cancel_orders(self.plain, order_ids))

    def expire(self, *, limit: int = 1_000) -> tuple[Settled, ...]:
        """Give back the units of expired holds, up to `limit` orders, 100 in a step. Returns what this call decided.

        A gated pool expires nothing on its own (raises PoolGated): ask it with a `gate`.
        """
        return self._decides.expire_orders(self.plain, checked_expire_limit(self.sku, limit))

    def renew(self, grant: GrantState) -> None:
        """Extend the lease and the hold. Raises LeaseLost when it is too late."""
        operation = op.RenewGrant(
            self.sku, grant.order_id, grant.answer.holder_id, self._settings.ttl_ms, self._settings.hold_ms
        )
        renewed = self._decides.verified(self.plain, lambda: run_sync(renew_plan(operation), self.store))
        grant.note_renewal(*renewed)
        grant.require()

    def __repr__(self) -> str:
        gate = "" if self.gate is None else f", gate={self.gate!r}"
        return f"Pool({self.sku!r}, {self.store!r}{gate})"

    def _note_hold(self, hold_ms: int) -> None:
        """Register a hold that is about to begin with the workers, who give its units back."""
        if not self._noted.covers(hold_ms):
            run_sync(self._noted.hold_plan(self.sku, hold_ms), self.store)

    def _require_gate(self, change: str) -> None:
        """Raise ChangeGated for a change of a gated pool that its gate does not make."""
        if self.gate is None and self.state().gated:
            raise ChangeGated(self.sku, change)

    def open(
        self,
        *,
        stock: int,
        segments: int,
        gated: bool = False,
        epoch: int = 1,
        limit_per_customer: int | None = None,
        profile: str | None = None,
        queue: str | None = None,
        step: str | None = None,
    ) -> Opened | AlreadyOpen:
        """Open the pool; opening it again with the same numbers changes nothing and returns the existing pool.

        Raises PoolDiffers if the pool was opened with another stock, number of segments or setting, or is closed. With
        `gated`, an outside authority such as an order database decides every order, so nothing expires before it has
        been asked. With `limit_per_customer` every order names its customer, who gets at most that many units.
        `profile` says when a change is acknowledged: "memory" (default), "replicated:N", "fsync", or "database"
        (default with `gated`). Raises InvalidInput if the server cannot keep to it. A pool with a `gate` is always
        gated: its rows are stored first. Raises ChangeGated for a gated pool without `gated` or a `gate`.

        `queue` and `step` (as `module:function`) name the workers that take submitted orders: those of that queue that
        have that step, and no others. Without them any worker does. `assign` changes them.
        """
        opening = Opening(
            stock=stock,
            segments=segments,
            gated=gated if self.gate is None else True,
            epoch=epoch,
            limit_per_customer=limit_per_customer,
            profile=profile,
            queue=queue,
            step=step,
        )
        wanted = self._settings.open(opening)
        return opened_as_asked(self._decides.open_pool(self.plain, opening), wanted, opening)

    def restock(self, units: int, *, restock_id: str) -> Restocked | Closed:
        """Add units during the sale, once for each id. Raises ChangeMismatch if the id belongs to another change.

        Raises ChangeGated for a gated pool without its gate.
        """
        self._settings.restock(units, restock_id)  # checked before the pool's state is read
        self._require_gate("restock")
        return self._decides.restock_pool(self.plain, units, restock_id)

    def withdraw(self, units: int, *, withdraw_id: str) -> Restocked | TooFew:
        """Remove free units during the sale, all or none, once for each id. Raises ChangeMismatch, and ChangeGated."""
        self._settings.withdraw(units, withdraw_id)  # checked before the pool's state is read
        self._require_gate("withdraw")
        return self._decides.withdraw_pool(self.plain, units, withdraw_id)

    def resize(self, segments: int) -> Resized:
        """Change the number of segments during the sale, without a pause; free units are split evenly.

        A holder of a removed segment can finish undisturbed. Raises ChangeGated for a gated pool without its gate.
        """
        self._settings.resize(segments)  # checked before the pool's state is read
        self._require_gate("resize")
        return self._decides.resize_pool(self.plain, segments)

    def close(self) -> PoolClosed:
        """Refuse all new orders. Reserved orders can still be confirmed, cancelled, or expire.

        A gated pool can be closed without its gate, also while its order database is down.
        """
        return self._decides.verified(self.plain, lambda: self.store.execute(op.ClosePool(self.sku)))

    def assign(self, *, queue: str | None, step: str | None) -> Assigned:
        """Name the queue and the step of the workers that take submitted orders from now on; None: any.

        Orders that a worker has begun before are finished by it. A gated pool can be assigned without its gate.
        """
        return self._decides.assign_pool(self.plain, op.AssignPool(self.sku, Assignment(queue, step)))

    def note_return(self) -> None:
        """Note that units came back to the pool: the sold-out mark of this process ends."""
        self._mark.clear()

    def on_return(self, callback: Callable[[], None]) -> None:
        """Call `callback` whenever units came back by this object."""
        self._mark.on_clear = callback

    @property
    def refused_by_mark(self) -> int:
        """Number of orders that the sold-out mark has refused here without contacting the server."""
        return self._mark.refused_count

    def state(self) -> PoolState:
        """Read all totals and each segment's units atomically. Raises PoolMissing."""
        return self.store.execute(op.ReadPool(self.sku))

    def available(self) -> int:
        """Return how many units are free now, with those of holds that have ended. Raises PoolMissing."""
        return run_sync(available_plan(self.state()), self.store)

    def order(self, order_id: str) -> OrderRecord | None:
        """Return an order's record, or None if the pool has none: the order took no units here, or was forgotten."""
        order_id = checked_id(order_id, "order id")
        return self.store.execute(op.ReadOrders(self.sku, (order_id,)))[0]

    def orders(self, *, state: OrderState | None = None) -> Iterator[OrderRecord]:
        """Read the orders in `state`, such as "confirmed" (None: all), each once and in no particular order.

        Safe while the pool sells: pages are bounded, and an order that arrives meanwhile may be missing. Raises
        PoolMissing, and InvalidInput for a state that no order has.
        """
        wanted = checked_state(state)
        for read in reads(self.sku, run_sync(ids_plan(self.sku), self.store)):
            yield from chosen(self.store.execute(read), wanted)

    def is_gated(self, *, again: bool = False) -> bool:
        """Return whether an order database decides this pool's orders. Raises PoolMissing.

        Asks the server once, or `again`: the pool may have been opened again in the meantime.
        """
        return self.known_state(again=again).gated

    def epoch(self, *, at_least: int = 1) -> int:
        """Return the pool's epoch; asks the server once, and again if `at_least` is later than the known epoch."""
        checked_epoch(self.sku, at_least)
        is_later = self.known_state().epoch < at_least
        found = self.known_state(again=is_later)
        return max(found.epoch, at_least)  # a server that forgot the last one is behind

    def known_state(self, *, again: bool = False) -> PoolState:
        """Return the state that this object has read first, or, with `again`, reads now. Raises PoolMissing."""
        if again or self._found is None:
            self._found = self.state()
        return self._found

    @property
    def last_state(self) -> PoolState | None:
        """The state that `known_state` returned last, or None if it was not called yet."""
        return self._found

    def handle(self, order_id: str, *, accepted: Accepted | None = None) -> OrderHandle:
        """Return the handle of a submitted order, with the answer if known; sends no command."""
        order_id = checked_id(order_id, "order id")
        return OrderHandle(self.store, self.sku, order_id, accepted, decision=self._decision)

    def thaw(self, *, sold: int, stocked: int | None = None) -> Thawed:
        """Let a frozen pool that is not gated sell again, in a new epoch, with `sold` units sold.

        You say how many are sold, from what your customers have: the server has lost it. Units that are still reserved
        stay so, and all others are free. If more are sold and reserved than were stocked, the newest reserved orders
        are cancelled; `cancelled_count` of the answer says how many. If a restock or a withdrawal was lost too, give
        the units ever `stocked`, without those withdrawn. The ledger begins again with these numbers and names both
        states. Raises PoolNotFrozen for a pool that sells, PoolGated for one whose order database knows what is sold
        (`rebuild`), and InvalidInput if more are sold than were ever stocked.
        """
        return run_sync(thaw_plan(self._settings.thaw(sold, stocked)), self.store)

    def audit(self) -> AuditReport:
        """Recompute all numbers from the ledger and compare them; safe while the pool sells."""
        return run_sync(audit_plan(self.sku), self.store)[0]

    def repair(self, report: AuditReport, *, yes: bool) -> RepairReport:
        """Correct what an audit's `report` names, if it still holds; without `yes`, only report what would be done.

        Safe while the pool sells, and safe to repeat. Each repair is one atomic step and adds an entry `repaired` to
        the ledger. Errors in the ledger itself, oversold units and wrong refusals cannot be corrected; they are
        reported.
        """
        return run_sync(repair_plan(report, self._settings.hold_ms, yes=yes), self.store)

    def read_ledger(self, *, after: int = 0) -> Iterator[LedgerEntry]:
        """Read every change after sequence number `after`, oldest first, in pages; a trimmed ledger has the rest."""
        page = run_sync(first_page_plan(self.sku, after), self.store)
        while page:
            yield from page
            page = self.store.execute(next_page(self.sku, page))

    def trim_ledger(self, *, keep: int, relayed_only: bool = False) -> Trimmed:
        """Delete old changes, except the last `keep` and those since the checkpoint before them; audit first.

        Writes a checkpoint, where audits begin: of changes before it only sums are known, so a missing order is noticed
        but not named, and no wrong refusal is found. Raises PoolDrifted when the totals do not add up, and StoreRefused
        if it would delete changes of a relayed ledger that were not relayed; with `relayed_only` it keeps them.
        """
        return run_sync(trim_plan(self._settings.trim(keep, relayed_only=relayed_only)), self.store)

    @property
    def tokens_above(self) -> int:
        """The highest token that a resource is known to have accepted; grants get higher ones."""
        return self._settings.above

    def note_token(self, token: int) -> None:
        """Grant only tokens above this one from now on: a resource has accepted it."""
        self._settings.above = max(self._settings.above, token)
