"""Confirm one order, or an envelope of orders.

One order takes up to three steps, each only if the one before gave no answer:

1. one statement that takes the units and inserts the order, or changes nothing;
2. one read of everything that explains why nothing changed;
3. only for a full segment of a sku that has units left: all its rows are locked, and quota moves to it.

Locks are taken in the same order everywhere, segment rows ascending and then the order's row, so there is no deadlock.
Every step can be repeated: an existing order is found by its key, and its units are not taken again.

An envelope takes one transaction, however many orders it has and whatever their outcomes. On PostgreSQL one statement
stores the usual envelope, or changes nothing: `postgresql.py` says which one that is. Otherwise:

1. The rows of the segments that the orders name are locked, ascending, and existing orders are read.
2. Each order's answer is decided from that; no other process can change these rows meanwhile.
3. One statement (two on SQLite) writes rows and orders, if the rows are unchanged since the read; commit.

Only if a segment has too few units, it starts again with all rows of the sku locked, so that quota can move. The orders
are inserted in the order of their ids, because two envelopes may name the same orders and different segments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

from sqlalchemy import Connection
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError

from segmented.errors import StoreRefused
from segmented.locks.sql_edge import BROKEN, is_unbroken, mark_begun
from segmented.models import Order
from segmented.models.ids import counted
from segmented.models.submitted import one_line
from segmented.orders.answers import Confirmed, Voided
from segmented.orders.deciding import classify, decide, plan_moves
from segmented.orders.engine import is_conflict
from segmented.orders.statements import given_values, lock_segments, move_quota, order_values, read_standing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from segmented.errors import OrderMismatch
    from segmented.orders.answers import ConfirmAnswer, SegmentRow
    from segmented.orders.deciding import Claim, Decision
    from segmented.orders.statements import Statements

StoreWith: TypeAlias = Callable[[Connection, list[Order]], object]
"""Stores the caller's own rows in the transaction that stores these orders."""
MOVES_MAX: Final = 20
"""Maximum number of times that quota moves in one `begin_confirmed`; after each, other orders took it again."""
ENVELOPE_MAX: Final = 1_000
"""Maximum number of orders in one transaction, which locks their segments' rows until its end."""
TRIES_MAX: Final = 3
"""Maximum number of times that other processes may decide the envelope's orders between the read and the insert."""


class Confirming:
    """Confirms orders, one or an envelope.

    Connections are in autocommit; drivers' errors pass through, and the gate translates them.
    """

    def __init__(self, statements: Statements) -> None:
        """Create with one database's statements."""
        self.statements = statements

    def confirm(self, connection: Connection, claim: Claim) -> ConfirmAnswer:
        """Confirm one order in a transaction of its own. Raises OrderMismatch."""
        try:
            sequence = self.statements.confirm_alone(connection, given_values(claim))
            if sequence is not None:
                return Confirmed(replay=False, sequence=sequence)
            return self._look(connection, claim) or self._confirm_at_tail(connection, claim)
        except IntegrityError as error:
            return self._fate(connection, claim, error)

    def begin_confirmed(self, connection: Connection, claim: Claim) -> ConfirmAnswer:
        """Open a transaction and confirm the order in it; it stays open only for Confirmed that is not a replay.

        Quota moves in transactions of its own, because this one may stay open for long. Raises OrderMismatch.
        """
        for _ in range(MOVES_MAX):
            connection.rollback()
            connection.exec_driver_sql(self.statements.begin)
            try:
                if self.statements.confirm(connection, given_values(claim)) is not None:
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

    def confirm_within(self, connection: Connection, claim: Claim) -> ConfirmAnswer:
        """Confirm the order in the transaction that the caller has begun, and commits. Raises OrderMismatch.

        No statement fails for an order that has a row, because that would abort the caller's transaction.
        """
        values = given_values(claim)
        sequence = self.statements.confirm_within(connection, values)
        if sequence is None:
            look = self._look_within
            answer = look(connection, claim) or self._move_quota(connection, claim, look)
            if answer is not None:
                return answer
            sequence = self.statements.confirm_within(connection, values)
        if sequence is not None:
            return Confirmed(replay=False, sequence=sequence)
        answer = self._look_within(connection, claim)
        if answer is None:
            message = f"segment {claim.segment} of {claim.sku!r} refused {claim.order.order_id!r} with room for it"
            raise StoreRefused(message)
        return answer

    def refuse_within(self, connection: Connection, sku: str, order_id: str) -> bool:
        """Void an unknown order in the caller's transaction, so that it is never sold; False if it has a row by now."""
        return self.statements.void(connection, order_values(sku, Order(order_id)))

    def _look(self, connection: Connection, claim: Claim) -> ConfirmAnswer | None:
        return classify(claim, read_standing(connection, given_values(claim)))

    def _look_within(self, connection: Connection, claim: Claim) -> ConfirmAnswer | None:
        return classify(claim, self.statements.read_within(connection, given_values(claim)))

    def _fate(self, connection: Connection, claim: Claim, error: IntegrityError) -> ConfirmAnswer:
        """Return the answer from the order's row. Without a row another constraint failed: raises the error again."""
        connection.rollback()
        answer = self._look(connection, claim)
        if isinstance(answer, Confirmed | Voided):
            return answer
        raise error

    def _confirm_at_tail(self, connection: Connection, claim: Claim) -> ConfirmAnswer:
        """Move quota and confirm under the same locks, so that no other order can take the units in between."""
        connection.exec_driver_sql(self.statements.begin)
        answer = self._move_quota(connection, claim, self._look)
        if answer is not None:
            connection.rollback()
            return answer
        sequence = self.statements.confirm(connection, given_values(claim))
        if sequence is None:
            message = f"segment {claim.segment} of {claim.sku!r} refused {claim.order.order_id!r} with room for it"
            raise StoreRefused(message)
        connection.commit()
        return Confirmed(replay=False, sequence=sequence)

    def _make_room(self, connection: Connection, claim: Claim) -> None:
        """Move quota; the next attempt finds what has become of the order."""
        connection.exec_driver_sql(self.statements.begin)
        self._move_quota(connection, claim, self._look)
        connection.commit()

    def _move_quota(
        self, connection: Connection, claim: Claim, look: Callable[[Connection, Claim], ConfirmAnswer | None]
    ) -> ConfirmAnswer | None:
        """Lock all rows of the sku, read again, and fill the segment from the fullest ones. None: there is room now."""
        rows = lock_segments(connection, claim.sku)
        answer = look(connection, claim)
        if answer is not None:
            return answer
        move_quota(connection, claim.sku, plan_moves(rows, claim.segment, claim.order.quantity))
        return None

    # --- envelopes ---

    def confirm_many(
        self, connection: Connection, claims: Sequence[Claim], store_with: StoreWith | None = None
    ) -> list[ConfirmAnswer | OrderMismatch] | None:
        """Confirm one or more orders of one sku, each as if alone and in this order, in one transaction.

        `store_with` is called in it with the orders that are new. Returns None if the decision could not be written,
        and nothing changed. Which order prevented it is unknown. Raises StoreRefused if `store_with` fails.
        """
        plain = self._confirm_plain(connection, claims) if store_with is None else None
        if plain is not None:
            return list(plain)
        for _ in range(TRIES_MAX):
            try:
                decision = self._try(connection, claims, store_with, are_all_rows=False)
                if decision is None:
                    decision = self._try(connection, claims, store_with, are_all_rows=True)
            except IntegrityError:  # an order was decided since the read: the next read finds it
                connection.rollback()
                continue
            return None if decision is None else list(decision.answers)
        return None

    def _confirm_plain(self, connection: Connection, claims: Sequence[Claim]) -> list[Confirmed] | None:
        """Confirm all orders in one statement. None: nothing changed, and the rules below decide."""
        try:
            return self.statements.confirm_plain(connection, claims)
        except (IntegrityError, DataError):  # some order has a row, or a value that cannot be stored
            connection.rollback()
        except DBAPIError as error:
            if not is_conflict(error):
                raise
            connection.rollback()
        return None

    def _try(
        self, connection: Connection, claims: Sequence[Claim], store_with: StoreWith | None, *, are_all_rows: bool
    ) -> Decision | None:
        connection.exec_driver_sql(self.statements.begin)
        rows = locked_rows(self.statements, connection, claims, are_all_rows=are_all_rows)
        ids = sorted({claim.order.order_id for claim in claims})
        orders = self.statements.find_orders(connection, claims[0].sku, ids)
        decision = decide(claims, rows, orders, are_all_rows=are_all_rows)
        if decision is None:
            connection.rollback()
            return None
        if decision.confirmed and not self.statements.store_many(connection, decision):
            connection.rollback()
            return None
        if store_with is not None and decision.confirmed:
            _call(store_with, connection, [claim.order for claim in decision.confirmed])
        connection.commit()
        return decision


def _call(store_with: StoreWith, connection: Connection, orders: list[Order]) -> None:
    """Let the caller store rows of its own in the transaction; its failure rolls all of it back."""
    mark_begun(connection)
    try:
        store_with(connection, orders)
    except Exception as error:
        if isinstance(error, DBAPIError) and error.connection_invalidated:
            raise
        connection.rollback()
        message = f"what is stored with {counted(len(orders), 'order')} failed: {one_line(repr(error))}"
        raise StoreRefused(message) from error
    if not is_unbroken(connection):
        connection.rollback()
        raise StoreRefused(f"what is stored with {counted(len(orders), 'order')} failed: {BROKEN}")


def locked_rows(
    statements: Statements, connection: Connection, claims: Sequence[Claim], *, are_all_rows: bool
) -> Sequence[SegmentRow]:
    """Lock the rows of the segments that claims of one sku name, or all of the sku, ascending."""
    if are_all_rows:
        return lock_segments(connection, claims[0].sku)
    numbers = sorted({claim.segment for claim in claims})
    return statements.lock_these(connection, claims[0].sku, numbers)
