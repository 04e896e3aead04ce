"""The rows of a cart: an order row in each of its skus, all of them stored in one transaction, or none.

The rows of the segments are locked first, sku by sku as the cart has them, sorted, and ascending in each; the orders'
rows follow in the same order. Every other transaction takes its locks so, too: there is no deadlock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy.exc import IntegrityError

from segmented.errors import StoreRefused
from segmented.models import Order
from segmented.orders.answers import Confirmed
from segmented.orders.confirming import TRIES_MAX, locked_rows
from segmented.orders.deciding import decide
from segmented.orders.statements import order_values
from segmented.orders.tables import CONFIRMED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection

    from segmented.errors import OrderMismatch
    from segmented.models import Cart
    from segmented.orders.answers import ConfirmAnswer
    from segmented.orders.deciding import Claim
    from segmented.orders.statements import Run, Statements

    Answers = tuple[ConfirmAnswer | OrderMismatch, ...]


class CartRows:
    """The rows of carts. Created by a gate."""

    def __init__(self, statements: Statements, run: Run) -> None:
        """Create with one database's statements."""
        self._statements, self._run = statements, run

    def confirm(self, claims: Sequence[Claim]) -> Answers:
        """Store the lines of a cart, one a sku and sorted by it, or none. Returns an answer for each.

        Unless every answer is Confirmed, nothing has changed.
        """

        def work(connection: Connection) -> Answers:
            for _ in range(TRIES_MAX):
                try:
                    answers = self._try(connection, claims, are_all_rows=False)
                    answers = answers or self._try(connection, claims, are_all_rows=True)
                except IntegrityError:  # a line was decided since the read: the next read finds it
                    connection.rollback()
                    continue
                if answers is not None:
                    return answers
            message = (
                f"the lines of cart {claims[0].order.order_id!r} changed {TRIES_MAX} times in a row; none is stored"
            )
            raise StoreRefused(message)

        return self._run(work)

    def _try(self, connection: Connection, claims: Sequence[Claim], *, are_all_rows: bool) -> Answers | None:
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
