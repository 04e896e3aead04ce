"""`ZooKeeperLock`: a fair lock as a queue of ephemeral sequential nodes, through kazoo.

The algorithm is the lock recipe of the ZooKeeper documentation; `zookeeper_session` lists our additions and says how
long a lease is trusted.

Guarantees: first come, first served; at most one live lease per name, as long as the ensemble keeps its promises; a
holder or waiter that dies leaves the queue when its session ends; a holder whose session is lost is notified within the
session time; an acquire that fails for any reason leaves no node behind. The fencing token is the zxid that created the
holder's node. ZooKeeper numbers all its changes with one counter, so the token grows with every grant of every lock,
even after the lock's parent node was deleted and created again, where a count kept by the parent would not. It starts
again only if the ensemble has lost its data.

Not guaranteed: exclusion of a holder that acts after its lease is lost; use the fencing token for that. Deleting a
holder's node by hand ends its lease, and the holder is notified within an eighth of the session time.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final, cast
from urllib.parse import quote

from segmented.errors import AcquireTimeout, InvalidInput, LeaseLost, StoreUnavailable
from segmented.imports import needs
from segmented.locks.blocks import CancelScope, EndsWithItsAsyncBlock, EndsWithItsBlock, StaysInItsProcess
from segmented.locks.durations import DEFAULT_TIMEOUT, checked_name, checked_timeout
from segmented.locks.handle import Acquiring
from segmented.locks.hints import Hinted, hinted
from segmented.locks.keeper import WarnsWhenDropped, unreleased
from segmented.process import THIS

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from kazoo.client import KazooClient

    from segmented.clock import Duration
    from segmented.locks.lease import AsyncHeldLease
    from segmented.locks.other_servers.zookeeper_session import Attempt, Contender, Session

_log = logging.getLogger("segmented.locks")


def _session_of(client: object) -> Session:
    """Return the client's session. Raises InvalidInput if kazoo is not installed."""
    try:
        from segmented.locks.other_servers.zookeeper_session import session_of  # noqa: PLC0415  # kazoo is an extra
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "kazoo":
            raise
        raise InvalidInput(needs("a lock in ZooKeeper", "kazoo")) from error
    return session_of(client)


class ZooKeeperLeaseState(Hinted, StaysInItsProcess, WarnsWhenDropped):
    """The state of sync and async leases. `acquire` creates it; it is usable in the process that acquired it."""

    has_ended = True
    """Whether the lease was released; until it is complete, there is nothing to release."""

    def __init__(self, attempt: Attempt) -> None:
        """Create the lease of an attempt that is first in the queue; its session watches over it."""
        self._process_id = THIS.process_id
        self.name = attempt.name
        self.holder_id = attempt.holder_id
        self.fencing_token = attempt.fencing_token
        """The zxid that created the holder's node: it grows with every grant, even if nodes are deleted in between."""
        self.path = attempt.contender.path
        """The lease's node; deleting it ends the lease."""
        self.seen = attempt.seen
        """When its node was last seen, which its session notes."""
        self._session = attempt.session
        self._parent = attempt.parent
        self._guard = threading.RLock()
        self._is_gone = False
        self._is_lost = False
        self._is_releasing = False
        self._release: Future[bool] | None = None
        self._on_lost: list[Callable[[], None]] = []
        self.has_ended = False
        self._session.look_after(self)

    @property
    def is_lost(self) -> bool:
        """Return whether the holder knows, from ZooKeeper or its own clock, that it no longer holds the lock."""
        is_untold = self.is_lost_untold()
        if is_untold and self._is_in_its_process():  # a forked child does not run its parent's callbacks
            self._lose()
        return self._is_lost or is_untold

    @property
    def is_trusted(self) -> bool:
        """Return whether the holder may still act on the lease; False also while the connection is lost (in doubt)."""
        return self.remaining() > 0

    @property
    def trusted_until(self) -> float:
        """Return the local time until which it may be trusted; a confirmation of the session usually extends it."""
        return self._session.trusted_until(self.seen)

    def remaining(self) -> float:
        """Return the seconds for which it may be trusted without an answer from ZooKeeper, or 0 if it is in doubt."""
        if not self._is_in_its_process() or self.is_lost or self.is_over():
            return 0.0
        return max(0.0, self.trusted_until - self._session.clock.now())

    def require(self) -> None:
        """Raise LeaseLost if it is lost or released, and StoreUnavailable while it is in doubt.

        Call it before each protected step.
        """
        self._require_own_process()
        if self.is_trusted:
            return
        if self.is_over():
            raise LeaseLost(self.name, self.holder_id)
        raise StoreUnavailable(
            f"the lease on {self.name!r} is in doubt until ZooKeeper at {self._session.where} confirms its session"
        )

    # --- called by the session, in its own threads ---

    def is_lost_untold(self) -> bool:
        """Return whether the lease is lost and the holder not yet notified."""
        return not self.is_over() and (self._is_gone or self._session.is_over(self.seen))

    def is_over(self) -> bool:
        """Return whether it is released, or lost and the holder notified, so that it needs no more watching."""
        return self.has_ended or self._is_releasing or self._is_lost

    def tell(self) -> None:
        """Notify the holder that the lease is lost."""
        self._lose()

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
        self._abandon()  # the server may keep the session for longer
        for callback in callbacks:
            try:
                callback()
            except Exception:  # noqa: BLE001  # a callback's error must not keep the others from being called
                _log.exception("lease.callback_failed", extra={"lock": self.name})

    def _is_to_be_released(self) -> bool:
        """Return whether it is still to be released. Raises LeaseLost if the lease is lost."""
        self._require_own_process()
        if self.has_ended:
            return False
        if self.is_lost or self._session.is_over(self.seen):
            self.has_ended = True
            raise LeaseLost(self.name, self.holder_id)
        return True

    def _begun_release(self) -> Future[bool]:
        """Return the release that runs, or begin one: of two at once, one would find the node deleted by the other."""
        with self._guard:
            if self._release is None:
                was_tried, self._is_releasing = self._is_releasing, True
                self._release = self._session.release(self.path, self.seen.era, was_tried=was_tried)
            return self._release

    def _abandon(self) -> None:
        self._session.abandon(self._parent, self.holder_id, self.seen.era)

    def _note_dropped(self) -> str | None:
        if self.is_over() or self._is_gone or self._session.is_closed or not self._is_in_its_process():
            return None
        self._on_lost = []
        return unreleased(self.name)

    def _note_release(self, *, is_released: bool) -> None:
        self.has_ended = True
        if not is_released and self._release is not None:  # None: another caller was cancelled, which deletes the node
            raise LeaseLost(self.name, self.holder_id)

    def _note_failed_release(self, failure: BaseException) -> None:
        self._release = None  # the next call begins another
        self._abandon()
        if not isinstance(failure, StoreUnavailable):
            return
        if self._session.is_over(self.seen):
            self.has_ended = True
            raise LeaseLost(self.name, self.holder_id) from failure
        message = f"whether lock {self.name!r} is released is unknown; the release continues in the background"
        raise StoreUnavailable(message) from failure

    def __repr__(self) -> str:
        over = "lost" if self._is_lost else "ended" if self.has_ended else ""
        state = over or ("trusted" if self.is_trusted else "in doubt")
        return f"<{type(self).__name__} {self.name!r} token={self.fencing_token} {state}>"


class AsyncZooKeeperLease(EndsWithItsAsyncBlock, ZooKeeperLeaseState):
    """A held lock, for asyncio. An `async with` statement releases it.

    At most one lease per name is trusted, as long as ZooKeeper keeps its promises and this machine's clock runs at the
    right rate. This does not stop a holder that is paused past its lease's end: pass `fencing_token` to the protected
    resource, which must refuse a lower token than the highest it has seen.
    """

    def __init__(self, attempt: Attempt) -> None:
        """Create the lease of an attempt that is first in the queue; its session watches over it."""
        self._lost = asyncio.Event()
        self._loop = asyncio.get_running_loop()  # asyncio only
        super().__init__(attempt)
        self._add_callback(self._lost.set)

    @property
    def lost(self) -> asyncio.Event:
        """Return the event that is set as soon as the lease is lost."""
        return self._lost

    def on_lost(self, callback: Callable[[], None]) -> None:
        """Call `callback` once when the lease is lost, from its loop or another thread, or now if it is lost."""
        self._add_callback(callback)

    def cancel_scope(self) -> CancelScope:  # asyncio only
        """Return a scope for `async with` that cancels its body when the lease is lost, and raises LeaseLost."""
        return CancelScope(cast("AsyncHeldLease", self))  # it needs a name, a holder id, `require` and `on_lost`

    async def release(self) -> None:
        """Release within 5 s. Raises LeaseLost if the lease had already ended; calling it again does nothing.

        Raises StoreUnavailable if ZooKeeper does not answer in that time: the node is then deleted in the background.
        """
        if not self._is_to_be_released():
            return
        try:
            is_released = await asyncio.wrap_future(self._begun_release())  # asyncio only
            # threads: is_released = self._begun_release().result()
        except BaseException as failure:
            self._note_failed_release(failure)
            raise
        self._note_release(is_released=is_released)

    def tell(self) -> None:  # asyncio only
        """Notify the holder that the lease is lost. This happens in its event loop."""
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._lose)


DEFAULT_ROOT: Final = "/segmented/locks"
DOTS: Final = {".": "%2E", "..": "%2E%2E"}
"""Segments with a special meaning, which a path must not contain."""


def checked_root(root: object) -> str:
    """Return the root without a trailing slash; raises InvalidInput if it is not a path for our locks."""
    segments = root.strip("/").split("/") if isinstance(root, str) and root.startswith("/") else [""]
    if {"", *DOTS} & set(segments) or not "".join(segments).isprintable():
        raise InvalidInput(f"root of {root!r} is not a path for locks: give one like '/segmented/locks'")
    if segments[0] == "zookeeper":
        raise InvalidInput(f"root of {root!r} belongs to ZooKeeper itself: give one like '/segmented/locks'")
    return "/" + "/".join(segments)


def lock_path(root: str, name: str) -> str:
    """Return the parent of a lock's contenders; different names have different parents."""
    encoded = quote(name, safe="")
    return f"{root}/{DOTS.get(encoded, encoded)}"


@hinted
class _Handle(Hinted):
    """The name and the path of a lock. It keeps nothing about a holder, so threads and tasks may share a handle."""

    def __init__(self, client: KazooClient, name: str, *, root: str = DEFAULT_ROOT) -> None:
        """Create a lock `name` with a kazoo client, which the caller starts and stops; locks are under the path `root`.

        It needs ZooKeeper 3.5 or newer. Raises InvalidInput if kazoo is missing (the extra `zookeeper`).
        """
        self.name = checked_name(name)
        self.path = lock_path(checked_root(root), name)
        """The parent node of the queue. It stays when the queue is empty; you may delete an empty one."""
        self._session = _session_of(client)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, path={self.path!r})"


class AsyncZooKeeperLock(_Handle):
    """A lock by name, for asyncio. Each acquire and release waits in a thread of its own, never in the event loop."""

    def acquire(self, timeout: Duration | None = DEFAULT_TIMEOUT) -> Acquiring[AsyncZooKeeperLease]:
        """Wait up to `timeout` seconds (default: 60; None: forever) and return the lease.

        Raises AcquireTimeout if others hold the lock for longer, StoreUnavailable if ZooKeeper cannot be reached in
        that time or the session ends, and StoreRefused if the client is closed. Use it as
        `lease = await lock.acquire()`, or as `async with lock.acquire() as lease`.
        """
        return Acquiring(self, checked_timeout(timeout))

    async def try_acquire(self) -> AsyncZooKeeperLease | None:
        """Return the lease if the lock is free now, otherwise None."""
        try:
            return await self.acquire(timeout=0)
        except AcquireTimeout:
            return None

    async def contenders(self) -> tuple[Contender, ...]:
        """Return the queue in order: the first holds the lock, the others wait."""
        return await asyncio.wrap_future(self._session.contenders(self.name, self.path))  # asyncio only
        # threads: return self._session.contenders(self.name, self.path).result()

    async def _acquired(self, timeout: float | None) -> AsyncZooKeeperLease:
        attempt = self._session.attempt(self.name, self.path, timeout)
        try:
            await asyncio.wrap_future(attempt.start())  # asyncio only
            # threads: attempt.start().result()
            return AsyncZooKeeperLease(attempt)
        except BaseException:
            attempt.give_up()
            raise


# --- For threads: written by `make sync` from the classes above. ---


class ZooKeeperLease(EndsWithItsBlock, ZooKeeperLeaseState):
    """A held lock, for threads. A `with` statement releases it.

    At most one lease per name is trusted, as long as ZooKeeper keeps its promises and this machine's clock runs at the
    right rate. This does not stop a holder that is paused past its lease's end: pass `fencing_token` to the protected
    resource, which must refuse a lower token than the highest it has seen.
    """

    def __init__(self, attempt: Attempt) -> None:
        """Create the lease of an attempt that is first in the queue; its session watches over it."""
        self._lost = threading.Event()
        super().__init__(attempt)
        self._add_callback(self._lost.set)

    @property
    def lost(self) -> threading.Event:
        """Return the event that is set as soon as the lease is lost."""
        return self._lost

    def on_lost(self, callback: Callable[[], None]) -> None:
        """Call `callback` once when the lease is lost, from its loop or another thread, or now if it is lost."""
        self._add_callback(callback)

    def release(self) -> None:
        """Release within 5 s. Raises LeaseLost if the lease had already ended; calling it again does nothing.

        Raises StoreUnavailable if ZooKeeper does not answer in that time: the node is then deleted in the background.
        """
        if not self._is_to_be_released():
            return
        try:
            is_released = self._begun_release().result()
        except BaseException as failure:
            self._note_failed_release(failure)
            raise
        self._note_release(is_released=is_released)


class ZooKeeperLock(_Handle):
    """A lock by name, for threads. Each acquire and release waits in a thread of its own, never in the event loop."""

    def acquire(self, timeout: Duration | None = DEFAULT_TIMEOUT) -> ZooKeeperLease:
        """Wait up to `timeout` seconds (default: 60; None: forever) and return the lease.

        Raises AcquireTimeout if others hold the lock for longer, StoreUnavailable if ZooKeeper cannot be reached in
        that time or the session ends, and StoreRefused if the client is closed. Use it as
        `lease = lock.acquire()`, or as `with lock.acquire() as lease`.
        """
        return self._acquired(checked_timeout(timeout))

    def try_acquire(self) -> ZooKeeperLease | None:
        """Return the lease if the lock is free now, otherwise None."""
        try:
            return self.acquire(timeout=0)
        except AcquireTimeout:
            return None

    def contenders(self) -> tuple[Contender, ...]:
        """Return the queue in order: the first holds the lock, the others wait."""
        return self._session.contenders(self.name, self.path).result()

    def _acquired(self, timeout: float | None) -> ZooKeeperLease:
        attempt = self._session.attempt(self.name, self.path, timeout)
        try:
            attempt.start().result()
            return ZooKeeperLease(attempt)
        except BaseException:
            attempt.give_up()
            raise
