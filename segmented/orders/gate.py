"""The gate of a pool: `Pool(store, sku, gate=gate)` asks it, and sells nothing that its order database has not stored.

The steps that others need, too, are functions in `sale`, `within` and `opening`, which take the pool and the database.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from sqlalchemy.exc import IntegrityError

from segmented import protocol as op
from segmented.errors import (
    AnotherDatabase,
    CartDiverged,
    ChangeDiverged,
    DatabaseUnavailable,
    EpochEnded,
    OrderInWork,
    OrderMismatch,
    OrderQueued,
    OrderUnknown,
    PoolDiverged,
    PoolGated,
    PoolNotGated,
    RowsMissing,
    SegmentedError,
    StoreRefused,
    StoreUnavailable,
)
from segmented.models import Order, Reserved, Returned, Settled, Superseded
from segmented.models.ids import is_cart_line
from segmented.models.orders import Sold, decided_as
from segmented.orders import sale, within
from segmented.orders.answers import Confirmed, EpochChanged, Return, Stored, TooFewUnsold, Voided
from segmented.orders.confirming import TRIES_MAX, locked_rows
from segmented.orders.database import OrderDatabase
from segmented.orders.deciding import claim_of_record, decide
from segmented.orders.forgetting import decided_before, settled_by
from segmented.orders.opening import open_rows, resize_gated, restock_gated, withdraw_gated
from segmented.orders.return_rows import NotReturned, ReturnStored
from segmented.orders.statements import order_values
from segmented.orders.tables import CONFIRMED, DONE
from segmented.orders.verifying import when_verified
from segmented.protocol.pool.orders import too_many_returned
from segmented.stock.settings import checked_decided

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from sqlalchemy import Connection

    from segmented.models import (
        AlreadyOpen,
        Assigned,
        Cart,
        CartFate,
        Closed,
        Decided,
        Opened,
        Refusal,
        Resized,
        Restocked,
        Shard,
        TooFew,
    )
    from segmented.orders.answers import ConfirmAnswer
    from segmented.orders.deciding import Claim
    from segmented.protocol import AssignPool, ChangeQuantity, ExtendHold, ReturnUnits
    from segmented.stock import Grant, Pool
    from segmented.stock.settings import Opening

    Answered = tuple[ConfirmAnswer | OrderMismatch, ...]

AnswerT = TypeVar("AnswerT")


class Gate(OrderDatabase):
    """The order database of gated pools. Thread-safe.

    Give it to the pool, `Pool(store, sku, gate=gate)`, and every call of the pool asks or tells it. Its own methods are
    single steps, for programs that combine them.
    """

    def open_pool(self, pool: Pool, opening: Opening) -> Opened | AlreadyOpen:
        """Store the segments' rows, and open the pool."""
        return open_rows(pool, self, opening)

    def verified(self, pool: Pool, ask: Callable[[], AnswerT]) -> AnswerT:
        """Ask the pool; compare it with the database first if its server is another one than before."""
        return when_verified(pool, self, ask)

    def grant_order(
        self,
        pool: Pool,
        order: Order,
        ask: Callable[[], Grant | Refusal],
        *,
        asked: int | None,
        timeout: float | None,
    ) -> Grant | Refusal:
        """Ask for a grant, unless the database has decided the order: then the answer is that decision.

        The `timeout` of the grant does not bound the database's steps, which a thread cannot leave: the engine's does.
        """
        del timeout
        pool = sale.gated(pool, self)
        epoch = pool.epoch()
        before = decided_before(pool, self, order, epoch, asked=asked)
        if before is not None:
            return decided_as(before)
        return sale.undecided(pool, self, order, sale.asked(pool, self, ask), epoch)

    def take_orders(
        self, pool: Pool, orders: Sequence[Order], ask: Callable[[tuple[Order, ...]], list[AnswerT]], *, partial: bool
    ) -> list[AnswerT | Decided | OrderMismatch]:
        """Ask the pool to take orders, except for those that only the database knows: it has decided them."""
        return sale.take_orders(pool, self, orders, ask, partial=partial)

    def decision_on(self, pool: Pool, order_id: str) -> Settled | None:
        """Return the database's decision on an order, if it has one."""
        row = self.orders(pool.sku, (order_id,)).get(order_id)
        return None if row is None else settled_by(row)

    def confirm_grant(self, grant: Grant, order: Order) -> Settled:
        """Store a granted order under its fencing token, and confirm it in the pool.

        Raises GrantSuperseded if a later grant of the segment reached the database first: the units stay reserved.
        """
        return sale.finish_granted(grant.pool.plain, self, order, grant.handed_on())

    def confirm_order(self, pool: Pool, order_id: str, holder_id: str | None) -> Settled:
        """Store a reserved order, and confirm it in the pool; with a holder id only that holder's segment is freed.

        The pool's record has what else is to be stored. Safe to repeat.
        """
        pool = sale.gated(pool, self)
        order_id, holder_id = checked_decided(order_id, holder_id)
        for _ in range(sale.REBUILDS_MAX):
            epoch, record = pool.epoch(), sale.record_of(pool, self, order_id)
            if record is None or record.state != "reserved":
                known = self.decision_on(pool, order_id) if record is None else None
                if known is not None:
                    return known
                with suppress(PoolGated):  # it was reserved since its record was read: read that again
                    return self.verified(pool, partial(pool.store.execute, op.Confirm(pool.sku, order_id, holder_id)))
                continue
            order = record.order
            taken = Reserved(
                order_id, record.quantity, record.segment, record.parts, epoch, record.sequence, replay=True
            )
            decided = sale.stored(pool, self, order, taken, fence=None)
            if not isinstance(decided, EpochChanged) or pool.epoch(at_least=decided.epoch) == epoch:
                return sale.tell_pool(pool, self, order, decided, epoch=epoch, holder_id=holder_id)
        raise PoolDiverged(pool.sku, order_id, f"it was reserved again, or rebuilt, {sale.REBUILDS_MAX} times in a row")

    def confirm_within(self, pool: Pool, order_id: str, transaction: object) -> Sold[Settled | None]:
        """Store a reserved order within the caller's transaction. Raises as `within.decide` does."""
        found, is_stored = within.begun(transaction), False
        for _ in range(sale.REBUILDS_MAX):
            asked = within.wanted(pool, self, order_id)
            answer = within.decide(found, self, pool.sku, asked, is_stored=is_stored)
            outcome = within.settle(pool, self, asked, answer)
            if outcome is not None:
                tell = partial(within.told, pool, self, asked)
                return Sold(order_id, outcome.state, outcome.quantity, tell, replay=outcome.replay)
            is_stored = isinstance(answer, within.Outcome)
        raise within.overtaken(pool.sku, order_id)

    def confirm_orders(self, pool: Pool, order_ids: Iterable[str]) -> list[Settled | SegmentedError | None]:
        """Do that with many orders, one after the other; returns an answer or a failure for each."""
        return [_attempt(partial(self.confirm_order, pool, order_id, None)) for order_id in order_ids]

    def cancel_order(self, pool: Pool, order_id: str, holder_id: str | None) -> Settled | Superseded:
        """Void an order, and give its units back; with a holder id only while that holder still has it."""
        pool = sale.gated(pool, self)
        order_id, holder_id = checked_decided(order_id, holder_id)
        for _ in range(sale.REBUILDS_MAX):
            record = sale.record_of(pool, self, order_id)
            if record is not None:
                if holder_id is not None and record.state == "reserved" and record.holder_id != holder_id:
                    return Superseded(order_id, record.fencing_token or 0)
                return sale.cancel_order(pool, self, record.order)
            known = self.decision_on(pool, order_id)
            if known is not None:
                return known
            with suppress(PoolGated):  # it was reserved meanwhile: read its record again
                return _cancelled_in_queue(pool, self, order_id)
        raise PoolDiverged(pool.sku, order_id, f"it was reserved again {sale.REBUILDS_MAX} times in a row")

    def cancel_orders(self, pool: Pool, order_ids: Iterable[str]) -> list[Settled | SegmentedError | None]:
        """Void many orders, one after the other; returns an answer or a failure for each."""
        return [_attempt(partial(self.cancel_order, pool, order_id, None)) for order_id in order_ids]

    def sell_cart(self, pools: Sequence[Pool], cart: Cart) -> CartFate:
        """Store every line of a reserved cart, or void every line if one of them cannot be sold any more.

        `pools` are those of the lines. Raises PoolFrozen or PoolDiverged, with nothing stored, if the database cannot
        store a line that its pool has reserved, and OrderMismatch if it knows the id with other content.
        """
        pools = [sale.gated(pool, self) for pool in pools]
        for _ in range(sale.REBUILDS_MAX):
            claims: list[Claim] = []
            is_expired = False
            for pool, (sku, _) in zip(pools, cart.lines, strict=True):
                epoch, record = pool.epoch(), sale.record_of(pool, self, cart.order_id)
                is_expired |= record is not None and record.state == "expired"
                if record is not None and record.state in {"reserved", "confirmed"}:
                    claims.append(claim_of_record(sku, record, epoch))
            if len(claims) < len(pools):
                return _not_sold(self, pools, cart, is_expired=is_expired)
            refused = [
                (pool, claim, answer)
                for pool, claim, answer in zip(pools, claims, CartRows(self).confirm(claims), strict=True)
                if not isinstance(answer, Confirmed)
            ]
            if not refused:
                return "confirmed"
            if any(isinstance(answer, Voided) for _, _, answer in refused):
                return _not_sold(self, pools, cart, is_expired=is_expired)
            for pool, claim, answer in refused:
                _check_rebuilt(pool, self, claim, answer)
        raise PoolDiverged(
            cart.home, cart.order_id, f"a pool of its cart was rebuilt {sale.REBUILDS_MAX} times in a row"
        )

    def void_cart(self, pools: Sequence[Pool], cart: Cart) -> CartFate:
        """Void every line of a cart, unless the cart is sold. Raises CartDiverged if only some of its lines are."""
        for pool in pools:
            sale.gated(pool, self)
        sold = CartRows(self).void(cart)
        if 0 < len(sold) < len(cart.lines):
            raise CartDiverged(cart.cart_id, "not sold", sold[0], "is sold in the order database")
        return "confirmed" if sold else "cancelled"

    def end_cart(self, pools: Sequence[Pool], cart: Cart, *, is_sold: bool) -> list[Settled | SegmentedError]:
        """Tell the pools how the database has decided the cart; returns an answer or a failure for each line.

        If the cart is not sold, and some pool has units for it, its lines are voided before, should they not be yet.
        Raises CartDiverged if they are sold.
        """
        if not is_sold:
            if not any(_may_have(pool, self, cart.order_id) for pool in pools):
                return [OrderUnknown(cart.order_id)] * len(pools)
            if sold := CartRows(self).void(cart):
                raise CartDiverged(cart.cart_id, "not sold", sold[0], "is sold in the order database")
        return [
            _told(pool, self, Order(cart.order_id, quantity, cart.customer_id), is_sold=is_sold)
            for pool, (_, quantity) in zip(pools, cart.lines, strict=True)
        ]

    def extend_order(self, pool: Pool, operation: ExtendHold) -> Reserved | Settled:
        """Lengthen an order's hold; if it has ended, void the order, and give its units back."""
        pool = sale.gated(pool, self)
        for _ in range(sale.REBUILDS_MAX):
            answer = _asked_pool(pool, self, operation.order_id, operation)
            if answer is not None:
                return answer
            record = sale.record_of(pool, self, operation.order_id)
            if record is not None and record.state == "reserved":
                sale.expire(pool, self, record)
        raise PoolDiverged(pool.sku, operation.order_id, f"its hold had ended {sale.REBUILDS_MAX} times in a row")

    def change_order(self, pool: Pool, operation: ChangeQuantity) -> Reserved | Settled:
        """Give some of an order's units back, unless the database has decided it: the pool may not know of its sale."""
        pool, order_id = sale.gated(pool, self), operation.order_id
        record = sale.record_of(pool, self, order_id)
        ask = partial(_asked_pool, pool, self, order_id, operation)
        try:
            if record is None or record.state != "reserved":
                return ask()
            answer = self.while_undecided(pool.sku, order_id, record.segment, ask)
        finally:
            pool.note_return()
        return answer or settled_by(self.orders(pool.sku, (order_id,))[order_id])

    def return_order(self, pool: Pool, operation: ReturnUnits) -> Returned | Settled | None:
        """Give units of a sold order back, once for each return id; None if it is not sold yet. Safe to repeat.

        They go to the database first, then the pool gets them, so the database never allows less than the pool may
        sell. A process that dies between the two leaves a row in state `begun`; the next call with the same id finishes
        it.
        """
        pool = sale.gated(pool, self)
        wanted = Return(pool.sku, operation.order_id, operation.units, operation.return_id)
        if not _is_told(pool, self, wanted.order_id):
            return None
        stored = self.returns.begin(wanted)
        if isinstance(stored, NotReturned):
            return _not_returned(pool, self, wanted, stored)
        operation = replace(operation, sku=pool.sku, epoch=stored.epoch, customer_id=stored.customer_id)
        try:
            answer = _returned_in_pool(pool, self, operation)
        except EpochEnded as ended:
            if ended.epoch < stored.epoch:
                raise PoolDiverged(pool.sku, wanted.order_id, f"its return is of epoch {stored.epoch}") from ended
            again = self.returns.begin(wanted)
            if isinstance(again, ReturnStored) and again.epoch > stored.epoch:  # the rebuild has left it to this epoch
                return self.return_order(pool, operation)
            answer = None  # the pool had its units, or knows no order of then: its sums have them as free
        finally:
            pool.note_return()
        sequence = answer.sequence if isinstance(answer, Returned) else 0
        if stored.state != DONE:
            self.returns.finish(wanted, stored.epoch, sequence)
        is_new = isinstance(answer, Returned) and not answer.replay
        return Returned(wanted.order_id, wanted.return_id, wanted.units, stored.quantity, sequence, replay=not is_new)

    def expire_orders(self, pool: Pool, limit: int) -> tuple[Settled, ...]:
        """Give back the units of expired holds."""
        return sale.expire_voided(sale.gated(pool, self), self, limit=limit)

    def settle_due(self, pool: Pool) -> bool:
        """Settle expired holds for a caller that needs their units; return whether some have ended."""
        return sale.settle_due(pool, self)

    def restock_pool(self, pool: Pool, units: int, restock_id: str) -> Restocked | Closed:
        """Add units to the database and the pool."""
        return restock_gated(pool, self, units, restock_id=restock_id)

    def withdraw_pool(self, pool: Pool, units: int, withdraw_id: str) -> Restocked | TooFew:
        """Remove free units from the pool and the database."""
        return withdraw_gated(pool, self, units, withdraw_id=withdraw_id)

    def move_units(self, source: Shard, target: Shard, *, sent: int, epoch: int) -> bool:
        """Move units from one shard's rows to another's, all that the source has `sent` there in its `epoch`, once.

        Returns False if the source must be rebuilt: it has sent units that are sold, or is in an earlier epoch than its
        rows. Raises ChangeDiverged if the database has no rows for a shard, or is in an earlier epoch.
        """
        answer = self.transfers.move(source, target, sent=sent, epoch=epoch)
        if isinstance(answer, Stored):
            return True
        if isinstance(answer, TooFewUnsold) or (isinstance(answer, EpochChanged) and answer.epoch > epoch):
            return False
        detail = "the database has no rows for one of them"
        if isinstance(answer, EpochChanged):
            detail = f"the database is in epoch {answer.epoch}, the shard is in epoch {epoch}"
        raise ChangeDiverged(source, f"a transfer to shard {target.number}", detail)

    def resize_pool(self, pool: Pool, segments: int) -> Resized:
        """Change the number of segments."""
        return resize_gated(pool, self, segments)

    def assign_pool(self, pool: Pool, operation: AssignPool) -> Assigned:
        """Name the workers of the pool's submitted orders, and keep the names in the sale's row."""
        assigned = self.verified(pool, lambda: pool.store.execute(operation))
        self.stocking.note_terms(assigned.state)
        return assigned


def finish_returns(pool: Pool, gate: Gate) -> int:
    """Finish the returns whose processes died before the pool had the units; returns how many there were.

    Raises the first error, after all were tried.
    """
    begun, failed = gate.returns.begun(pool.sku), []
    for one in begun:
        try:
            gate.return_order(pool, op.ReturnUnits(pool.sku, one.order_id, one.units, one.return_id))
        except SegmentedError as error:  # one that cannot be finished stops no other
            failed.append(error)
    if failed:
        raise failed[0]
    return len(begun)


def _attempt(ask: Callable[[], Settled | Superseded]) -> Settled | SegmentedError | None:
    try:
        answer = ask()
    except (DatabaseUnavailable, StoreUnavailable):
        raise
    except SegmentedError as error:
        return error
    return answer if isinstance(answer, Settled) else None


def _asked_pool(pool: Pool, gate: Gate, order_id: str, operation: op.Operation[AnswerT]) -> AnswerT | Settled:
    """Ask the pool about an order; of one that it does not know, return the database's decision."""
    try:
        return when_verified(pool, gate, lambda: pool.store.execute(operation))
    except OrderUnknown:
        known = gate.decision_on(pool, order_id)
        if known is None:
            raise
        return known


def _cancelled_in_queue(pool: Pool, gate: Gate, order_id: str) -> Settled | Superseded:
    (submitted,) = pool.store.execute(op.ReadSubmitted(pool.sku, (order_id,)))
    if submitted.order is None:
        return pool.store.execute(op.Cancel(pool.sku, order_id))  # raises OrderUnknown
    return sale.cancel_order(pool, gate, submitted.order)


# --- returns ---


def _is_told(pool: Pool, gate: Gate, order_id: str) -> bool:
    """Tell the pool of a sale before the database has fewer units than the pool; False if the order is not sold yet.

    Whoever tells it later would take the order for another one, and give its units back. Raises OrderInWork for a line
    of a cart whose lines are not all told.
    """
    record = sale.record_of(pool, gate, order_id)
    if record is None or record.state != "reserved":
        return True
    row = gate.orders(pool.sku, (order_id,)).get(order_id)
    if row is not None and row.state == CONFIRMED:
        if is_cart_line(order_id):
            raise OrderInWork(order_id)
        sale.tell_pool(
            pool, gate, Order(order_id, record.asked), Confirmed(replay=True), epoch=row.epoch or pool.epoch()
        )
    return row is not None


def _returned_in_pool(pool: Pool, gate: Gate, operation: op.ReturnUnits) -> Returned | Settled:
    """Give the units back in the pool; an order whose sale the pool has not recorded is confirmed first."""
    for _ in range(sale.REBUILDS_MAX):
        answer = when_verified(pool, gate, partial(pool.store.execute, operation))
        if answer is not None:
            return answer
        record = sale.record_of(pool, gate, operation.order_id)
        if record is not None and record.state == "reserved":
            order = Order(record.order_id, record.asked)
            sale.tell_pool(pool, gate, order, Confirmed(replay=True), epoch=pool.epoch())
    raise PoolDiverged(pool.sku, operation.order_id, f"it was reserved again {sale.REBUILDS_MAX} times in a row")


def _not_returned(pool: Pool, gate: Gate, wanted: Return, found: NotReturned) -> Settled | None:
    """Return how an order has ended that is not sold, or None if it is reserved; raise for one that has fewer units."""
    if found.quantity:
        raise too_many_returned(wanted.order_id, wanted.units, found.quantity)
    known = gate.decision_on(pool, wanted.order_id)
    if known is not None:
        return known
    record = sale.record_of(pool, gate, wanted.order_id)
    if record is None:
        (submitted,) = pool.store.execute(op.ReadSubmitted(pool.sku, (wanted.order_id,)))
        raise (OrderUnknown if submitted.order is None else OrderQueued)(wanted.order_id)
    if record.state == "reserved":
        return None
    fields = (record.segment, record.fencing_token, record.sequence)
    return Settled(record.order_id, record.state, record.quantity, *fields, replay=True)


# --- carts ---
#
# The database stores all lines of a cart in one transaction, or voids them in one: it alone decides a cart, as it
# decides an order. Its record in Redis follows, and then the lines in their pools. The lines are ordinary orders of
# gated pools, which give no unit back before the database has voided it, so nothing has to keep them from expiring
# meanwhile. If a process dies between two steps, any later call for the cart asks the database again and gets the same
# answer.


def _not_sold(gate: Gate, pools: Sequence[Pool], cart: Cart, *, is_expired: bool) -> CartFate:
    fate = gate.void_cart(pools, cart)
    return "expired" if fate == "cancelled" and is_expired else fate


def _check_rebuilt(pool: Pool, gate: OrderDatabase, claim: Claim, answer: ConfirmAnswer | OrderMismatch) -> None:
    """Return if the pool was rebuilt since its record was read, so that the line can be tried again; raise if not."""
    if isinstance(answer, OrderMismatch):
        raise answer
    if not isinstance(answer, EpochChanged) or pool.epoch(at_least=answer.epoch) == claim.epoch:
        sale.tell_pool(pool, gate, claim.order, answer, epoch=claim.epoch)


def _may_have(pool: Pool, gate: OrderDatabase, order_id: str) -> bool:
    try:
        return sale.record_of(sale.gated(pool, gate), gate, order_id) is not None
    except (AnotherDatabase, PoolNotGated, RowsMissing):  # this gate has no say about it
        raise
    except SegmentedError:  # it answers later
        return True


def _told(pool: Pool, gate: OrderDatabase, order: Order, *, is_sold: bool) -> Settled | SegmentedError:
    try:
        pool = sale.gated(pool, gate)
        answer = Confirmed(replay=True) if is_sold else Voided(replay=True)
        return sale.tell_pool(pool, gate, order, answer, epoch=pool.epoch())
    except SegmentedError as error:
        return error


class CartRows:
    """The rows of carts: an order row in each of a cart's skus, all of them stored in one transaction, or none.

    The rows of the segments are locked first, sku by sku as the cart has them, sorted, and ascending in each; the
    orders' rows follow in the same order. Every other transaction takes its locks so, too: there is no deadlock.
    """

    def __init__(self, gate: OrderDatabase) -> None:
        """Create for the rows of a database."""
        self._statements, self._run = gate.confirming.statements, gate.run

    def confirm(self, claims: Sequence[Claim]) -> Answered:
        """Store the lines of a cart, one a sku and sorted by it, or none. Returns an answer for each.

        Unless every answer is Confirmed, nothing has changed.
        """

        def work(connection: Connection) -> Answered:
            for _ in range(TRIES_MAX):
                try:
                    answers = self._try(connection, claims, are_all_rows=False)
                    answers = answers or self._try(connection, claims, are_all_rows=True)
                except IntegrityError:  # a line was decided since the read: the next read finds it
                    connection.rollback()
                    continue
                if answers is not None:
                    return answers
            raise StoreRefused(
                f"the lines of cart {claims[0].order.order_id!r} changed {TRIES_MAX} times in a row; none is stored"
            )

        return self._run(work)

    def _try(self, connection: Connection, claims: Sequence[Claim], *, are_all_rows: bool) -> Answered | None:
        """Decide all lines under their locks; None: nothing changed, because other rows decide or some have changed."""
        connection.exec_driver_sql(self._statements.begin)
        rows = [locked_rows(self._statements, connection, [one], are_all_rows=are_all_rows) for one in claims]
        decisions = []
        for claim, own in zip(claims, rows, strict=True):
            orders = self._statements.find_orders(connection, claim.sku, [claim.order.order_id])
            decision = decide([claim], own, orders, are_all_rows=are_all_rows)
            if decision is None:
                connection.rollback()
                return None
            decisions.append(decision)
        answers = tuple(decision.answers[0] for decision in decisions)
        if not all(isinstance(answer, Confirmed) for answer in answers):
            connection.rollback()
            return answers
        if not all(self._statements.store_many(connection, one) for one in decisions if one.confirmed):
            connection.rollback()
            return None
        connection.commit()
        return answers

    def void(self, cart: Cart) -> tuple[str, ...]:
        """Void every line of a cart that has no row, unless a line is sold. Returns the skus of those that are."""

        def work(connection: Connection) -> tuple[str, ...]:
            connection.exec_driver_sql(self._statements.begin)
            for sku, quantity in cart.lines:
                self._statements.void(connection, order_values(sku, Order(cart.order_id, quantity)))
            sold = []
            for sku, _ in cart.lines:
                found = self._statements.find_orders(connection, sku, [cart.order_id])
                if found[cart.order_id].state == CONFIRMED:
                    sold.append(sku)
            if sold:
                connection.rollback()
            else:
                connection.commit()
            return tuple(sold)

        return self._run(work)
