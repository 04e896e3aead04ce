"""What a caller has of an order it has submitted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from segmented import protocol as op
from segmented.errors import OrderUnknown
from segmented.locks.durations import checked_timeout
from segmented.models import Busy, Closed, LimitReached, Settled, SoldOut
from segmented.models.submitted import Accepted, Dead, Queued, Submitted
from segmented.plans import perform, run_async, run_sync
from segmented.stock.outbox import outcome_plan

if TYPE_CHECKING:
    from segmented.models import OrderState
    from segmented.models.submitted import SubmittedState
    from segmented.plans.drivers import AsyncStore, Store

Outcome = Settled | SoldOut | Closed | LimitReached | Busy | Dead
"""What became of a submitted order: its fate, what refused it at the door, or that it was given up.

Busy refuses it at the door as well: more holds had lapsed than could be given back first. Submit it again.
"""


class HandleState:
    """An order's state as far as it is known here; both colours have it."""

    def __init__(self, sku: str, order_id: str, accepted: Accepted | None) -> None:
        """Name an order, and say what it was answered, if it was submitted just now."""
        self.sku = sku
        self.order_id = order_id
        self._state: SubmittedState = "unknown"
        self._outcome: Outcome | None = None
        match accepted:
            case None:
                pass
            case Queued():
                self._state = "queued"
            case Settled():
                self._state, self._outcome = accepted.state, accepted
            case SoldOut() | Closed() | LimitReached() | Busy():
                self._state, self._outcome = "refused", accepted
            case _:
                self._state = "reserved"

    @property
    def state(self) -> SubmittedState:
        """The state that was seen last: queued and reserved are on their way, and a dead one may be replayed."""
        return self._state

    @property
    def outcome(self) -> Outcome | None:
        """What became of the order, if that was seen."""
        return self._outcome

    def _note(self, found: Submitted) -> None:
        if found.state == "unknown" and self._outcome is not None:
            return  # refused at the door, where nothing is kept
        self._state, self._outcome = found.state, None
        if found.state == "dead":
            self._outcome = Dead(found.order_id, found.begun)
        elif found.record is not None and found.state not in {"queued", "reserved"}:
            self._outcome = _fate(found)

    @property
    def _is_open(self) -> bool:
        """May the order become something yet? One that was given up may have been replayed."""
        return self._outcome is None or isinstance(self._outcome, Dead)

    def _known_outcome(self) -> Outcome | None:
        if self._state == "unknown":
            raise OrderUnknown(self.order_id)
        return self._outcome

    def __repr__(self) -> str:
        """Name the order and its state."""
        return f"{type(self).__name__}({self.sku!r}, {self.order_id!r}, {self._state})"


def _fate(found: Submitted) -> Settled | None:
    record = found.record
    if record is None:
        return None
    state: OrderState = record.state
    return Settled(
        record.order_id, state, record.quantity, record.segment, record.fencing_token, record.sequence, replay=True
    )


class OrderHandle(HandleState):
    """A submitted order, for threads."""

    def __init__(self, store: Store, sku: str, order_id: str, accepted: Accepted | None = None) -> None:
        """Belong to a pool."""
        super().__init__(sku, order_id, accepted)
        self._store = store

    def refresh(self) -> SubmittedState:
        """Ask for the state, in one round trip."""
        self._note(run_sync(perform(op.ReadSubmitted(self.sku, (self.order_id,))), self._store)[0])
        return self.state

    def wait(self, timeout: float | None = None) -> Outcome | None:
        """Return what became of the order, at the latest after `timeout` seconds; None: it is on its way still.

        Raises OrderUnknown when the pool knows no such order.
        """
        plan = outcome_plan(self.sku, self.order_id, checked_timeout(timeout))
        if self._is_open:
            self._note(run_sync(plan, self._store))
        return self._known_outcome()


class AsyncOrderHandle(HandleState):
    """A submitted order, for asyncio."""

    def __init__(self, store: AsyncStore, sku: str, order_id: str, accepted: Accepted | None = None) -> None:
        """Belong to a pool."""
        super().__init__(sku, order_id, accepted)
        self._store = store

    async def refresh(self) -> SubmittedState:
        """Ask for the state, in one round trip."""
        self._note((await run_async(perform(op.ReadSubmitted(self.sku, (self.order_id,))), self._store))[0])
        return self.state

    async def wait(self, timeout: float | None = None) -> Outcome | None:
        """Return what became of the order, at the latest after `timeout` seconds; None: it is on its way still.

        Raises OrderUnknown when the pool knows no such order.
        """
        plan = outcome_plan(self.sku, self.order_id, checked_timeout(timeout))
        if self._is_open:
            self._note(await run_async(plan, self._store))
        return self._known_outcome()
