"""A run is the work on one key, under a lease that is renewed while the body works; for asyncio."""

from __future__ import annotations

import json
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from segmented.dedup.outcomes import NeverAwaited, failure_written
from segmented.dedup.plans import begin_plan
from segmented.dedup.run_state import RENEWAL, Replay, RunState
from segmented.errors import SegmentedError, StoreError
from segmented.locks.durations import checked_timeout
from segmented.locks.keeper import OWED_MAX, async_keeper
from segmented.locks.lease import AsyncHeldLease
from segmented.models import Acquired
from segmented.models.dedup import OutcomeKept
from segmented.plans import run_async

if TYPE_CHECKING:
    from types import TracebackType

    from segmented.clock import Duration
    from segmented.dedup.outcomes import OutcomeForm
    from segmented.dedup.plans import Begun, StoreEffect
    from segmented.dedup.terms import NextAttempt, RunClaim
    from segmented.models.dedup import OutcomeKind
    from segmented.plans import Plan
    from segmented.plans.drivers import AsyncStore

EndT = TypeVar("EndT")


class AsyncRun(RunState, AsyncHeldLease):
    """A run, for asyncio. At the end of its `with` statement it is finished, or abandoned if the body failed.

    By the store's clock at most one run of a key has a valid lease. A body that sleeps past its lease is not stopped:
    another run overtakes it and its outcome is not kept, but its effects outside the store remain.
    """

    def __init__(self, store: AsyncStore, claim: RunClaim, begun: Begun, form: OutcomeForm) -> None:
        """Create a run that holds `claim` and renews it."""
        answer, asked_at = begun
        self.fencing_token = answer.fencing_token
        self._form = form
        acquired = Acquired(answer.fencing_token, answer.ttl_ms, answer.replay)
        super().__init__(store, claim, RENEWAL, acquired, asked_at)

    async def finish(self, result: object = None) -> None:
        """Keep the result for repeats, and end the run. Raises RunLost if the run has another holder now."""
        await self._finish(*self.written(result))

    async def finish_or_owe(self, result: object) -> None:
        """Do the same; if the store cannot keep the result now, the keeper repeats it until the store can."""
        try:
            await self.finish(result)
        except StoreError as error:
            if not self._note_owed(error):
                raise

    async def finish_with(self, effect: StoreEffect) -> Any:  # noqa: ANN401  # any return value of the effect
        """Perform an effect in the store and keep its result in one step. Returns the result."""
        return json.loads(await self._finish("effect", "", effect))

    async def finish_in(self, transaction: Any, result: object = None) -> None:  # noqa: ANN401  # a session or connection
        """Mark the key as done in your own transaction, forever: its row and your rows are one commit.

        `transaction` is a session or connection of SQLAlchemy; for threads also Django's connection, or psycopg's. Call
        it before your own statements. Needs the tables of `OnceTable`. The run goes on: finish it after the commit, or
        let its `with` statement or the middleware do it. Raises AlreadyDone with the stored `result` if the key was
        done before, though Redis has forgotten it: roll back.
        """
        table = import_module("segmented.dedup.sql").OnceTable()  # SQLAlchemy is optional, and the table knows runs
        await transaction.run_sync(table.finish_in, self, result)  # asyncio only
        # threads: table.finish_in(transaction, self, result)

    async def fail(self, error: BaseException) -> None:
        """Keep a failure for repeats, and end the run."""
        await self._finish("error", failure_written(error))

    async def abandon(self) -> None:
        """End the run without an outcome: the next call with the key runs."""
        await self.release()

    async def doubt(self) -> None:
        """End the run in the unknown state. Nobody runs the key again until it is settled, or freed by an operator."""
        await self._ended(self._doubting())

    async def put_off(self, following: NextAttempt) -> None:
        """End the run; its message keeps its holds until its next attempt arrives."""
        await self._ended(self._putting_off(following))

    async def _finish(self, kind: OutcomeKind, body: str, effect: StoreEffect | None = None) -> str:
        return await self._ended(self._finishing(kind, body, effect))

    async def _ended(self, plan: Plan[EndT]) -> EndT:
        self._require_own_process()
        try:
            return await run_async(plan, self._store)
        finally:
            keeper = async_keeper(self._store)
            if self._owed is not None and len(keeper) < OWED_MAX:
                keeper.watch(self._owed, self._store)
            if self._is_decided:
                keeper.discard(self)
            else:
                self._watch()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """Finish the run with None if it has not ended; after an error, keep it, abandon, or doubt, as configured."""
        if self._is_decided:
            return
        try:
            if error is None:
                await self.finish()
            elif isinstance(error, Exception) and self.claim.terms.keep_failures_ms:
                await self.fail(error)
            elif self.claim.terms.on_lapse == "unknown" and not isinstance(error, NeverAwaited):
                await self.doubt()
            else:
                await self.abandon()
        except SegmentedError as failure:
            if error is None:
                raise
            error.add_note(f"and afterwards: {failure}")


async def async_begun(
    store: AsyncStore, claim: RunClaim, seen: str, timeout: Duration | None, form: OutcomeForm
) -> AsyncRun | Replay:
    """Begin a run, or return the replay of the run that has ended; `seen` is the fingerprint of the payload.

    Waits up to `timeout` seconds for a call in flight. Raises the errors of `begin_plan`.
    """
    found = await run_async(begin_plan(claim, claim.beginning(seen), checked_timeout(timeout)), store)
    if isinstance(found, OutcomeKept):
        return Replay(claim.name, found, form)
    return AsyncRun(store, claim, found, form)
