"""How an envelope of orders is confirmed: in one transaction, however many they are and whatever becomes of each.

1. The rows of the segments that the orders name are locked, ascending, and the orders that are there already read.
2. What each order's answer is, is decided from that; nobody else can change these rows meanwhile.
3. One statement (two on SQLite) writes rows and orders, if the rows are as they were read; commit.

Only where a segment has too few units does it begin again, with all rows of the sku locked, so that quota may move.

Locks are taken in the order in which everything takes them, segment rows ascending and then orders. The orders go in in
the order of their ids, because two envelopes may name the same orders and different segments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlalchemy.exc import IntegrityError

from segmented.orders.deciding import decide
from segmented.orders.reading import lock_segments

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection

    from segmented.errors import OrderMismatch
    from segmented.orders.answers import ConfirmAnswer, SegmentRow
    from segmented.orders.deciding import Decision
    from segmented.orders.standing import Claim
    from segmented.orders.statements import Statements

ENVELOPE_MAX: Final = 1_000
"""Orders in one transaction: their segments' rows are locked for all of it."""

TRIES_MAX: Final = 3
"""Times that orders of the envelope may be decided by others between the reading and the insert."""


class ConfirmingMany:
    """Confirms envelopes. Connections come in autocommit; drivers' errors pass through, for the gate to translate."""

    def __init__(self, statements: Statements) -> None:
        """Speak one database's words."""
        self._statements = statements

    def confirm(self, connection: Connection, claims: Sequence[Claim]) -> list[ConfirmAnswer | OrderMismatch] | None:
        """Confirm one or more orders of one sku, each as if alone and in this order, in one transaction.

        None: it could not be written as it was decided, and nothing changed. Which order stood in the way is not known.
        """
        for _ in range(TRIES_MAX):
            try:
                decision = self._try(connection, claims, are_all_rows=False)
                if decision is None:
                    decision = self._try(connection, claims, are_all_rows=True)
            except IntegrityError:  # an order was decided since they were read: the next reading finds it
                connection.rollback()
                continue
            return None if decision is None else list(decision.answers)
        return None

    def _try(self, connection: Connection, claims: Sequence[Claim], *, are_all_rows: bool) -> Decision | None:
        connection.exec_driver_sql(self._statements.begin)
        rows = self._lock(connection, claims, are_all_rows=are_all_rows)
        ids = sorted({claim.order.order_id for claim in claims})
        orders = self._statements.find_orders(connection, claims[0].sku, ids)
        decision = decide(claims, rows, orders, are_all_rows=are_all_rows)
        if decision is None:
            connection.rollback()
            return None
        if decision.confirmed and not self._statements.store_many(connection, decision):
            connection.rollback()
            return None
        connection.commit()
        return decision

    def _lock(self, connection: Connection, claims: Sequence[Claim], *, are_all_rows: bool) -> Sequence[SegmentRow]:
        if are_all_rows:
            return lock_segments(connection, claims[0].sku)
        numbers = sorted({claim.segment for claim in claims})
        return self._statements.lock_these(connection, claims[0].sku, numbers)
