"""The gate against a small model, for any sequence of calls.

On SQLite, because it is quick: the words it speaks are its own, but everything that decides is shared.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from segmented.errors import ChangeMismatch, OrderMismatch
from segmented.orders import Gate, connect
from segmented.orders.answers import (
    AlreadyConfirmed,
    ChangeAnswer,
    ConfirmAnswer,
    Confirmed,
    EpochChanged,
    Missing,
    SoldOut,
    State,
    Stored,
    Superseded,
    TooFewUnsold,
    VoidAnswer,
    Voided,
)
from segmented.orders.stocking import Change, Kind

QUOTAS = (3, 0, 5)
ORDER_IDS = st.sampled_from([f"o-{number}" for number in range(8)])
CHANGE_IDS = st.sampled_from(["c-1", "c-2", "c-3"])
QUANTITIES = st.integers(1, 4)
SEGMENTS_MAX = len(QUOTAS) + 2


class GateMachine(RuleBasedStateMachine):
    """Calls the gate and the model alike."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.gate = Gate(connect(f"sqlite:///{Path(self.folder.name) / 'orders.sqlite'}", pool_size=1))
        self.gate.create()
        self.gate.open("mug", QUOTAS)
        self.fates: dict[str, tuple[str, int]] = {}
        self.fences = [0] * len(QUOTAS)
        self.quota = sum(QUOTAS)
        self.changes: dict[str, tuple[Kind, int, State]] = {}

    @rule(
        order_id=ORDER_IDS,
        quantity=QUANTITIES,
        segment=st.integers(0, SEGMENTS_MAX),
        epoch=st.sampled_from([1, 1, 1, 1, 2]),
        fence=st.none() | st.integers(0, 5),
    )
    def confirm(self, order_id: str, quantity: int, segment: int, epoch: int, fence: int | None) -> None:
        answer = outcome(
            lambda: self.gate.confirm(
                order_id=order_id, sku="mug", segment=segment, quantity=quantity, epoch=epoch, fence=fence
            )
        )
        assert answer == self.confirmed(order_id, quantity, segment, epoch, fence)

    @rule(order_id=ORDER_IDS, quantity=QUANTITIES)
    def void(self, order_id: str, quantity: int) -> None:
        answer = outcome(lambda: self.gate.void(order_id=order_id, sku="mug", quantity=quantity))
        assert answer == self.voided(order_id, quantity)

    @rule(change_id=CHANGE_IDS, units=QUANTITIES, segment_count=st.integers(1, SEGMENTS_MAX))
    def begin_restock(self, change_id: str, units: int, segment_count: int) -> None:
        change = Change("mug", change_id, "restocked", units, 1)
        is_new = change_id not in self.changes
        answer = changed(lambda: self.gate.stocking.begin(change, segment_count))
        assert answer == self.begun(change)
        self.quota += units * is_new

    @rule(change_id=CHANGE_IDS, units=QUANTITIES)
    def begin_withdrawal(self, change_id: str, units: int) -> None:
        change = Change("mug", change_id, "withdrawn", units, 1)
        assert changed(lambda: self.gate.stocking.begin(change, 1)) == self.begun(change)

    @rule(change_id=CHANGE_IDS, kind=st.sampled_from(["restocked", "withdrawn"]), units=QUANTITIES)
    def finish(self, change_id: str, kind: Kind, units: int) -> None:
        change = Change("mug", change_id, kind, units, 1)
        assert changed(lambda: self.gate.stocking.finish(change)) == self.ended(change, "done", kind == "withdrawn")

    @rule(change_id=CHANGE_IDS, units=QUANTITIES)
    def undo(self, change_id: str, units: int) -> None:
        change = Change("mug", change_id, "restocked", units, 1)
        assert changed(lambda: self.gate.stocking.undo(change)) == self.ended(change, "undone", True)  # noqa: FBT003  # it lowers

    @rule(segment_count=st.integers(1, SEGMENTS_MAX), epoch=st.sampled_from([1, 1, 1, 2]))
    def add_segments(self, segment_count: int, epoch: int) -> None:
        answer = self.gate.stocking.add_segments("mug", segment_count, epoch=epoch)
        if epoch != 1:
            assert answer == EpochChanged(1)
            return
        assert answer == Stored(replay=segment_count <= len(self.fences), state="done", epoch=1)
        self.fences += [0] * (segment_count - len(self.fences))

    def begun(self, change: Change) -> Stored | None:
        known = self.changes.setdefault(change.change_id, (change.kind, change.units, "new"))  # type: ignore[arg-type]  # a state of the model's own
        if known[:2] != (change.kind, change.units):
            return None
        if known[2] == "new":  # type: ignore[comparison-overlap]  # as above
            self.changes[change.change_id] = (change.kind, change.units, "begun")
            return Stored(replay=False, state="begun", epoch=1)
        return Stored(replay=True, state=known[2], epoch=1)

    def ended(self, change: Change, state: State, lowers: bool) -> Stored | Missing | TooFewUnsold | None:  # noqa: FBT001  # of the model alone
        if change.change_id not in self.changes:
            return Missing()
        kind, units, known = self.changes[change.change_id]
        if (kind, units) != (change.kind, change.units):
            return None
        if known != "begun":
            return Stored(replay=True, state=known, epoch=1)
        if lowers and self.quota - self.sold() < units:
            return TooFewUnsold(self.quota, self.sold())
        self.quota -= units * lowers
        self.changes[change.change_id] = (kind, units, state)
        return Stored(replay=False, state=state, epoch=1)

    def confirmed(
        self, order_id: str, quantity: int, segment: int, epoch: int, fence: int | None
    ) -> ConfirmAnswer | None:
        if order_id in self.fates:
            state, stored = self.fates[order_id]
            if state == "void":  # with any content: what is void is not sold
                return Voided(replay=True)
            return Confirmed(replay=True) if stored == quantity else None
        if segment >= len(self.fences):
            return Missing()
        if epoch != 1:
            return EpochChanged(1)
        if fence is not None and fence < self.fences[segment]:
            return Superseded(self.fences[segment])
        if self.sold() + quantity > self.quota:
            return SoldOut(self.quota, self.sold())
        self.fates[order_id] = ("confirmed", quantity)
        if fence is not None:
            self.fences[segment] = fence
        return Confirmed(replay=False)

    def voided(self, order_id: str, quantity: int) -> VoidAnswer | None:
        state, stored = self.fates.setdefault(order_id, ("new", quantity))
        if state == "new":
            self.fates[order_id] = ("void", quantity)
            return Voided(replay=False)
        if state == "void":
            return Voided(replay=True)
        return AlreadyConfirmed() if stored == quantity else None

    def sold(self) -> int:
        return sum(quantity for state, quantity in self.fates.values() if state == "confirmed")

    @invariant()
    def rows_orders_and_model_agree(self) -> None:
        totals = self.gate.totals("mug")
        assert (totals.quota, totals.sold) == (self.quota, self.sold())
        assert self.gate.confirmed_units("mug") == self.sold()
        assert [row.fence for row in totals.segments] == self.fences
        begun = {change_id: found[:2] for change_id, found in self.changes.items() if found[2] == "begun"}
        assert {row.change_id: (row.kind, row.units) for row in self.gate.unfinished_changes("mug")} == begun
        assert {row.order_id: (row.state, row.quantity) for row in self.gate.each_order("mug")} == self.fates

    def teardown(self) -> None:
        self.gate.close()
        self.folder.cleanup()


def outcome(call: Callable[[], ConfirmAnswer | VoidAnswer]) -> ConfirmAnswer | VoidAnswer | None:
    """Return the answer, or None for the error about other content."""
    try:
        return call()
    except OrderMismatch:
        return None


def changed(call: Callable[[], ChangeAnswer | TooFewUnsold]) -> ChangeAnswer | TooFewUnsold | None:
    """Return the answer, or None for the error about another change."""
    try:
        return call()
    except ChangeMismatch:
        return None


TestGateMachine = GateMachine.TestCase
TestGateMachine.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
