"""Follows SQLAlchemy transactions through its events.

SQLAlchemy reports a session's end after the connections have committed or rolled back. For a plain connection it sends
an event only *before* the COMMIT, which is too early for a release; so a connection's transaction counts as ended when
the next one begins on it, or when it goes back to its pool, whichever is first. `with engine.begin() as connection`
does that at its end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol
from weakref import WeakSet

from sqlalchemy import Connection, event
from sqlalchemy.orm import Session, SessionTransaction
from sqlalchemy.pool import ConnectionPoolEntry, Pool
from sqlalchemy.util.concurrency import await_only, in_greenlet

from segmented.errors import InvalidInput
from segmented.process import Guard

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

INFO_KEY: Final = "segmented.locks.followers"
"""The key under which a session, or a pooled connection, keeps the followers of its transaction."""
CONNECTIONS_KEY: Final = "segmented.locks.connections"
"""The key under which a session keeps the connections that its transaction has begun on."""


class Follower(Protocol):
    """An object that is notified of a transaction's progress."""

    def before_commit(self) -> None:
        """Note that a commit is about to be sent; raise to refuse it."""

    def after_end(self) -> None:
        """Note that a transaction has ended, by a commit, a rollback or a close."""


class Transaction(Protocol):
    """A transaction that can be followed."""

    def is_open(self) -> bool:
        """Return whether a transaction has begun and not ended."""

    def follow(self, follower: Follower) -> None:
        """Notify `follower` from now on."""

    def leave(self, follower: Follower) -> None:
        """Stop notifying `follower`."""

    def has_run(self, start: Callable[[], Coroutine[Any, Any, None]]) -> bool:
        """Run a coroutine to its end if the current notification of the end allows it; return whether it did."""


class _Watch:
    """The asyncio support that both watches share."""

    def has_run(self, start: Callable[[], Coroutine[Any, Any, None]]) -> bool:
        """Run a coroutine to its end under SQLAlchemy's asyncio, which sends events inside a greenlet."""
        try:
            is_possible = in_greenlet()
        except ImportError:  # greenlet is not installed, so nothing runs in one
            return False
        if is_possible:
            await_only(start())
        return is_possible


class SessionWatch(_Watch):
    """Follows the transactions of a session, or of a connection whose transaction it has joined."""

    def __init__(self, session: Session) -> None:
        """Create a watch of `session` without followers."""
        self._session = session

    def is_open(self) -> bool:
        """Return whether a transaction has begun, in the session or in a connection that it joined."""
        return self._session.in_transaction() or any(map(_is_in_transaction, _connections(self._session)))

    def follow(self, follower: Follower) -> None:
        """Notify `follower` from now on."""
        self._session.info.setdefault(INFO_KEY, []).append(follower)

    def leave(self, follower: Follower) -> None:
        """Stop notifying `follower`."""
        _discard(self._session.info.get(INFO_KEY, []), follower)
        for connection in _connections(self._session):
            if not (connection.closed or connection.invalidated):
                _discard(connection.info.get(INFO_KEY, []), follower)


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
        followers = self._connection.info.setdefault(INFO_KEY, [])
        followers.append(follower)
        proxied = self._connection.connection
        if proxied.is_detached:
            _detached[id(proxied.dbapi_connection)] = followers
        for name, listener in CONNECTION_EVENTS.items():
            with _guard.lock:
                if not event.contains(self._connection, name, listener):
                    event.listen(self._connection, name, listener)

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


# --- listeners: module functions, so that each is registered once ---

_detached: dict[int, list[Follower]] = {}
"""The followers of connections that were taken out of their pools, by the identity of the driver's connection."""
_guard = Guard()


def _connections(session: Session) -> set[Connection]:
    """Return the connections of a session's transaction; of one that began before our import, only its own bind."""
    own = {session.bind} if isinstance(session.bind, Connection) else set[Connection]()
    return own | set(session.info.get(CONNECTIONS_KEY, ()))


def _is_in_transaction(connection: Connection) -> bool:
    return not (connection.closed or connection.invalidated) and connection.in_transaction()


def _discard(followers: list[Follower], follower: Follower) -> None:
    if follower in followers:
        followers.remove(follower)


def _after_session_begin(session: Session, _: SessionTransaction, connection: Connection) -> None:
    session.info.setdefault(CONNECTIONS_KEY, WeakSet()).add(connection)


def _before_session_commit(session: Session) -> None:
    for follower in list(session.info.get(INFO_KEY, [])):
        follower.before_commit()


def _after_session_end(session: Session, transaction: SessionTransaction) -> None:
    if transaction.parent is not None:  # a savepoint
        return
    # Those that the session only joined go on: its work is not committed yet.
    joined = [connection for connection in _connections(session) if _is_in_transaction(connection)]
    session.info.pop(CONNECTIONS_KEY, None)
    followers = list(session.info.get(INFO_KEY, []))
    if not joined:
        for follower in followers:
            follower.after_end()
        return
    session.info[CONNECTIONS_KEY] = WeakSet(joined)
    for follower in followers:
        for connection in joined:
            _discard(connection.info.get(INFO_KEY, []), follower)
            ConnectionWatch(connection).follow(follower)


def _before_connection_commit(connection: Connection, *_: object) -> None:
    for follower in list(connection.info.get(INFO_KEY, [])):
        follower.before_commit()


def _after_connection_end(connection: Connection, *_: object) -> None:
    for follower in list(connection.info.get(INFO_KEY, [])):
        follower.after_end()


def _after_checkin(_: Any, entry: ConnectionPoolEntry) -> None:  # noqa: ANN401  # the driver's own connection, or None
    for follower in entry.info.pop(INFO_KEY, []):
        follower.after_end()


def _after_detach(driver: Any, entry: ConnectionPoolEntry) -> None:  # noqa: ANN401  # the driver's own connection
    followers = entry.info.get(INFO_KEY)
    if followers is not None:
        _detached[id(driver)] = followers


def _after_close_detached(driver: Any) -> None:  # noqa: ANN401  # the driver's own connection
    for follower in _detached.pop(id(driver), []):
        follower.after_end()


CONNECTION_EVENTS: Final[dict[str, Callable[..., None]]] = {
    "commit": _before_connection_commit,
    "prepare_twophase": _before_connection_commit,
    "commit_twophase": _before_connection_commit,
    "begin": _after_connection_end,
    "begin_twophase": _after_connection_end,
}
for _target, _name, _listener in (
    (Session, "after_begin", _after_session_begin),
    (Session, "before_commit", _before_session_commit),
    (Session, "after_transaction_end", _after_session_end),
    (Pool, "checkin", _after_checkin),
    (Pool, "detach", _after_detach),
    (Pool, "close_detached", _after_close_detached),
):
    event.listen(_target, _name, _listener)
