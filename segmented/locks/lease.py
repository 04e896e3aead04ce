"""A lease: exclusive use of a name that lapses, in both colours."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Self

from segmented.errors import LeaseLost, StoreError
from segmented.locks.durations import milliseconds
from segmented.locks.keeper import async_keeper, thread_keeper
from segmented.locks.lease_state import LeaseState, Renewal, renew_plan
from segmented.operations import ReleaseLock
from segmented.plans import perform, run_async, run_sync

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from segmented.models import Acquired
    from segmented.plans.drivers import AsyncStore, Store


class Lease(LeaseState):
    """A held lock, for threads. Usable in a `with` statement, which releases it.

    Guarantees that at most one living lease exists a name, by the server's clock. Does not stop a holder that sleeps
    through its own end: give `fencing_token` to the protected resource, which must refuse a lower one than it has seen.
    """

    def __init__(
        self, store: Store, name: str, holder_id: str, renewal: Renewal, acquired: Acquired, asked_at: float
    ) -> None:
        """Belong to `store`."""
        super().__init__(name, holder_id, acquired, asked_at, store.clock)
        self._store = store
        self._lost = threading.Event()
        self._on_lost.append(self._lost.set)
        if renewal.is_wanted:
            self.keep_renewed(renewal)
            thread_keeper(store).watch(self, store)

    @property
    def lost(self) -> threading.Event:
        """Return the event that is set once the lease is lost; asking for it has the lease watched."""
        thread_keeper(self._store).watch(self, self._store)
        return self._lost

    def on_lost(self, callback: Callable[[], None]) -> None:
        """Call `callback` once when the lease is lost, from the keeper; at once if it is lost already."""
        if self.is_lost:
            callback()
            return
        self._on_lost.append(callback)
        thread_keeper(self._store).watch(self, self._store)

    def renew(self, *, ttl: float | None = None) -> None:
        """Push the end out to `ttl` seconds from now (default: as acquired). Raises LeaseLost when it is too late."""
        self.require()
        ttl_ms = self.ttl_ms if ttl is None else milliseconds(ttl, "ttl")
        self.note_renewal(*run_sync(renew_plan(self.name, self.holder_id, ttl_ms), self._store))
        self.require()

    def release(self) -> None:
        """End the lease. Raises LeaseLost if it had ended without us; calling it again does nothing."""
        if not self.has_ended:
            self.stop_renewals()
            answer = self._store.execute(ReleaseLock(self.name, self.holder_id))
            thread_keeper(self._store).look()
            self.note_release(answer)

    def __enter__(self) -> Self:
        """Return the lease."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Release; the body's own error is never hidden by a failed release."""
        try:
            self.release()
        except (LeaseLost, StoreError) as failure:
            if error is None:
                raise
            error.add_note(f"and afterwards: {failure}")


class AsyncLease(LeaseState):
    """A held lock, for asyncio; otherwise as `Lease`."""

    def __init__(
        self, store: AsyncStore, name: str, holder_id: str, renewal: Renewal, acquired: Acquired, asked_at: float
    ) -> None:
        """Belong to `store`."""
        super().__init__(name, holder_id, acquired, asked_at, store.clock)
        self._store = store
        self._lost = asyncio.Event()
        self._on_lost.append(self._lost.set)
        if renewal.is_wanted:
            self.keep_renewed(renewal)
            async_keeper(store).watch(self, store)

    @property
    def lost(self) -> asyncio.Event:
        """Return the event that is set once the lease is lost; asking for it has the lease watched."""
        async_keeper(self._store).watch(self, self._store)
        return self._lost

    def on_lost(self, callback: Callable[[], None]) -> None:
        """Call `callback` once when the lease is lost, from the keeper; at once if it is lost already."""
        if self.is_lost:
            callback()
            return
        self._on_lost.append(callback)
        async_keeper(self._store).watch(self, self._store)

    async def renew(self, *, ttl: float | None = None) -> None:
        """Push the end out to `ttl` seconds from now (default: as acquired). Raises LeaseLost when it is too late."""
        self.require()
        ttl_ms = self.ttl_ms if ttl is None else milliseconds(ttl, "ttl")
        self.note_renewal(*(await run_async(renew_plan(self.name, self.holder_id, ttl_ms), self._store)))
        self.require()

    async def release(self) -> None:
        """End the lease. Raises LeaseLost if it had ended without us; calling it again does nothing."""
        if not self.has_ended:
            self.stop_renewals()
            answer = await run_async(perform(ReleaseLock(self.name, self.holder_id)), self._store)
            async_keeper(self._store).look()
            self.note_release(answer)

    async def __aenter__(self) -> Self:
        """Return the lease."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """Release; the body's own error is never hidden by a failed release."""
        try:
            await self.release()
        except (LeaseLost, StoreError) as failure:
            if error is None:
                raise
            error.add_note(f"and afterwards: {failure}")
