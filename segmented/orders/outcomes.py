"""Tell a program how orders ended, each at least once: the ledger that was relayed to the database says it.

1. The ledger is relayed first. A row in `segmented_outcomes` says which of its changes were told last.
2. The changes behind it that end orders are told, and then the row moves. So a process that dies tells them again.
3. A rebuilt pool may have lost its last changes, and the database has decided their orders: before the first change of
   the new epoch, each decided order that no ledger has is told.
4. Orders in the dead-letter set have no change in the ledger. Their time says which were told.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from sqlalchemy import and_, exists, insert, select, update
from sqlalchemy.exc import IntegrityError

from segmented import protocol as op
from segmented.orders.answers import stored_as
from segmented.orders.tables import CONFIRMED, behind, ledger, orders, outcomes
from segmented.plans import run_sync
from segmented.stock import ShardedPool
from segmented.stock.outbox import dead_plan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection

    from segmented.orders.database import OrderDatabase
    from segmented.stock import Pool

OnOutcome: TypeAlias = Callable[[str, str, str], object]
"""Gets the order id, its state and the reason, which is empty if there is none."""


def tell_outcomes(
    pool: Pool | ShardedPool, gate: OrderDatabase, on_outcome: OnOutcome, *, goes_on: Callable[[], bool]
) -> int:
    """Call `on_outcome` with every order of a relayed pool that has ended since the last call; returns how many.

    At least once for each: again after a crash, a failed call, or a rebuild. In the order of the changes; an error of
    `on_outcome` passes through, and the next call begins with that order. Ends when `goes_on` says no.
    """
    shards = pool.shards if isinstance(pool, ShardedPool) else (pool,)
    return sum(_Telling(pool.sku, number, shard, gate).run(on_outcome, goes_on) for number, shard in enumerate(shards))


class _Telling:
    """The outcomes of one shard."""

    def __init__(self, base: str, number: int, shard: Pool, gate: OrderDatabase) -> None:
        self._shard = shard.plain
        self._rows = OutcomeRows(gate, base, number, shard.sku)

    def run(self, on_outcome: OnOutcome, goes_on: Callable[[], bool]) -> int:
        count = 0
        while goes_on():
            place = self._rows.place()
            page = list(self._next(place))
            if not page:
                break
            reached = place
            try:
                for after, order_id, state, reason in page:
                    if order_id:
                        on_outcome(order_id, state, reason)
                        count += 1
                    reached = after
            finally:
                is_alone = self._rows.move(place, reached)
            if not is_alone:
                break  # another process tells them, too
        return count

    def _next(self, place: Place) -> Iterator[Outcome]:
        epoch = self._shard.epoch(at_least=place.epoch)
        page = self._rows.changes(place)
        if page and page[0][0].epoch == place.epoch:
            yield from (one for one in page if one[0].epoch == place.epoch)
        elif epoch > place.epoch:
            lost = self._rows.unrelayed(place)
            yield from lost
            if len(lost) < PAGE:
                yield (
                    replace(place, epoch=page[0][0].epoch if page else epoch, sequence=0, line=0, caught_up=""),
                    "",
                    "",
                    "",
                )
        else:
            yield from self._dead(place)

    def _dead(self, place: Place) -> Iterator[Outcome]:
        store, sku = self._shard.store, self._shard.sku
        (now,) = store.execute(op.ReadSubmitted(sku, ("_",)))
        found = [one for one in run_sync(dead_plan(sku), store) if place.dead_ms <= one.at_ms < now.read_at_ms]
        for one in found:
            yield replace(place, dead_ms=one.at_ms), one.order_id, "dead", one.reason
        if found:
            yield replace(place, dead_ms=now.read_at_ms), "", "", ""


# --- the rows: orders that ended, in a relayed ledger or in the database alone, and how far they were reported ---

ENDS: Final = ("confirmed", "cancelled", "expired", "refused", "returned")
"""Kinds of changes that end an order."""
PAGE: Final = 100


@dataclass(frozen=True, slots=True)
class Place:
    """How far the outcomes of a shard, or of a pool in one piece, were reported."""

    epoch: int = 1
    sequence: int = 0
    line: int = 0
    """Up to this line of this change."""
    dead_ms: int = 0
    """Orders that died before this time, by the stock server's clock."""
    caught_up: str = ""
    """While orders without a ledger are reported: the last id that was."""


Outcome: TypeAlias = tuple[Place, str, str, str]
"""The place once it is reported, order id, state and reason."""


class OutcomeRows:
    """The rows of one shard: its ledger, its orders, and which of them were reported."""

    def __init__(self, gate: OrderDatabase, base: str, number: int, sku: str) -> None:
        """Create for a shard of the sale `base`, whose orders are stored under `sku`."""
        self._run = gate.run
        self._key = {"sku": base, "shard": number}
        self._sku = sku

    def place(self) -> Place:
        """Read how far outcomes were reported; the first call inserts the row."""
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
        """Note what was reported since; False if another process has done so."""
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
        """Read the next decided orders that the ledger does not mention."""
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
