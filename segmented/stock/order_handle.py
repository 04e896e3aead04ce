"""Handles: what a caller gets for a submitted order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from segmented import protocol as op
from segmented.errors import OrderUnknown
from segmented.locks.durations import DEFAULT_TIMEOUT, checked_timeout
from segmented.models.orders import Busy, Closed, Decided, LimitReached, Settled, SoldOut, fate_of
from segmented.models.submitted import Accepted, Dead, Queued, Submitted, SubmittedState
from segmented.plans import perform, run_async, run_sync
from segmented.stock.outbox import outcome_plan

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from segmented.clock import Duration
    from segmented.models import OrderState
    from segmented.models.submitted import Accepted, Submitted
    from segmented.plans.drivers import AsyncStore, Store


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


class AsyncOrderHandle(HandleState):
    """A submitted order, for asyncio."""

    def __init__(
        self,
        store: AsyncStore,
        sku: str,
        order_id: str,
        accepted: Accepted | None = None,
        *,
        decision: Callable[[str], Awaitable[Settled | None]] | None = None,
    ) -> None:
        """Create a handle of an order of pool `sku` in `store`; `decision` is that of a gate on unknown orders."""
        super().__init__(sku, order_id, accepted)
        self._store = store
        self._decision = decision

    async def refresh(self) -> SubmittedState:
        """Read the state, in one round trip."""
        (found,) = await run_async(perform(op.ReadSubmitted(self.sku, (self.order_id,))), self._store)
        return await self._note_found(found)

    async def wait(self, timeout: Duration | None = DEFAULT_TIMEOUT) -> Outcome | None:
        """Return the order's outcome, or None if it is still in progress after `timeout` seconds (default: 60).

        Raises OrderUnknown when the pool does not know the order.
        """
        plan = outcome_plan(self.sku, self.order_id, checked_timeout(timeout))
        if self._is_open:
            await self._note_found(await run_async(plan, self._store))
        return self._known_outcome()

    async def _note_found(self, found: Submitted) -> SubmittedState:
        """Note what the pool says; of an order that it does not know, what the order database has decided."""
        settled = None
        if self._decision is not None and found.state == "unknown" and self._outcome is None:
            settled = await self._decision(self.order_id)
        return self.note(found, settled)


# --- For threads: written by `make sync` from the classes above. ---


class OrderHandle(HandleState):
    """A submitted order, for threads."""

    def __init__(
        self,
        store: Store,
        sku: str,
        order_id: str,
        accepted: Accepted | None = None,
        *,
        decision: Callable[[str], Settled | None] | None = None,
    ) -> None:
        """Create a handle of an order of pool `sku` in `store`; `decision` is that of a gate on unknown orders."""
        super().__init__(sku, order_id, accepted)
        self._store = store
        self._decision = decision

    def refresh(self) -> SubmittedState:
        """Read the state, in one round trip."""
        (found,) = run_sync(perform(op.ReadSubmitted(self.sku, (self.order_id,))), self._store)
        return self._note_found(found)

    def wait(self, timeout: Duration | None = DEFAULT_TIMEOUT) -> Outcome | None:
        """Return the order's outcome, or None if it is still in progress after `timeout` seconds (default: 60).

        Raises OrderUnknown when the pool does not know the order.
        """
        plan = outcome_plan(self.sku, self.order_id, checked_timeout(timeout))
        if self._is_open:
            self._note_found(run_sync(plan, self._store))
        return self._known_outcome()

    def _note_found(self, found: Submitted) -> SubmittedState:
        """Note what the pool says; of an order that it does not know, what the order database has decided."""
        settled = None
        if self._decision is not None and found.state == "unknown" and self._outcome is None:
            settled = self._decision(self.order_id)
        return self.note(found, settled)
