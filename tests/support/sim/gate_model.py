"""The order database in memory: one row per segment, one per order; written from the pages, not from the gate's code.

An order is confirmed or void, once. A confirm needs the row's epoch, and a token that is not below the row's.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, Literal

from segmented.models import Order
from segmented.orders import answers
from segmented.orders.stocking import Change
from tests.support.sim.forgetful_world import Do
from tests.support.sim.simulator import Sleep
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


@dataclass(frozen=True, slots=True)
class StoredChange:
    """One restock or withdrawal."""

    kind: Literal["restocked", "withdrawn"]
    units: int
    state: Literal["begun", "done", "undone"]
    epoch: int


@dataclass(slots=True)
class GateModel:
    """The database of one pool. Each method is one transaction."""

    rows: list[Row]
    stored: dict[str, StoredOrder] = field(default_factory=dict)
    opened: int = 1
    """Epoch in which the pool was last known to be open."""
    superseded: int = 0
    overtaken: int = 0
    """How often the epoch changed while a process was held up between the database and the pool."""
    changes: dict[str, StoredChange] = field(default_factory=dict)

    @property
    def quota(self) -> int:
        return sum(row.quota for row in self.rows)

    @property
    def sold(self) -> int:
        return sum(row.sold for row in self.rows)

    def confirm(
        self,
        *,
        order_id: str,
        segment: int,
        quantity: int,
        epoch: int,
        fence: int | None = None,
        sequence: int = 0,
        **_: object,
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

    def void(self, *, order_id: str, quantity: int, **_: object) -> answers.VoidAnswer:
        known = self.stored.get(order_id)
        if known is not None:
            return answers.Voided(replay=True) if known.state == "void" else answers.AlreadyConfirmed()
        self.stored[order_id] = StoredOrder("void", quantity)
        return answers.Voided(replay=False)

    def void_many(self, _: str, orders: Iterable[Order]) -> bool:
        rows = {order.order_id: StoredOrder("void", order.quantity) for order in orders}
        if self.stored.keys() & rows.keys():
            return False
        self.stored.update(rows)
        return True

    def raise_epoch(self, *_: object, epoch: int, opened: int | None, **__: object) -> answers.SegmentTotals | None:
        if any(row.epoch > epoch for row in self.rows) or self.opened != (opened or 0):
            return None
        if self.rows[0].epoch < epoch:  # a pool of the later epoch includes restocks, which are in the quota
            for change_id, one in self.changes.items():
                if (one.kind, one.state) == ("restocked", "begun"):
                    self.changes[change_id] = replace(one, state="done")
        for row in self.rows:
            row.sequence = row.sequence if row.epoch == epoch else 0
            row.epoch = epoch
        return self.totals()

    def begin_restock(self, change: Change, _: int) -> answers.ChangeAnswer:
        return self.begin_withdrawal(change)

    def begin_withdrawal(self, change: Change) -> answers.ChangeAnswer:
        """Begin a restock, whose units the quota has from now on, or a withdrawal."""
        if self.rows[0].epoch != change.epoch:
            return answers.EpochChanged(self.rows[0].epoch)
        known = self.changes.get(change.change_id)
        if known is not None:
            return answers.Stored(replay=True, state=known.state, epoch=known.epoch)
        assert change.kind != "opened"
        self.changes[change.change_id] = StoredChange(change.kind, change.units, "begun", change.epoch)
        self.rows[0].quota += change.units if change.kind == "restocked" else 0
        return answers.Stored(replay=False, state="begun", epoch=change.epoch)

    def undo(self, change: Change) -> answers.ChangeAnswer:
        """Undo a withdrawal whose units are sold."""
        if self.rows[0].epoch != change.epoch:
            return answers.EpochChanged(self.rows[0].epoch)
        known = self.changes[change.change_id]
        assert (known.kind, known.state) == ("withdrawn", "begun")
        self.changes[change.change_id] = replace(known, state="undone")
        return answers.Stored(replay=False, state="undone", epoch=change.epoch)

    def finish(self, change: Change) -> answers.ChangeAnswer | answers.TooFewUnsold:
        """End a change that the pool has made; the quota of a withdrawal falls only now."""
        if self.rows[0].epoch != change.epoch:
            return answers.EpochChanged(self.rows[0].epoch)
        known = self.changes[change.change_id]
        if known.state != "begun":
            return answers.Stored(replay=True, state=known.state, epoch=known.epoch)
        left = change.units if change.kind == "withdrawn" else 0
        if self.quota - self.sold < left:
            return answers.TooFewUnsold(self.quota, self.sold)
        for row in self.rows:
            taken = min(left, row.quota - row.sold)
            row.quota, left = row.quota - taken, left - taken
        self.changes[change.change_id] = replace(known, state="done", epoch=change.epoch)
        return answers.Stored(replay=False, state="done", epoch=change.epoch)

    def unfinished_changes(self, _: str) -> tuple[answers.ChangeRow, ...]:
        return tuple(
            answers.ChangeRow(change_id, one.kind, one.units, one.state, one.epoch, EPOCH_START)
            for change_id, one in self.changes.items()
            if one.state == "begun"
        )

    def note_opened(self, _: str, *, epoch: int) -> answers.ChangeAnswer:
        if self.rows[0].epoch != epoch:
            return answers.EpochChanged(self.rows[0].epoch)
        is_known, self.opened = self.opened >= epoch, max(self.opened, epoch)
        return answers.Stored(replay=is_known, state="done", epoch=epoch)

    def opened_epoch(self, _: str) -> int:
        return self.opened

    def note_terms(self, _: object) -> None:
        """Keep nothing: only a reopen reads a sale's terms."""

    def is_decided(self, _: str, order_id: str) -> bool:
        return order_id in self.stored

    def totals(self, *_: object) -> answers.SegmentTotals:
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

    WRITES: Final = ("confirm", "begin_restock", "begin_withdrawal")

    def __init__(self, store: SteppedStore, model: GateModel) -> None:
        self._store, self._model = store, model
        self.held_up: Callable[[], float] = lambda: 0.0
        """Seconds for which the process is held up after a write to the database."""
        self.stocking = self

    def __getattr__(self, name: str) -> Callable[..., Any]:
        act = getattr(self._model, name)

        def call(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401  # those of the model's methods
            found = self._store.ask(Do(partial(act, *arguments, **options)))
            if name in self.WRITES:
                self._wait()
            return found

        return call

    def _wait(self) -> None:
        """Be held up, so that failovers and rebuilds come between the database and the pool."""
        before, seconds = self._model.rows[0].epoch, self.held_up()
        if seconds:
            self._store.ask(Sleep(seconds))
            self._model.overtaken += self._model.rows[0].epoch != before
