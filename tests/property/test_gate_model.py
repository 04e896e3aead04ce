"""The gate against a small model, for any sequence of calls.

On SQLite, because it is quick: the words it speaks are its own, but everything that decides is shared.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from segmented.errors import OrderMismatch
from segmented.orders import Gate, connect
from segmented.orders.answers import (
    AlreadyConfirmed,
    ConfirmAnswer,
    Confirmed,
    EpochChanged,
    Missing,
    SoldOut,
    Superseded,
    VoidAnswer,
    Voided,
)

if TYPE_CHECKING:
    from collections.abc import Callable

QUOTAS = (3, 0, 5)
ORDER_IDS = st.sampled_from([f"o-{number}" for number in range(8)])
QUANTITIES = st.integers(1, 4)


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

    @rule(
        order_id=ORDER_IDS,
        quantity=QUANTITIES,
        segment=st.integers(0, len(QUOTAS)),
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

    def confirmed(
        self, order_id: str, quantity: int, segment: int, epoch: int, fence: int | None
    ) -> ConfirmAnswer | None:
        if order_id in self.fates:
            state, stored = self.fates[order_id]
            if stored != quantity:
                return None
            return Confirmed(replay=True) if state == "confirmed" else Voided(replay=True)
        if segment >= len(QUOTAS):
            return Missing()
        if epoch != 1:
            return EpochChanged(1)
        if fence is not None and fence < self.fences[segment]:
            return Superseded(self.fences[segment])
        if self.sold() + quantity > sum(QUOTAS):
            return SoldOut(sum(QUOTAS), self.sold())
        self.fates[order_id] = ("confirmed", quantity)
        if fence is not None:
            self.fences[segment] = fence
        return Confirmed(replay=False)

    def voided(self, order_id: str, quantity: int) -> VoidAnswer | None:
        state, stored = self.fates.setdefault(order_id, ("new", quantity))
        if state == "new":
            self.fates[order_id] = ("void", quantity)
            return Voided(replay=False)
        if stored != quantity:
            return None
        return Voided(replay=True) if state == "void" else AlreadyConfirmed()

    def sold(self) -> int:
        return sum(quantity for state, quantity in self.fates.values() if state == "confirmed")

    @invariant()
    def rows_orders_and_model_agree(self) -> None:
        totals = self.gate.totals("mug")
        assert (totals.quota, totals.sold) == (sum(QUOTAS), self.sold())
        assert self.gate.confirmed_units("mug") == self.sold()
        assert [row.fence for row in totals.segments] == self.fences
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


TestGateMachine = GateMachine.TestCase
TestGateMachine.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
