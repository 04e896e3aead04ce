"""The rows of outcomes: what ended in a relayed ledger, or in the database alone, and how far it was told."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from sqlalchemy import and_, exists, insert, select, update
from sqlalchemy.exc import IntegrityError

from segmented.orders.answers import stored_as
from segmented.orders.tables import CONFIRMED, behind, ledger, orders, outcomes

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from segmented.orders.statements import Run

ENDS: Final = ("confirmed", "cancelled", "expired", "refused", "returned")
"""Kinds of changes that end an order."""
PAGE: Final = 100


@dataclass(frozen=True, slots=True)
class Place:
    """What was told of a shard, or of a pool in one piece."""

    epoch: int = 1
    sequence: int = 0
    line: int = 0
    """Up to this line of this change."""
    dead_ms: int = 0
    """Orders that died before this time, by the stock server's clock."""
    caught_up: str = ""
    """Orders up to this id that no ledger has, while they are told."""


Outcome: TypeAlias = tuple[Place, str, str, str]
"""The place once it is told, order id, state and reason."""


class OutcomeRows:
    """The rows of one shard: its ledger, its orders, and what was told of them."""

    def __init__(self, run: Run, base: str, number: int, sku: str) -> None:
        """Create for a shard of the sale `base`, whose orders are stored under `sku`."""
        self._run = run
        self._key = {"sku": base, "shard": number}
        self._sku = sku

    def place(self) -> Place:
        """Read what was told, and insert the row at the first time."""
        columns = [column for column in outcomes.c if column.name not in self._key]

        def work(connection: Connection) -> Place | None:
            found = connection.execute(select(*columns).where(*self._is_this())).one_or_none()
            if found is not None:
                return Place(*found)
            try:
                connection.execute(insert(outcomes).values(self._key))
            except IntegrityError:  # another process was faster
                connection.rollback()
            return None

        return self._run(work) or self._run(work) or Place()

    def move(self, before: Place, after: Place) -> bool:
        """Note what was told since; False if another process has done so."""
        same = [outcomes.c[name] == value for name, value in asdict(before).items()]

        def work(connection: Connection) -> bool:
            done = connection.execute(update(outcomes).where(*self._is_this(), *same).values(asdict(after)))
            return done.rowcount == 1

        return self._run(work)

    def changes(self, place: Place) -> list[Outcome]:
        """Read the next changes that end orders."""
        at = (ledger.c.epoch, ledger.c.sequence, ledger.c.line)
        row = and_(orders.c.sku == self._sku, orders.c.order_id == ledger.c.order_id)
        chosen = (
            select(*at, ledger.c.kind, ledger.c.order_id, ledger.c.note, orders.c.state, orders.c.reason)
            .select_from(ledger.outerjoin(orders, row))
            .where(
                ledger.c.sku == self._key["sku"],
                ledger.c.shard == self._key["shard"],
                behind(*at, place.epoch, place.sequence, place.line),
                ledger.c.kind.in_(ENDS),
            )
            .order_by(*at)
            .limit(PAGE)
        )

        def work(connection: Connection) -> list[Outcome]:
            return [
                (
                    replace(place, epoch=found.epoch, sequence=found.sequence, line=found.line),
                    found.order_id,
                    *_outcome(found.kind, found.note, found.state, found.reason),
                )
                for found in connection.execute(chosen)
            ]

        return self._run(work)

    def unrelayed(self, place: Place) -> list[Outcome]:
        """Read the next decided orders of which the ledger says nothing."""
        told = select(ledger.c.line).where(
            ledger.c.sku == self._key["sku"], ledger.c.order_id == orders.c.order_id, ledger.c.kind.in_(ENDS)
        )
        chosen = (
            select(orders.c.order_id, orders.c.state, orders.c.segment, orders.c.reason)
            .where(orders.c.sku == self._sku, orders.c.order_id > place.caught_up, ~exists(told))
            .order_by(orders.c.order_id)
            .limit(PAGE)
        )

        def work(connection: Connection) -> list[Outcome]:
            return [
                (
                    replace(place, caught_up=found.order_id),
                    found.order_id,
                    "declined" if found.reason else stored_as(found.state, found.segment),
                    found.reason or "",
                )
                for found in connection.execute(chosen)
            ]

        return self._run(work)

    def _is_this(self) -> list[Any]:
        return [outcomes.c[name] == value for name, value in self._key.items()]


def _outcome(kind: str, note: str | None, stored: str | None, reason: str | None) -> tuple[str, str]:
    """Return state and reason of a change that ends an order."""
    if kind == "cancelled" and stored == CONFIRMED:  # the pool gave back units of an order sold in an earlier epoch
        return "confirmed", ""
    if kind == "cancelled" and reason:
        return "declined", reason
    return kind, (note or "").partition(" ")[2] if kind == "returned" else ""
