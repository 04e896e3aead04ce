"""Handle of a submitted order, for asyncio."""

from __future__ import annotations

from typing import TYPE_CHECKING

from segmented import protocol as op
from segmented.locks.durations import DEFAULT_TIMEOUT, checked_timeout
from segmented.plans import perform, run_async
from segmented.stock.handle_state import HandleState, Outcome
from segmented.stock.outbox import outcome_plan

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from segmented.clock import Duration
    from segmented.models import Settled
    from segmented.models.submitted import Accepted, Submitted, SubmittedState
    from segmented.plans.drivers import AsyncStore


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
