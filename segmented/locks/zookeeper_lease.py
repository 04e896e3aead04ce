"""A lease that lives as long as a ZooKeeper session, in both colours.

It has no time to live and nothing to renew: the session's heartbeats keep it. `Trust` says when it is in doubt, and
when it is lost.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import TYPE_CHECKING, cast

from segmented.errors import LeaseLost, StoreUnavailable
from segmented.locks.lease_manners import CancelScope, EndsWithItsAsyncBlock, EndsWithItsBlock, StaysInItsProcess
from segmented.locks.zookeeper_plan import release_plan
from segmented.plans import run_async, run_sync
from segmented.stores.zookeeper.trust import Held

if TYPE_CHECKING:
    from collections.abc import Callable

    from segmented.locks.lease import AsyncHeldLease
    from segmented.locks.zookeeper_plan import Claim, Turn
    from segmented.stores.zookeeper.session import ZooKeeperSession

_log = logging.getLogger("segmented.locks")


class ZooKeeperLeaseState(StaysInItsProcess, Held):
    """What both colours know. Made by `acquire`, never by hand; of use in the process that acquired it."""

    def __init__(self, session: ZooKeeperSession, claim: Claim, turn: Turn) -> None:
        """Have the session look after it."""
        super().__init__()
        self.name = claim.name
        self.holder_id = claim.holder_id
        self.fencing_token = turn.entered.fencing_token
        """The zxid that created the holder's node: it grows with every grant, whatever is deleted in between."""
        self.path = turn.entered.contender.path
        """The node that is the lease; whoever deletes it takes the lease away."""
        self.has_ended = False
        """True once it was released."""
        self._session = session
        self._claim = claim
        self._turn = turn
        self._seen_link = turn.link
        self._guard = threading.Lock()
        self._is_gone = False
        self._is_lost = False
        self._is_releasing = False
        self._on_lost: list[Callable[[], None]] = []
        session.caretaker.look_after(self)

    @property
    def is_lost(self) -> bool:
        """Has the holder learned, from ZooKeeper or from its own clock, that it no longer holds?"""
        if self.is_lost_untold():
            self._lose()
        return self._is_lost

    @property
    def is_trusted(self) -> bool:
        """May the holder still act on the lease? False also while the connection is away: then it is in doubt."""
        return self.remaining() > 0

    @property
    def trusted_until(self) -> float:
        """The local time until which it may be trusted, unless the session is confirmed before, as it mostly is."""
        return self._session.trusted_until(self._turn.era, self._seen_link)

    def remaining(self) -> float:
        """Return the seconds for which it may be trusted if nothing more is heard from ZooKeeper; 0 when in doubt."""
        if self.is_lost or self.is_over():
            return 0.0
        return max(0.0, self.trusted_until - self._session.clock.now())

    def require(self) -> None:
        """Raise LeaseLost when it is lost or released, and StoreUnavailable while it is in doubt.

        Call it before each protected step.
        """
        self._require_own_process()
        if self.is_trusted:
            return
        if self.is_over():
            raise LeaseLost(self.name, self.holder_id)
        message = (
            f"the lease on {self.name!r} is in doubt until ZooKeeper at {self._session.where} confirms its session"
        )
        raise StoreUnavailable(message)

    # --- asked and told by the session's caretaker, in threads of its own ---

    def is_lost_untold(self) -> bool:
        """Is the lease lost, and the holder not told?"""
        return not self.is_over() and (self._is_gone or self._session.is_over(self._turn.era))

    def is_over(self) -> bool:
        """Is there nothing left to look after: released, or lost and told?"""
        return self.has_ended or self._is_releasing or self._is_lost

    def tell(self) -> None:
        """Tell the holder that the lease is lost."""
        self._lose()

    def note_seen(self, link: int) -> None:
        """Note that the node was there, on connection `link`."""
        self._seen_link = link

    def note_gone(self) -> None:
        """Note that the node is gone."""
        self._is_gone = True

    # --- pieces ---

    def _add_callback(self, callback: Callable[[], None]) -> None:
        if not self.is_lost:
            with self._guard:
                if not self._is_lost:
                    self._on_lost.append(callback)
                    return
        callback()

    def _lose(self) -> None:
        with self._guard:
            if self._is_lost:
                return
            self._is_lost = True
            callbacks, self._on_lost = self._on_lost, []
        self._session.abandon(self._claim.parent, self.holder_id)  # the server may believe in the session for longer
        for callback in callbacks:
            try:
                callback()
            except Exception:  # noqa: BLE001  # the caller's own, and it must not end the caretaker of all other leases
                _log.exception("lease.callback_failed", extra={"lock": self.name})

    def _is_to_be_released(self) -> bool:
        """Begin a release. Raises LeaseLost when there is nothing left to release; False when it was released."""
        self._require_own_process()
        if self.has_ended:
            return False
        if self.is_lost or self._session.is_over(self._turn.era):
            self._end()
            raise LeaseLost(self.name, self.holder_id)
        return True

    def _end(self) -> None:
        self.has_ended = True
        self._session.caretaker.let_go(self)

    def _note_release(self, *, is_released: bool) -> None:
        self._end()
        if not is_released:
            raise LeaseLost(self.name, self.holder_id)

    def _note_failed_release(self, failure: BaseException) -> None:
        self._session.abandon(self._claim.parent, self.holder_id)
        if not isinstance(failure, StoreUnavailable):
            return
        if self._session.is_over(self._turn.era):
            self._end()
            raise LeaseLost(self.name, self.holder_id) from failure
        message = f"whether lock {self.name!r} is released is unknown; it is being seen to in the background"
        raise StoreUnavailable(message) from failure

    def __repr__(self) -> str:
        """Show the name, the token and the state."""
        over = "lost" if self._is_lost else "ended" if self.has_ended else ""
        state = over or ("trusted" if self.is_trusted else "in doubt")
        return f"<{type(self).__name__} {self.name!r} token={self.fencing_token} {state}>"


class ZooKeeperLease(EndsWithItsBlock, ZooKeeperLeaseState):
    """A held lock, for threads. Usable in a `with` statement, which releases it.

    At most one lease a name is trusted, as long as ZooKeeper keeps its promises and this machine's clock runs at the
    right rate. That does not stop a holder that sleeps through its own end: give `fencing_token` to the protected
    resource, which must refuse a lower one than it has seen.
    """

    def __init__(self, session: ZooKeeperSession, claim: Claim, turn: Turn) -> None:
        """Have the session look after it."""
        self._lost = threading.Event()
        super().__init__(session, claim, turn)
        self._add_callback(self._lost.set)

    @property
    def lost(self) -> threading.Event:
        """The event that is set as soon as the lease is lost."""
        return self._lost

    def on_lost(self, callback: Callable[[], None]) -> None:
        """Call `callback` once when the lease is lost, from a thread of ours; at once if it is lost already."""
        self._add_callback(callback)

    def release(self) -> None:
        """Leave the line, within 5 s. Raises LeaseLost if it had ended without us; calling it again does nothing.

        Raises StoreUnavailable when ZooKeeper does not answer in that time: the node is then deleted in the background.
        """
        if not self._is_to_be_released():
            return
        was_tried, self._is_releasing = self._is_releasing, True
        try:
            with self._session.store() as store:
                is_released = run_sync(release_plan(self._claim, self._turn, was_tried=was_tried), store)
        except BaseException as failure:
            self._note_failed_release(failure)
            raise
        self._note_release(is_released=is_released)


class AsyncZooKeeperLease(EndsWithItsAsyncBlock, ZooKeeperLeaseState):
    """A held lock, for asyncio; otherwise as `ZooKeeperLease`."""

    def __init__(self, session: ZooKeeperSession, claim: Claim, turn: Turn) -> None:
        """Have the session look after it; belongs to the running event loop."""
        self._lost = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        super().__init__(session, claim, turn)
        self._add_callback(self._lost.set)

    @property
    def lost(self) -> asyncio.Event:
        """The event that is set as soon as the lease is lost."""
        return self._lost

    def on_lost(self, callback: Callable[[], None]) -> None:
        """Call `callback` once when the lease is lost, in the event loop; at once if it is lost already."""
        self._add_callback(callback)

    def cancel_scope(self) -> CancelScope:
        """Return a scope for `async with`: its body is cancelled at the loss of the lease and LeaseLost is raised."""
        return CancelScope(cast("AsyncHeldLease", self))  # it needs a name, a holder id, `require` and `on_lost`

    async def release(self) -> None:
        """Leave the line, within 5 s. Raises LeaseLost if it had ended without us; calling it again does nothing.

        Raises StoreUnavailable when ZooKeeper does not answer in that time: the node is then deleted in the background.
        """
        if not self._is_to_be_released():
            return
        was_tried, self._is_releasing = self._is_releasing, True
        try:
            with self._session.async_store() as store:
                is_released = await run_async(release_plan(self._claim, self._turn, was_tried=was_tried), store)
        except BaseException as failure:
            self._note_failed_release(failure)
            raise
        self._note_release(is_released=is_released)

    def tell(self) -> None:
        """Tell the holder, in its event loop, that the lease is lost."""
        self._session.post(self._loop, self._lose)
