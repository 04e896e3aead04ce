"""Handles: what a caller gets for a submitted order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from segmented.errors import OrderUnknown
from segmented.models.orders import Busy, Closed, Decided, LimitReached, Settled, SoldOut, fate_of
from segmented.models.submitted import Accepted, Dead, Queued, Submitted, SubmittedState

if TYPE_CHECKING:
    from segmented.models import OrderState

HandleStateName = SubmittedState | Literal["unread"]
Outcome = Settled | Decided | SoldOut | Closed | LimitReached | Busy | Dead
"""The outcome of a submitted order: Settled, which is true in a condition, if it is sold; otherwise false: its other
final state (Decided), a refusal at submission, or dead.

Busy is a refusal at submission: more holds had expired than could be returned first. Submit the order again.
"""


class HandleState:
    """An order's last known state; shared by the sync and the async handle."""

    def __init__(self, sku: str, order_id: str, accepted: Accepted | None) -> None:
        """Create the state of an order; `accepted` is the answer if it has just been submitted."""
        self.sku = sku
        self.order_id = order_id
        self._state: HandleStateName = "unread"
        self._outcome: Outcome | None = None
        match accepted:
            case None:
                pass
            case Queued():
                self._state = "queued"
            case Decided():
                self._state, self._outcome = accepted.state, fate_of(accepted)
            case SoldOut() | Closed() | LimitReached() | Busy():
                self._state, self._outcome = "refused", accepted
            case _:
                self._state = "reserved"

    @property
    def state(self) -> HandleStateName:
        """The last state seen, or "unread" before the first `refresh` or `wait`; a dead order may be replayed."""
        return self._state

    @property
    def outcome(self) -> Outcome | None:
        """The order's outcome, if it has been seen."""
        return self._outcome

    def note(self, found: Submitted, settled: Settled | None = None) -> SubmittedState:
        """Keep what the store says of the order, or the order database's answer."""
        if settled is not None:
            self._state, self._outcome = settled.state, fate_of(settled)
            return settled.state
        if found.state == "unknown" and self._outcome is not None:
            return "refused"  # at submission, so no record is kept
        self._state, self._outcome = found.state, None
        if found.state == "dead":
            self._outcome = Dead(found.order_id, found.begun)
        elif found.record is not None and found.state not in {"queued", "reserved"}:
            self._outcome = _fate(found)
        return found.state

    @property
    def _is_open(self) -> bool:
        """Return whether the outcome may still change; a dead order may have been replayed."""
        return self._outcome is None or isinstance(self._outcome, Dead)

    def _known_outcome(self) -> Outcome | None:
        if self._state == "unknown":
            raise OrderUnknown(self.order_id)
        return self._outcome

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.sku!r}, {self.order_id!r}, {self._state})"


def _fate(found: Submitted) -> Settled | Decided | None:
    record = found.record
    if record is None:
        return None
    state: OrderState = record.state
    units = record.quantity or (record.asked if state == "confirmed" else 0)  # 0: it was sold before it had units here
    fields = (record.order_id, state, units, record.segment, record.fencing_token, record.sequence, True)
    return fate_of(Decided(*fields))
