"""How an order is confirmed, and how an envelope of orders is.

One order, in three steps, each taken only where the one before found no answer:

1. one statement that takes the units and inserts the order, or changes nothing;
2. one reading of everything that says why nothing changed;
3. only for a full segment of a sku that has units left: all its rows are locked, and quota moves to it.

Locks are taken in one order everywhere, segment rows ascending and then the order's row, so no two wait for each other.
Every step may run twice: an order that is there already is found by its key, and its units are not taken again.

An envelope, in one transaction, however many its orders are and whatever becomes of each:

1. The rows of the segments that the orders name are locked, ascending, and the orders that are there already read.
2. What each order's answer is, is decided from that; nobody else can change these rows meanwhile.
3. One statement (two on SQLite) writes rows and orders, if the rows are as they were read; commit.

Only where a segment has too few units does it begin again, with all rows of the sku locked, so that quota may move.
The orders go in in the order of their ids, because two envelopes may name the same orders and different segments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlalchemy.exc import IntegrityError

from segmented.errors import StoreRefused
from segmented.orders.answers import Confirmed, Voided
from segmented.orders.deciding import decide, plan_moves
from segmented.orders.reading import lock_segments, read_standing
from segmented.orders.standing import classify
from segmented.orders.statements import MOVE_QUOTA, given_values

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection

    from segmented.errors import OrderMismatch
    from segmented.orders.answers import ConfirmAnswer, SegmentRow
    from segmented.orders.deciding import Decision
    from segmented.orders.standing import Claim
    from segmented.orders.statements import Statements

MOVES_MAX: Final = 20
"""Times that quota moves for one `begin_confirmed`; each but the first means that other orders took it meanwhile."""
ENVELOPE_MAX: Final = 1_000
"""Orders in one transaction: their segments' rows are locked for all of it."""
TRIES_MAX: Final = 3
"""Times that orders of the envelope may be decided by others between the reading and the insert."""


class Confirming:
    """Confirms orders. Connections come in autocommit; drivers' errors pass through, and the gate translates them."""

    def __init__(self, statements: Statements) -> None:
        """Speak one database's words."""
        self._statements = statements

    def confirm(self, connection: Connection, claim: Claim) -> ConfirmAnswer:
        """Confirm one order as a transaction of its own. Raises OrderMismatch."""
        try:
            if self._statements.confirm_alone(connection, given_values(claim)):
                return Confirmed(replay=False)
            return self._look(connection, claim) or self._confirm_at_tail(connection, claim)
        except IntegrityError as error:
            return self._fate(connection, claim, error)

    def begin_confirmed(self, connection: Connection, claim: Claim) -> ConfirmAnswer:
        """Open a transaction and confirm the order in it. It stays open only for Confirmed that is no replay.

        Quota moves in transactions of its own, because this one may stay open for long. Raises OrderMismatch.
        """
        for _ in range(MOVES_MAX):
            connection.rollback()
            connection.exec_driver_sql(self._statements.begin)
            try:
                if self._statements.confirm(connection, given_values(claim)):
                    return Confirmed(replay=False)
            except IntegrityError as error:
                return self._fate(connection, claim, error)
            connection.rollback()
            answer = self._look(connection, claim)
            if answer is not None:
                return answer
            self._make_room(connection, claim)
        message = f"segment {claim.segment} of {claim.sku!r} was full {MOVES_MAX} times in a row; nothing changed"
        raise StoreRefused(message)

    def _look(self, connection: Connection, claim: Claim) -> ConfirmAnswer | None:
        return classify(claim, read_standing(connection, given_values(claim)))

    def _fate(self, connection: Connection, claim: Claim, error: IntegrityError) -> ConfirmAnswer:
        """Return what the order's row says. Without one it was another constraint that held: the error goes on."""
        connection.rollback()
        answer = self._look(connection, claim)
        if isinstance(answer, Confirmed | Voided):
            return answer
        raise error

    def _confirm_at_tail(self, connection: Connection, claim: Claim) -> ConfirmAnswer:
        """Move quota and confirm under the same locks, so that no other order can take the units in between."""
        connection.exec_driver_sql(self._statements.begin)
        answer = self._move_quota(connection, claim)
        if answer is not None:
            connection.rollback()
            return answer
        if not self._statements.confirm(connection, given_values(claim)):
            message = f"segment {claim.segment} of {claim.sku!r} refused {claim.order.order_id!r} with room for it"
            raise StoreRefused(message)
        connection.commit()
        return Confirmed(replay=False)

    def _make_room(self, connection: Connection, claim: Claim) -> None:
        """Move quota, and leave it to the next attempt to find what has become of the order."""
        connection.exec_driver_sql(self._statements.begin)
        self._move_quota(connection, claim)
        connection.commit()

    def _move_quota(self, connection: Connection, claim: Claim) -> ConfirmAnswer | None:
        """Lock all rows of the sku, look again, and fill up the segment from the richest. None: there is room now."""
        rows = lock_segments(connection, claim.sku)
        answer = self._look(connection, claim)
        if answer is not None:
            return answer
        moves = plan_moves(rows, claim.segment, claim.order.quantity)
        if moves:
            changes = [{"given_sku": claim.sku, "given_segment": move.segment, "change": move.change} for move in moves]
            connection.execute(MOVE_QUOTA, changes)
        return None


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
