"""Follows SQLAlchemy transactions through its events.

SQLAlchemy reports a session's end after the connections have committed or rolled back. For a plain connection it sends
an event only *before* the COMMIT, which is too early for a release; so a connection's transaction counts as ended when
the next one begins on it, or when it goes back to its pool, whichever is first. `with engine.begin() as connection`
does that at its end.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, event
from sqlalchemy.orm import Session
from sqlalchemy.pool import Pool
from sqlalchemy.util.concurrency import await_, in_greenlet

from segmented.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from sqlalchemy.orm import SessionTransaction
    from sqlalchemy.pool import ConnectionPoolEntry

    from segmented.locks.holdings import Follower, Transaction

INFO_KEY: Final = "segmented.locks.followers"
"""The key under which a pooled connection keeps the followers of its transaction."""


class _Watch:
    """The asyncio support that both watches share."""

    def has_run(self, start: Callable[[], Coroutine[Any, Any, None]]) -> bool:
        """Run a coroutine to its end under SQLAlchemy's asyncio, which sends events inside a greenlet."""
        try:
            is_possible = in_greenlet()
        except ImportError:  # greenlet is not installed, so nothing runs in one
            return False
        if is_possible:
            await_(start())
        return is_possible


class SessionWatch(_Watch):
    """Follows the transactions of a session, or of the connection whose transaction it has joined."""

    def __init__(self, session: Session) -> None:
        """Create a watch of `session` without followers."""
        self._session = session

    def is_open(self) -> bool:
        """Return whether a transaction has begun, in the session or in the connection that it joined."""
        outer = _outer(self._session)
        return self._session.in_transaction() or (outer is not None and outer.in_transaction())

    def follow(self, follower: Follower) -> None:
        """Notify `follower` from now on."""
        with _guard:
            is_new = self._session not in _followers
            _followers.setdefault(self._session, []).append(follower)
        if is_new:
            event.listen(self._session, "before_commit", _before_session_commit)
            event.listen(self._session, "after_transaction_end", _after_session_end)

    def leave(self, follower: Follower) -> None:
        """Stop notifying `follower`."""
        _discard(_followers.get(self._session, []), follower)
        outer = _outer(self._session)
        if outer is not None and not (outer.closed or outer.invalidated):
            _discard(outer.info.get(INFO_KEY, []), follower)


class ConnectionWatch(_Watch):
    """Follows the transactions of a connection."""

    def __init__(self, connection: Connection) -> None:
        """Create a watch of `connection` without followers."""
        self._connection = connection

    def is_open(self) -> bool:
        """Return whether a transaction has begun and not ended."""
        return self._connection.in_transaction()

    def follow(self, follower: Follower) -> None:
        """Notify `follower` from now on, until the connection goes back to its pool."""
        self._connection.info.setdefault(INFO_KEY, []).append(follower)
        for target, name, listener in (
            (self._connection, "commit", _before_connection_commit),
            (self._connection, "begin", _after_connection_end),
            (Pool, "checkin", _after_checkin),
        ):
            with _guard:
                if not event.contains(target, name, listener):
                    event.listen(target, name, listener)

    def leave(self, follower: Follower) -> None:
        """Stop notifying `follower`."""
        if not (self._connection.closed or self._connection.invalidated):
            _discard(self._connection.info.get(INFO_KEY, []), follower)


def watched(found: object, where: str) -> Transaction:
    """Return the watch of a Session or Connection, sync, async or scoped. Raises InvalidInput."""
    if hasattr(found, "registry") and callable(found):  # a scoped session returns the current session
        found = found()
    sync = getattr(found, "sync_session", None) or getattr(found, "sync_connection", None) or found
    if isinstance(sync, Session):
        return SessionWatch(sync)
    if isinstance(sync, Connection):
        return ConnectionWatch(sync)
    message = f"{where} is of type {type(found).__name__}, not a Session or a Connection of SQLAlchemy that has begun"
    raise InvalidInput(message)


# --- listeners: module functions, so that each is registered once per session or connection ---

_followers: WeakKeyDictionary[Session, list[Follower]] = WeakKeyDictionary()
_guard = threading.Lock()


def _outer(session: Session) -> Connection | None:
    return session.bind if isinstance(session.bind, Connection) else None


def _discard(followers: list[Follower], follower: Follower) -> None:
    if follower in followers:
        followers.remove(follower)


def _before_session_commit(session: Session) -> None:
    for follower in list(_followers.get(session, [])):
        follower.before_commit()


def _after_session_end(session: Session, transaction: SessionTransaction) -> None:
    if transaction.parent is not None:  # a savepoint
        return
    outer = _outer(session)
    followers = list(_followers.get(session, []))
    if outer is not None and outer.in_transaction():  # the session only joined: its work is not committed yet
        watch = ConnectionWatch(outer)
        for follower in followers:
            _discard(outer.info.get(INFO_KEY, []), follower)
            watch.follow(follower)
        return
    for follower in followers:
        follower.after_end()


def _before_connection_commit(connection: Connection) -> None:
    for follower in list(connection.info.get(INFO_KEY, [])):
        follower.before_commit()


def _after_connection_end(connection: Connection) -> None:
    for follower in list(connection.info.get(INFO_KEY, [])):
        follower.after_end()


def _after_checkin(_: Any, entry: ConnectionPoolEntry) -> None:  # noqa: ANN401  # the driver's own connection, or None
    for follower in entry.info.pop(INFO_KEY, []):
        follower.after_end()
