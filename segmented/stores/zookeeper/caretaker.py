"""The background duties of one session: confirm it, watch over its leases, and delete contenders left behind.

One thread per client, for any number of leases. It ends when it had nothing to do for a while. It never waits for an
answer: kazoo calls back. It never holds the session's lock while it calls kazoo or a lease. It holds leases weakly, so
that it does not watch over one that its program has dropped.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary, ref

from kazoo.exceptions import ConnectionLoss, NoNodeError, OperationTimeoutError, SessionExpiredError, SessionMovedError

from segmented.stores.zookeeper.paths import contender_prefix
from segmented.stores.zookeeper.trust import NO_LINK, Held

if TYPE_CHECKING:
    from collections.abc import Callable

    from segmented.stores.zookeeper.session import Session

CONNECTION_ERRORS: Final = (ConnectionLoss, OperationTimeoutError, SessionExpiredError, SessionMovedError)
"""Errors that do not say whether the request was performed."""
LINGER_SECONDS: Final = 10.0
SLEEP_MAX: Final = 60.0
REFUSALS_MAX: Final = 3

_log = logging.getLogger("segmented.locks")


@dataclass(slots=True, eq=False)
class Leftover:
    """A contender that a holder may have left behind."""

    parent: str
    holder_id: str
    link: int = NO_LINK
    """The connection on which its deletion is in progress."""
    refusals: int = 0


class Caretaker:
    """The background thread of one session; see the module."""

    def __init__(self, session: Session) -> None:
        self.leases: WeakKeyDictionary[Held, Callable[[], None]] = WeakKeyDictionary()
        """Lease -> the callback for changes of its node. Waiters may watch the same node."""
        self._session = session
        self._client = session.client
        self._changed = session.changed
        self._leftovers: dict[str, Leftover] = {}
        self._thread: threading.Thread | None = None
        self._is_stirred = False
        self._beat_due = -inf
        self._beat_link = NO_LINK
        self._idle_since: float | None = None
        self._told_era = 0

    def stir(self) -> None:
        """Check everything now."""
        with self._changed:
            self._is_stirred = True
            self._changed.notify_all()
        self.start()

    def start(self) -> None:
        """Start the thread if there is work for it."""
        with self._changed:
            if self._thread is None and self._has_work():
                self._thread = threading.Thread(target=self._run, name="segmented-zookeeper", daemon=True)
                self._thread.start()

    def add_leftover(self, parent: str, holder_id: str) -> None:
        """Delete the holder's nodes as soon as the servers are reachable. The caller holds the session's lock."""
        self._leftovers[holder_id] = Leftover(parent, holder_id)

    def forget_leftovers(self) -> None:
        """Drop all leftovers: their session is over. The caller holds the session's lock."""
        self._leftovers.clear()

    def look_after(self, lease: Held) -> None:
        """Watch over a lease until it is over."""
        with self._changed:
            self.leases[lease] = partial(self._has_changed, ref(lease))
        self.start()

    def let_go(self, lease: Held) -> None:
        """Stop watching over a lease."""
        with self._changed:
            callback = self.leases.pop(lease, None)
        if callback is not None:
            self._session.unwatch(lease.path, callback)

    # --- the thread ---

    def _run(self) -> None:
        while self._slept():
            self._look_after_all()

    def _slept(self) -> bool:
        """Sleep until there is work; return False if there was none for a while."""
        with self._changed:
            now = self._session.clock.now()
            if self._has_work():
                self._idle_since = None
            elif self._idle_since is None:
                self._idle_since = now
            elif now - self._idle_since >= LINGER_SECONDS:
                self._thread = self._idle_since = None
                self._session.trust.forget_contact()
                return False
            if not self._is_stirred:
                self._changed.wait(max(0.0, min(self._due() - now, SLEEP_MAX)))
            self._is_stirred = False
            return True

    def _has_work(self) -> bool:
        return bool(self._session.stores or self.leases or self._leftovers)

    def _due(self) -> float:
        trust = self._session.trust
        beat_due = self._beat_due if trust.is_connected and trust.session_seconds is not None else inf
        idle_until = inf if self._idle_since is None else self._idle_since + LINGER_SECONDS
        return min(beat_due, trust.over_at(), idle_until)

    def _look_after_all(self) -> None:
        trust = self._session.trust
        with self._changed:
            now = self._session.clock.now()
            trust.look_at_clock(now)
            has_ended, self._told_era = trust.era != self._told_era, trust.era
            leases, leftover, link = list(self.leases), list(self._leftovers.values()), trust.link
        if has_ended:
            self._session.wake_stores()
        living = self._tell_the_losers(leases)
        if not self._session.is_connected:
            return
        if trust.session_seconds is not None and (now >= self._beat_due or link != self._beat_link):
            self._beat_due, self._beat_link = now + trust.beat_seconds(), link
            self._client.sync_async("/").rawlink(partial(self._confirmed, self._told_era, now))
        for lease in living:
            if lease.watched_link != link:
                self._look_at(lease, link)
        for one in leftover:
            if one.link != link:
                self._clean(one, link)

    def _tell_the_losers(self, leases: list[Held]) -> list[Held]:
        """Remove the leases that are over, notify the holders of lost ones, and return the rest."""
        lost = [lease for lease in leases if lease.is_lost_untold()]
        if lost:  # in a separate thread: the user's code may block, and the other leases must be confirmed
            threading.Thread(target=_tell_all, args=(lost,), name="segmented-zookeeper-lost", daemon=True).start()
        over = {lease for lease in leases if lease.is_over()}.union(lost)
        for lease in over:
            self.let_go(lease)
        return [lease for lease in leases if lease not in over]

    def _confirmed(self, era: int, asked_at: float, result: Any) -> None:  # noqa: ANN401  # kazoo's, untyped
        if result.exception is None:
            self._session.note_contact(era, asked_at)

    # --- leases ---

    def _look_at(self, lease: Held, link: int) -> None:
        lease.watched_link = link
        with self._changed:
            if (callback := self.leases.get(lease)) is None:
                return  # released in the meantime
            self._session.unwatch(lease.path, callback)
            self._session.watch(lease.path, callback)
        self._client.get_async(lease.path, watch=self._session.on_event).rawlink(partial(self._seen, lease, link))

    def _has_changed(self, found: ref[Held]) -> None:
        lease = found()
        if lease is not None:
            lease.watched_link = NO_LINK
        self.stir()

    def _seen(self, lease: Held, link: int, result: Any) -> None:  # noqa: ANN401  # kazoo's, untyped
        error = result.exception
        if error is None:
            _, stat = result.value
            if stat.czxid == lease.fencing_token:
                lease.note_seen(link)
                return
        elif isinstance(error, CONNECTION_ERRORS):
            return  # checked again on the next connection
        elif not isinstance(error, NoNodeError):
            _log.error("lease.unreadable", extra={"path": lease.path, "error": repr(error)})
            return
        lease.note_gone()
        self.stir()

    # --- leftover ---

    def _clean(self, leftover: Leftover, link: int) -> None:
        leftover.link = link
        self._client.sync_async(leftover.parent)  # so that the next read is no older than our last request
        listing = self._client.get_children_async(leftover.parent)
        listing.rawlink(partial(self._listed, leftover))

    def _listed(self, leftover: Leftover, result: Any) -> None:  # noqa: ANN401  # kazoo's, untyped
        if result.exception is not None:
            self._settle(leftover, result.exception)
            return
        prefix = contender_prefix(leftover.parent, leftover.holder_id)
        paths = [path for node in result.value if (path := f"{leftover.parent}/{node}").startswith(prefix)]
        if not paths:
            self._settle(leftover, None)
        for path in paths:  # one path, unless a server lost a confirmed write
            self._client.delete_async(path).rawlink(lambda deleted: self._settle(leftover, deleted.exception))

    def _settle(self, leftover: Leftover, error: Exception | None) -> None:
        if isinstance(error, CONNECTION_ERRORS):
            return  # retried on the next connection
        with self._changed:
            if error is None or isinstance(error, NoNodeError):
                self._leftovers.pop(leftover.holder_id, None)
                return
            leftover.link, leftover.refusals = NO_LINK, leftover.refusals + 1
            if leftover.refusals < REFUSALS_MAX:
                return
            self._leftovers.pop(leftover.holder_id, None)
        _log.error("contender.undeletable", extra={"parent": leftover.parent, "error": repr(error)})


def _tell_all(lost: list[Held]) -> None:
    for lease in lost:
        lease.tell()
