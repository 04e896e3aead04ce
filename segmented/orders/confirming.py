"""How an order is confirmed.

In three steps, each taken only where the one before found no answer:

1. one statement that takes the units and inserts the order, or changes nothing;
2. one reading of everything that says why nothing changed;
3. only for a full segment of a sku that has units left: all its rows are locked, and quota moves to it.

Locks are taken in one order everywhere, segment rows ascending and then the order's row, so no two wait for each other.
Every step may run twice: an order that is there already is found by its key, and its units are not taken again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlalchemy.exc import IntegrityError

from segmented.errors import StoreRefused
from segmented.orders.answers import Confirmed, Voided
from segmented.orders.moves import plan_moves
from segmented.orders.reading import lock_segments, read_standing
from segmented.orders.standing import classify
from segmented.orders.statements import MOVE_QUOTA, given_values

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from segmented.orders.answers import ConfirmAnswer
    from segmented.orders.standing import Claim
    from segmented.orders.statements import Statements

MOVES_MAX: Final = 20
"""Times that quota moves for one `begin_confirmed`; each but the first means that other orders took it meanwhile."""


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
