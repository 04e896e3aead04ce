"""A lease: exclusive use of a name that expires, sync and async.

`HeldLease` is any lease; `Lease` is one with a fencing token, which nearly all locks return. A lock without tokens has
a different lease type.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, cast

from segmented.errors import SegmentedError
from segmented.locks.blocks import CancelScope, EndsWithItsAsyncBlock, EndsWithItsBlock, ListsWhatHoldersNeed
from segmented.locks.durations import milliseconds
from segmented.locks.fencing import Sequencer
from segmented.locks.keeper import LapsesWhenDropped, async_keeper, thread_keeper
from segmented.locks.lease_state import RELEASE_SECONDS, LeaseState, Renewal
from segmented.plans import Within, perform, run_async, run_sync
from segmented.plans.tasks import to_the_end

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from segmented.clock import Duration
    from segmented.locks.blocks import Losable
    from segmented.locks.claim import LeaseClaim
    from segmented.models import Acquired
    from segmented.plans.drivers import AsyncStore, Store


class AsyncWatched(EndsWithItsAsyncBlock, ListsWhatHoldersNeed, LapsesWhenDropped):
    """A lease on one name or several, which a keeper can watch, for asyncio."""

    _store: AsyncStore
    _lost: asyncio.Event | None = None
    _is_watched = False

    if TYPE_CHECKING:

        def call_when_lost(self, callback: Callable[[], None]) -> bool:
            """Note a callback and return True; if the lease is already lost, call it and return False."""

    @property
    def lost(self) -> asyncio.Event:
        """Return the event that is set once the lease is lost; reading it starts the watch."""
        if self._lost is None:
            self._lost = asyncio.Event()
            self.on_lost(self._lost.set)
        return self._lost

    def on_lost(self, callback: Callable[[], None]) -> None:
        """Call `callback` once when the lease is lost, from the keeper, or at once if it is already lost."""
        if self.call_when_lost(callback):
            self._watch()

    def cancel_scope(self) -> CancelScope:  # asyncio only
        """Return a scope for `async with` that cancels its body when the lease is lost, and raises LeaseLost."""
        return CancelScope(cast("Losable", self))

    def release_later(self, failure: BaseException) -> None:
        """Let the keeper repeat a release that `failure` ended, for the names that are still held."""
        for state in self._states():
            if state.owe_release(at_once=not isinstance(failure, SegmentedError)):
                self._is_watched = True
                async_keeper(self._store).watch(state, self._store)

    def _watch(self) -> None:
        self._is_watched = True
        for state in self._states():
            async_keeper(self._store).watch(state, self._store)

    def _discard_ended(self) -> None:
        for state in self._states() if self._is_watched else ():
            if state.has_ended:
                async_keeper(self._store).discard(state)


class AsyncHeldLease(AsyncWatched, LeaseState):
    """A held lock, for asyncio. An `async with` statement releases it."""

    def __init__(
        self, store: AsyncStore, claim: LeaseClaim, renewal: Renewal, acquired: Acquired, asked_at: float
    ) -> None:
        """Create the lease of a claim that `store` granted, asked for at `asked_at`."""
        self._store = store
        super().__init__(claim, acquired, asked_at, store.clock)
        self.look_after(renewal)

    def look_after(self, renewal: Renewal) -> None:
        """Let a keeper renew the lease from now on, if `renewal` asks for it."""
        if renewal.is_wanted:
            self.keep_renewed(renewal)
            self._watch()

    async def renew(self, *, ttl: Duration | None = None) -> None:
        """Extend the lease to `ttl` seconds from now (default: as acquired). Raises LeaseLost if it is too late."""
        self.require()
        ttl_ms = self.ttl_ms if ttl is None else milliseconds(ttl, "ttl")
        await run_async(self.renewing(ttl_ms), self._store)
        if self._is_watched:
            self._watch()
        self.require()

    async def release(self) -> None:
        """End the lease. Raises LeaseLost if it had already ended on its own; calling it again does nothing.

        A release that fails, is cancelled, or that an exception of a signal handler ends at any point, is repeated in
        the background until the lease has ended.
        """
        try:
            if not self.has_ended:
                self._require_own_process()
                deadline = self.note_release_asked()
                releasing = perform(Within(self.claim.releasing(), deadline))  # asyncio only
                self.note_release(await run_async(releasing, self._store))  # asyncio only
                # threads: self.note_release(self._store.execute(self.claim.releasing(), deadline=deadline))
        except GeneratorExit:  # asyncio only: closed from outside, and no task could repeat it
            raise
        except asyncio.CancelledError:  # asyncio only: it was sent, or it failed, and only the answer to a repeat tells
            await to_the_end(self._release_again)
            raise
        except BaseException as failure:
            self.release_later(failure)
            raise
        finally:
            self._discard_ended()

    async def _release_again(self) -> None:  # asyncio only
        self.note_release_asked()
        deadline = self._store.clock.now() + RELEASE_SECONDS
        try:
            self.note_repeated_release(await self._store.execute(self.claim.releasing(), deadline=deadline))
        except SegmentedError:
            self.owe_release()
            self._watch()
        self._discard_ended()

    def _states(self) -> Sequence[LeaseState]:
        return (self,)


class AsyncLease(AsyncHeldLease):
    """A held lock with a fencing token, for asyncio.

    By the server's clock, at most one lease of an exclusive lock is alive per name. This does not stop a holder that is
    paused past its lease's end: pass `fencing_token` to the protected resource, which must refuse a lower token than
    the highest it has seen.
    """

    def __init__(
        self, store: AsyncStore, claim: LeaseClaim, renewal: Renewal, acquired: Acquired, asked_at: float
    ) -> None:
        """Create the lease of a granted claim, with the fencing token of `acquired`."""
        self.fencing_token = acquired.fencing_token
        super().__init__(store, claim, renewal, acquired, asked_at)

    def sequencer(self) -> str:
        """Return a text with the lock, the mode and the generation, for a resource to check (`Sequencer`)."""
        return str(Sequencer.of(self.claim, self.fencing_token))

    def _described(self) -> str:
        return f"token={self.fencing_token}"


# --- For threads: written by `make sync` from the classes above. ---


class Watched(EndsWithItsBlock, ListsWhatHoldersNeed, LapsesWhenDropped):
    """A lease on one name or several, which a keeper can watch, for threads."""

    _store: Store
    _lost: threading.Event | None = None
    _is_watched = False

    if TYPE_CHECKING:

        def call_when_lost(self, callback: Callable[[], None]) -> bool:
            """Note a callback and return True; if the lease is already lost, call it and return False."""

    @property
    def lost(self) -> threading.Event:
        """Return the event that is set once the lease is lost; reading it starts the watch."""
        if self._lost is None:
            self._lost = threading.Event()
            self.on_lost(self._lost.set)
        return self._lost

    def on_lost(self, callback: Callable[[], None]) -> None:
        """Call `callback` once when the lease is lost, from the keeper, or at once if it is already lost."""
        if self.call_when_lost(callback):
            self._watch()

    def release_later(self, failure: BaseException) -> None:
        """Let the keeper repeat a release that `failure` ended, for the names that are still held."""
        for state in self._states():
            if state.owe_release(at_once=not isinstance(failure, SegmentedError)):
                self._is_watched = True
                thread_keeper(self._store).watch(state, self._store)

    def _watch(self) -> None:
        self._is_watched = True
        for state in self._states():
            thread_keeper(self._store).watch(state, self._store)

    def _discard_ended(self) -> None:
        for state in self._states() if self._is_watched else ():
            if state.has_ended:
                thread_keeper(self._store).discard(state)


class HeldLease(Watched, LeaseState):
    """A held lock, for threads. A `with` statement releases it."""

    def __init__(self, store: Store, claim: LeaseClaim, renewal: Renewal, acquired: Acquired, asked_at: float) -> None:
        """Create the lease of a claim that `store` granted, asked for at `asked_at`."""
        self._store = store
        super().__init__(claim, acquired, asked_at, store.clock)
        self.look_after(renewal)

    def look_after(self, renewal: Renewal) -> None:
        """Let a keeper renew the lease from now on, if `renewal` asks for it."""
        if renewal.is_wanted:
            self.keep_renewed(renewal)
            self._watch()

    def renew(self, *, ttl: Duration | None = None) -> None:
        """Extend the lease to `ttl` seconds from now (default: as acquired). Raises LeaseLost if it is too late."""
        self.require()
        ttl_ms = self.ttl_ms if ttl is None else milliseconds(ttl, "ttl")
        run_sync(self.renewing(ttl_ms), self._store)
        if self._is_watched:
            self._watch()
        self.require()

    def release(self) -> None:
        """End the lease. Raises LeaseLost if it had already ended on its own; calling it again does nothing.

        A release that fails, is cancelled, or that an exception of a signal handler ends at any point, is repeated in
        the background until the lease has ended.
        """
        try:
            if not self.has_ended:
                self._require_own_process()
                deadline = self.note_release_asked()
                self.note_release(self._store.execute(self.claim.releasing(), deadline=deadline))
        except BaseException as failure:
            self.release_later(failure)
            raise
        finally:
            self._discard_ended()

    def _states(self) -> Sequence[LeaseState]:
        return (self,)


class Lease(HeldLease):
    """A held lock with a fencing token, for threads.

    By the server's clock, at most one lease of an exclusive lock is alive per name. This does not stop a holder that is
    paused past its lease's end: pass `fencing_token` to the protected resource, which must refuse a lower token than
    the highest it has seen.
    """

    def __init__(self, store: Store, claim: LeaseClaim, renewal: Renewal, acquired: Acquired, asked_at: float) -> None:
        """Create the lease of a granted claim, with the fencing token of `acquired`."""
        self.fencing_token = acquired.fencing_token
        super().__init__(store, claim, renewal, acquired, asked_at)

    def sequencer(self) -> str:
        """Return a text with the lock, the mode and the generation, for a resource to check (`Sequencer`)."""
        return str(Sequencer.of(self.claim, self.fencing_token))

    def _described(self) -> str:
        return f"token={self.fencing_token}"
