"""The order database in memory: one row per segment, one per order; written from the pages, not from the gate's code.

An order is confirmed or void, once. A confirm needs the row's epoch, and a token that is not below the row's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Literal

from segmented.orders import answers
from tests.support.sim.forgetful_world import Do

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.support.sim.stepping import SteppedStore

EPOCH_START: Final = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class Row:
    """One segment."""

    quota: int
    epoch: int = 1
    sold: int = 0
    fence: int = 0
    sequence: int = 0


@dataclass(frozen=True, slots=True)
class StoredOrder:
    """One order."""

    state: Literal["confirmed", "void"]
    quantity: int
    segment: int | None = None
    fence: int | None = None
    epoch: int | None = None


@dataclass(slots=True)
class GateModel:
    """The database of one pool. Each method is one transaction."""

    rows: list[Row]
    stored: dict[str, StoredOrder] = field(default_factory=dict)
    opened: int = 1
    """Epoch in which the pool was last known to be open."""
    superseded: int = 0

    @property
    def quota(self) -> int:
        return sum(row.quota for row in self.rows)

    @property
    def sold(self) -> int:
        return sum(row.sold for row in self.rows)

    def confirm(
        self, order_id: str, segment: int, quantity: int, epoch: int, fence: int | None, sequence: int
    ) -> answers.ConfirmAnswer:
        known = self.stored.get(order_id)
        if known is not None:
            return answers.Voided(replay=True) if known.state == "void" else answers.Confirmed(replay=True)
        row = self.rows[segment]
        if row.epoch != epoch:
            return answers.EpochChanged(row.epoch)
        if fence is not None and fence < row.fence:
            self.superseded += 1
            return answers.Superseded(row.fence)
        if self.quota - self.sold < quantity:
            return answers.SoldOut(self.quota, self.sold)
        for giver in self.rows:  # a full segment gets quota from the others
            moved = max(0, min(giver.quota - giver.sold, quantity - (row.quota - row.sold)))
            if giver is not row:
                giver.quota, row.quota = giver.quota - moved, row.quota + moved
        row.sold += quantity
        row.fence, row.sequence = max(row.fence, fence or 0), max(row.sequence, sequence)
        self.stored[order_id] = StoredOrder("confirmed", quantity, segment, fence, epoch)
        return answers.Confirmed(replay=False)

    def void(self, order_id: str, quantity: int) -> answers.VoidAnswer:
        known = self.stored.get(order_id)
        if known is not None:
            return answers.Voided(replay=True) if known.state == "void" else answers.AlreadyConfirmed()
        self.stored[order_id] = StoredOrder("void", quantity)
        return answers.Voided(replay=False)

    def raise_epoch(self, epoch: int) -> answers.SegmentTotals | None:
        if any(row.epoch > epoch for row in self.rows):
            return None
        for row in self.rows:
            row.sequence = row.sequence if row.epoch == epoch else 0
            row.epoch = epoch
        return self.totals()

    def note_opened(self, epoch: int) -> answers.ChangeAnswer:
        if self.rows[0].epoch != epoch:
            return answers.EpochChanged(self.rows[0].epoch)
        is_known, self.opened = self.opened >= epoch, max(self.opened, epoch)
        return answers.Stored(replay=is_known, state="done", epoch=epoch)

    def totals(self) -> answers.SegmentTotals:
        rows = tuple(
            answers.SegmentRow(number, one.quota, one.sold, one.fence, one.epoch, one.sequence)
            for number, one in enumerate(self.rows)
        )
        return answers.SegmentTotals(self.quota, self.sold, rows)

    def orders(self, sku: str, order_ids: Iterable[str]) -> dict[str, answers.OrderRow]:
        found = {order_id: self.stored[order_id] for order_id in order_ids if order_id in self.stored}
        return {
            order_id: answers.OrderRow(
                sku, order_id, one.state, one.quantity, one.segment, one.fence, one.epoch, None, EPOCH_START
            )
            for order_id, one in found.items()
        }


class SteppedGate:
    """The database as one process sees it: the part of `Gate` and `stocking` that orders need. A call is a step."""

    def __init__(self, store: SteppedStore, model: GateModel) -> None:
        self._store, self._model = store, model
        self.stocking = self

    def confirm(  # noqa: PLR0913  # given by name, as to `Gate.confirm`
        self,
        *,
        order_id: str,
        sku: str,  # noqa: ARG002  # there is one
        segment: int,
        quantity: int,
        epoch: int,
        fence: int | None = None,
        customer_id: str | None = None,  # noqa: ARG002  # there are none
        asked: int | None = None,  # noqa: ARG002  # no order takes a part
        sequence: int = 0,
    ) -> answers.ConfirmAnswer:
        found: answers.ConfirmAnswer = self._store.ask(
            Do(lambda: self._model.confirm(order_id, segment, quantity, epoch, fence, sequence))
        )
        return found

    def void(self, *, order_id: str, sku: str, quantity: int, asked: int | None = None) -> answers.VoidAnswer:  # noqa: ARG002  # as above
        found: answers.VoidAnswer = self._store.ask(Do(lambda: self._model.void(order_id, quantity)))
        return found

    def orders(self, sku: str, order_ids: Iterable[str]) -> dict[str, answers.OrderRow]:
        ids = tuple(order_ids)
        found: dict[str, answers.OrderRow] = self._store.ask(Do(lambda: self._model.orders(sku, ids)))
        return found

    def totals(self, sku: str) -> answers.SegmentTotals:  # noqa: ARG002  # as above
        found: answers.SegmentTotals = self._store.ask(Do(self._model.totals))
        return found

    def unfinished_changes(self, sku: str) -> tuple[answers.ChangeRow, ...]:  # noqa: ARG002  # as above
        return ()  # nobody restocks

    def raise_epoch(self, sku: str, segment_count: int, *, epoch: int) -> answers.SegmentTotals | None:  # noqa: ARG002  # as above
        found: answers.SegmentTotals | None = self._store.ask(Do(lambda: self._model.raise_epoch(epoch)))
        return found

    def note_opened(self, sku: str, *, epoch: int) -> answers.ChangeAnswer:  # noqa: ARG002  # as above
        found: answers.ChangeAnswer = self._store.ask(Do(lambda: self._model.note_opened(epoch)))
        return found

    def opened_epoch(self, sku: str) -> int | None:  # noqa: ARG002  # as above
        found: int | None = self._store.ask(Do(lambda: self._model.opened))
        return found
