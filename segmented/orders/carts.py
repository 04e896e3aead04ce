"""Carts over gated pools: the order database stores all lines of a cart in one transaction, or voids them in one.

The database alone decides a cart, as it decides an order. Its record in Redis follows, and then the lines in their
pools. The lines are ordinary orders of gated pools, which give no unit back before the database has voided it, so
nothing has to keep them from expiring meanwhile. If a process dies between two steps, any later call for the cart asks
the database again and gets the same answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy.exc import IntegrityError

from segmented.errors import (
    AnotherDatabase,
    CartDiverged,
    OrderMismatch,
    OrderUnknown,
    PoolDiverged,
    PoolNotGated,
    RowsMissing,
    SegmentedError,
    StoreRefused,
)
from segmented.models import Order
from segmented.orders.answers import Confirmed, EpochChanged, Voided
from segmented.orders.confirming import TRIES_MAX, locked_rows
from segmented.orders.deciding import claim_of_record, decide
from segmented.orders.sale import REBUILDS_MAX, gated, record_of, tell_pool
from segmented.orders.statements import order_values
from segmented.orders.tables import CONFIRMED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection

    from segmented.models import Cart, CartFate, Settled
    from segmented.orders.answers import ConfirmAnswer
    from segmented.orders.database import OrderDatabase
    from segmented.orders.deciding import Claim
    from segmented.stock import Pool

    Answered = tuple[ConfirmAnswer | OrderMismatch, ...]


def sell_cart(pools: Sequence[Pool], gate: OrderDatabase, cart: Cart) -> CartFate:
    """Store every line of a reserved cart, or void every line if one of them cannot be sold any more.

    `pools` are those of the lines. Raises PoolFrozen or PoolDiverged, with nothing stored, if the database cannot store
    a line that its pool has reserved, and OrderMismatch if it knows the id with other content.
    """
    pools = [gated(pool, gate) for pool in pools]
    for _ in range(REBUILDS_MAX):
        claims: list[Claim] = []
        is_expired = False
        for pool, (sku, _) in zip(pools, cart.lines, strict=True):
            epoch, record = pool.epoch(), record_of(pool, gate, cart.order_id)
            is_expired |= record is not None and record.state == "expired"
            if record is not None and record.state in {"reserved", "confirmed"}:
                claims.append(claim_of_record(sku, record, epoch))
        if len(claims) < len(pools):
            return _not_sold(pools, gate, cart, is_expired=is_expired)
        refused = [
            (pool, claim, answer)
            for pool, claim, answer in zip(pools, claims, CartRows(gate).confirm(claims), strict=True)
            if not isinstance(answer, Confirmed)
        ]
        if not refused:
            return "confirmed"
        if any(isinstance(answer, Voided) for _, _, answer in refused):
            return _not_sold(pools, gate, cart, is_expired=is_expired)
        for pool, claim, answer in refused:
            _check_rebuilt(pool, gate, claim, answer)
    raise PoolDiverged(cart.home, cart.order_id, f"a pool of its cart was rebuilt {REBUILDS_MAX} times in a row")


def _not_sold(pools: Sequence[Pool], gate: OrderDatabase, cart: Cart, *, is_expired: bool) -> CartFate:
    fate = void_cart(pools, gate, cart)
    return "expired" if fate == "cancelled" and is_expired else fate


def _check_rebuilt(pool: Pool, gate: OrderDatabase, claim: Claim, answer: ConfirmAnswer | OrderMismatch) -> None:
    """Return if the pool was rebuilt since its record was read, so that the line can be tried again; raise if not."""
    if isinstance(answer, OrderMismatch):
        raise answer
    if not isinstance(answer, EpochChanged) or pool.epoch(at_least=answer.epoch) == claim.epoch:
        tell_pool(pool, gate, claim.order, answer, epoch=claim.epoch)


def void_cart(pools: Sequence[Pool], gate: OrderDatabase, cart: Cart) -> CartFate:
    """Void every line of a cart, unless the cart is sold. Raises CartDiverged if only some of its lines are."""
    for pool in pools:
        gated(pool, gate)
    sold = CartRows(gate).void(cart)
    if 0 < len(sold) < len(cart.lines):
        raise CartDiverged(cart.cart_id, "not sold", sold[0], "is sold in the order database")
    return "confirmed" if sold else "cancelled"


def end_cart(
    pools: Sequence[Pool], gate: OrderDatabase, cart: Cart, *, is_sold: bool
) -> list[Settled | SegmentedError]:
    """Tell the pools how the database has decided the cart; returns an answer or a failure for each line.

    If the cart is not sold, and some pool has units for it, its lines are voided before, should they not be yet. Raises
    CartDiverged if they are sold.
    """
    if not is_sold:
        if not any(_may_have(pool, gate, cart.order_id) for pool in pools):
            return [OrderUnknown(cart.order_id)] * len(pools)
        if sold := CartRows(gate).void(cart):
            raise CartDiverged(cart.cart_id, "not sold", sold[0], "is sold in the order database")
    return [
        _told(pool, gate, Order(cart.order_id, quantity, cart.customer_id), is_sold=is_sold)
        for pool, (_, quantity) in zip(pools, cart.lines, strict=True)
    ]


def _may_have(pool: Pool, gate: OrderDatabase, order_id: str) -> bool:
    try:
        return record_of(gated(pool, gate), gate, order_id) is not None
    except (AnotherDatabase, PoolNotGated, RowsMissing):  # this gate has no say about it
        raise
    except SegmentedError:  # it answers later
        return True


def _told(pool: Pool, gate: OrderDatabase, order: Order, *, is_sold: bool) -> Settled | SegmentedError:
    try:
        pool = gated(pool, gate)
        answer = Confirmed(replay=True) if is_sold else Voided(replay=True)
        return tell_pool(pool, gate, order, answer, epoch=pool.epoch())
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
