# Written by `make sync` from async_order_handle.py: change that module.
"""Handle of a submitted order, for threads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from segmented import protocol as op
from segmented.locks.durations import DEFAULT_TIMEOUT, checked_timeout
from segmented.plans import perform, run_sync
from segmented.stock.handle_state import HandleState, Outcome
from segmented.stock.outbox import outcome_plan

if TYPE_CHECKING:
    from collections.abc import Callable

    from segmented.clock import Duration
    from segmented.models import Settled
    from segmented.models.submitted import Accepted, Submitted, SubmittedState
    from segmented.plans.drivers import Store


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
