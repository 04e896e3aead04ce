"""The session of one kazoo client in this process, shared by all its locks, sync and async.

kazoo reports changes from its own threads. This module records them and forwards them to the stores, whose waiters
check again, and to the caretaker, which watches over the leases. Nothing here blocks or calls the user's code.

A server limits the session time that a client requests (by default to between 2 and 20 ticks). kazoo receives the
granted time but does not expose it. So this module requests the same time once more, on a separate connection that it
closes immediately. It uses only kazoo's public names, except for the client's requested time.
"""

from __future__ import annotations

import struct
import threading
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final, Protocol

from kazoo.exceptions import KazooException
from kazoo.protocol.serialization import CloseInstance, Connect
from kazoo.protocol.states import KazooState, KeeperState, WatchedEvent

from segmented.errors import InvalidInput, StoreRefused, StoreUnavailable
from segmented.process import THIS
from segmented.protocol.zookeeper import SessionSeen
from segmented.stores.zookeeper.trust import Trust

if TYPE_CHECKING:
    from collections.abc import Callable

    from kazoo.client import KazooClient

    from segmented.clock import Clock

CLOSED_STATES: Final = {KeeperState.CLOSED, KeeperState.AUTH_FAILED}
NEW_SESSION: tuple[int, bytes] = (0, bytes(16))
LENGTH = struct.Struct("!i")
HEADER = struct.Struct("!ii")


class Care(Protocol):
    """The background duties of a session, as it calls them; see `caretaker`."""

    def stir(self) -> None:
        """Check everything now."""

    def start(self) -> None:
        """Start the thread if there is work for it."""

    def add_leftover(self, parent: str, holder_id: str) -> None:
        """Delete the holder's nodes as soon as the servers are reachable."""

    def forget_leftovers(self) -> None:
        """Drop all leftovers."""


class Listener(Protocol):
    """The interface of a store towards its session."""

    def wake_all(self) -> None:
        """Make every waiter check again; may be called from any thread."""


class Session:
    """One client's session, and the stores and leases that depend on it."""

    def __init__(self, client: KazooClient, clock: Clock, care: Callable[[Session], Care]) -> None:
        """Listen to the client; the caller starts and stops it."""
        self.client = client
        self.clock = clock
        self.where = ",".join(f"{host}:{port}" for host, port in client.hosts)
        self.changed = threading.Condition(threading.RLock())
        """Guards all state here, and notifies the caretaker of work."""
        self.trust = Trust()
        self.stores: set[Listener] = set()
        self._watches: dict[str, list[Callable[[], None]]] = {}
        self._process_id = THIS.process_id
        self.caretaker = care(self)
        client.add_listener(self._on_state)
        with self.changed:
            if client.client_state == KeeperState.CONNECTED and not self.trust.is_connected:
                self.trust.connect()

    # --- called by kazoo, in its threads ---

    def _on_state(self, state: str) -> None:
        with self.changed:
            if state == KazooState.LOST:
                self.trust.end_session()
                if self.is_closed:
                    self.caretaker.forget_leftovers()  # the server deletes the nodes together with the session
            elif self.client.client_state == KeeperState.CONNECTED:
                self.trust.connect()
            else:  # suspended, or connected to a read-only server, which does not know whether the session is alive
                self.trust.disconnect()
        self.wake_stores()
        self.caretaker.stir()

    def on_event(self, event: WatchedEvent) -> None:
        """Notify the watchers of a node of its change."""
        with self.changed:
            callbacks = self._watches.pop(event.path, [])
        for callback in callbacks:
            callback()

    # --- called by stores and leases ---

    @property
    def is_connected(self) -> bool:
        """Return whether a request can be sent now. kazoo ends pending requests before it reports a disconnection."""
        return self.trust.is_connected and self.client.client_state == KeeperState.CONNECTED

    @property
    def is_closed(self) -> bool:
        """Return whether the client was closed: the server has deleted the session's nodes, or will soon."""
        return self.client.client_state in CLOSED_STATES

    def look(self, era: int | None) -> SessionSeen:
        """Return the session's state. Raises StoreUnavailable if `era` is over, StoreRefused for a closed client."""
        if era is None:
            self._require_usable()
        else:
            self.require(era)
        with self.changed:
            now = self.clock.now()
            is_fresh = now < self.trust.trusted_until(self.trust.link)
            return SessionSeen(self.trust.era, self.trust.link, self.is_connected, is_fresh)

    def require(self, era: int) -> None:
        """Raise StoreUnavailable if `era` is over."""
        if self.is_over(era):
            message = f"the session with ZooKeeper at {self.where} has ended, and all operations begun in it with it"
            raise StoreUnavailable(message)

    def is_over(self, era: int) -> bool:
        """Return whether `era` is over, as far as is known or by our own clock."""
        with self.changed:
            self.trust.look_at_clock(self.clock.now())
            return era != self.trust.era

    def trusted_until(self, era: int, link: int) -> float:
        """Return the local time until which a lease of `era`, last seen on connection `link`, is valid."""
        with self.changed:
            return self.trust.trusted_until(link) if era == self.trust.era else float("-inf")

    def note_contact(self, era: int, asked_at: float) -> None:
        """Record that the leader has answered a request that was sent at `asked_at`."""
        with self.changed:
            self.trust.note_contact(era, asked_at)

    def learn_time(self, era: int, timeout: float) -> None:
        """Read the session time that the server grants, once per session. Blocks."""
        if self.trust.session_seconds is None:
            seconds = granted_seconds(self.client, timeout)
            with self.changed:
                self.require(era)
                self.trust.session_seconds = seconds
            self.caretaker.stir()

    def watch(self, path: str, callback: Callable[[], None]) -> None:
        """Register a callback for the next change of a node; the caller then sets the watch on the server."""
        with self.changed:
            self._watches.setdefault(path, []).append(callback)

    def unwatch(self, path: str, callback: Callable[[], None]) -> None:
        """Remove a callback."""
        with self.changed:
            callbacks = self._watches.get(path, [])
            if callback in callbacks:
                callbacks.remove(callback)
            if not callbacks:
                self._watches.pop(path, None)

    def attach(self, store: Listener) -> None:
        """Notify a store of every change, and keep confirming the session while it is attached."""
        with self.changed:
            self.stores.add(store)
        self.caretaker.start()

    def detach(self, store: Listener) -> None:
        """Stop notifying the store."""
        with self.changed:
            self.stores.discard(store)

    def abandon(self, parent: str, holder_id: str) -> None:
        """Delete a holder's contender in the background, as soon as the servers are reachable."""
        with self.changed:
            if not self.is_closed:
                self.caretaker.add_leftover(parent, holder_id)
        self.caretaker.stir()

    def wake_stores(self) -> None:
        """Make all waiters check again."""
        with self.changed:
            stores = list(self.stores)
        for store in stores:
            store.wake_all()

    def _require_usable(self) -> None:
        if THIS.process_id != self._process_id:
            raise InvalidInput(f"the ZooKeeper client belongs to process {self._process_id}; start one in this process")
        if self.client.client_state == KeeperState.CLOSED:
            raise StoreRefused(f"the ZooKeeper client for {self.where} is closed: start it with client.start()")
        if self.client.client_state == KeeperState.AUTH_FAILED:
            raise StoreRefused(f"ZooKeeper at {self.where} refused the client's credentials")


def granted_seconds(client: KazooClient, timeout: float) -> float:
    """Ask the client's servers one after the other, within `timeout` seconds in all."""
    hosts: list[tuple[str, int]] = list(client.hosts)
    failure: Exception | None = None
    for address in hosts:
        try:
            with closing(_connected(client, address, timeout / len(hosts))) as line:
                return _asked(line, client._session_timeout)  # noqa: SLF001  # kazoo has no other place for it
        except (OSError, KazooException, struct.error) as error:
            failure = error
    message = f"ZooKeeper at {', '.join(f'{host}:{port}' for host, port in hosts)} does not report its session time"
    raise StoreUnavailable(message) from failure


def _connected(client: KazooClient, address: tuple[str, int], timeout: float) -> Any:  # noqa: ANN401  # a socket, by kazoo
    line = client.handler.create_connection(
        address,
        hostname=address[0],
        timeout=timeout,
        use_ssl=client.use_ssl,
        ca=client.ca,
        certfile=client.certfile,
        keyfile=client.keyfile,
        keyfile_password=client.keyfile_password,
        verify_certs=client.verify_certs,
        check_hostname=client.check_hostname,
    )
    line.settimeout(timeout)
    return line


def _asked(line: Any, session_ms: int) -> float:  # noqa: ANN401  # a socket, by kazoo
    session_id, password = NEW_SESSION
    _send(line, bytes(Connect(0, 0, session_ms, session_id, password, False).serialize()))  # noqa: FBT003  # kazoo's own
    granted, _ = Connect.deserialize(_received(line), 0)
    _send(line, HEADER.pack(1, CloseInstance.type))
    _received(line)  # the session ends before the connection
    return float(granted.time_out) / 1000


def _send(line: Any, message: bytes) -> None:  # noqa: ANN401  # a socket, by kazoo
    line.sendall(LENGTH.pack(len(message)) + message)


def _received(line: Any) -> bytes:  # noqa: ANN401  # a socket, by kazoo
    (length,) = LENGTH.unpack(_exactly(line, LENGTH.size))
    return _exactly(line, length)


def _exactly(line: Any, length: int) -> bytes:  # noqa: ANN401  # a socket, by kazoo
    parts = b""
    while len(parts) < length:
        part = line.recv(length - len(parts))
        if not part:
            raise ConnectionError("the connection was closed before the answer")
        parts += part
    return parts
