"""The session of one kazoo client: its connection, how long its leases may be trusted, and what threads do for it.

All that may wait for ZooKeeper runs in a thread of its own (`Attempt`, `in_thread`), sync and async alike. So a caller
can be interrupted or cancelled at any moment, and its thread deletes the node that it may have left behind, as soon as
the servers are reachable.

ZooKeeper ends a session from which it has heard nothing for the session time, and deletes the session's ephemeral
nodes. The client learns this only when it reaches the servers again. So a holder uses its own clock, counted from just
before the last request that the leader answered and that saw the holder's node:

- After two fifths of the session time, or without a connection, a lease is in doubt. The holder must not act on it. It
  is valid again when its node is seen again.
- After the whole session time, minus 1 % and 2 ms for clocks that run at different rates, the lease is lost for good.

Why two fifths: a server that is not the leader reports its clients' contacts every half tick, and a session lasts two
ticks or more. So the leader may learn of a contact a quarter of the session time late. It may then know only of the
contact before, which is an eighth of the session time earlier with our interval, or a third with an idle client's.

An era is the time of one session. It ends when the server says that the session is over, or the client is closed.
Nothing begun in one era continues in the next.

The path of a contender is `<root>/<name, percent-encoded>/<holder id>-<sequence>`. ZooKeeper appends the sequence: ten
digits, counted by the parent, in a signed 32-bit number that becomes negative after 2,147,483,647 (`in_order`).
"""

from __future__ import annotations

import logging
import struct
import threading
from concurrent.futures import Future
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import cmp_to_key, partial
from math import inf
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar
from uuid import uuid4
from weakref import WeakKeyDictionary, WeakSet, ref

from kazoo.client import KazooClient
from kazoo.exceptions import (
    ConnectionLoss,
    KazooException,
    NoNodeError,
    OperationTimeoutError,
    SessionExpiredError,
    SessionMovedError,
)
from kazoo.protocol.serialization import CloseInstance, Connect
from kazoo.protocol.states import KazooState, KeeperState, WatchedEvent

from segmented.clock import Clock, SystemClock
from segmented.errors import AcquireTimeout, InvalidInput, LeaseLost, StoreRefused, StoreUnavailable
from segmented.process import THIS, Guard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

ONE_TRY_SECONDS: Final = 5.0
"""Maximum duration of a try without waiting, a release, or a read of the queue."""
WITHDRAW_SECONDS: Final = 0.5
"""Seconds for which leaving the queue may delay the caller, before it continues in the background."""
TRUST_RATE: Final = 0.4
BEATS_PER_SESSION: Final = 8
DRIFT_RATE: Final = 0.01
DRIFT_SECONDS: Final = 0.002
WRAP: Final = 2**32
CONNECTION_ERRORS: Final = (ConnectionLoss, OperationTimeoutError, SessionExpiredError, SessionMovedError)
"""Errors that do not say whether the request was performed."""

AnswerT = TypeVar("AnswerT")
_log = logging.getLogger("segmented.locks")


class Unanswered(StoreUnavailable):
    """The request got no answer: the connection was lost or it timed out. The session may still be alive."""


class GivenUp(StoreUnavailable):
    """The caller of an attempt has gone."""


@dataclass(frozen=True, slots=True)
class Contender:
    """One place in a lock's queue. The first in the queue holds the lock."""

    holder_id: str
    sequence: int
    path: str


def contender(parent: str, node: str) -> Contender | None:
    """Return the contender of a child node; None for a node that is not ours."""
    holder_id, dash, sequence = node.partition("-")
    digits = sequence.removeprefix("-")
    if not dash or not holder_id or not (digits.isascii() and digits.isdigit()):
        return None
    return Contender(holder_id, int(sequence), f"{parent}/{node}")


def in_order(contenders: Iterable[Contender]) -> tuple[Contender, ...]:
    """Sort by arrival, by serial number arithmetic (RFC 1982), so that nobody jumps the queue when the counter wraps.

    Correct as long as fewer than 2^31 arrivals lie between the first and the last.
    """
    return tuple(sorted(contenders, key=cmp_to_key(_difference)))


def _difference(one: Contender, other: Contender) -> int:
    return (one.sequence - other.sequence + WRAP // 2) % WRAP - WRAP // 2


@dataclass(frozen=True, slots=True)
class Seen:
    """A look at a node that found it: in which session, on which connection, and when the leader was asked."""

    era: int
    link: int
    asked_at: float


class Held(Protocol):
    """A lease, as its session's thread sees it."""

    seen: Seen
    path: str
    fencing_token: int

    def is_over(self) -> bool:
        """Return whether it needs no more care."""

    def is_lost_untold(self) -> bool:
        """Return whether it is lost and its holder does not know it yet."""

    def tell(self) -> None:
        """Notify the holder of the loss; may run the holder's code."""

    def note_gone(self) -> None:
        """Note that the node no longer exists."""


def in_thread(body: Callable[[], AnswerT]) -> Future[AnswerT]:
    """Run a body that may wait for ZooKeeper in a thread of its own."""
    outcome: Future[AnswerT] = Future()
    outcome.set_running_or_notify_cancel()

    def run() -> None:
        try:
            outcome.set_result(body())
        except BaseException as error:  # noqa: BLE001  # the caller raises it
            outcome.set_exception(error)

    threading.Thread(target=run, name="segmented-zookeeper", daemon=True).start()
    return outcome


class Session:
    """One client's session, and the leases and the waiting attempts that depend on it."""

    def __init__(self, client: KazooClient, clock: Clock) -> None:
        """Listen to the client; the caller starts and stops it."""
        self.client = client
        self.clock = clock
        self.where = ",".join(f"{host}:{port}" for host, port in client.hosts)
        self.changed = threading.Condition(threading.RLock())
        """Guards all state here; notified of every change of the connection and of watched nodes."""
        self.era = 0
        self.link = 0
        """Number of connections so far."""
        self.seconds: float | None = None
        """The session time that the server granted; None while it is unknown."""
        self._process_id = THIS.process_id
        self._watchers: dict[str, set[Attempt]] = {}
        self._leases: WeakSet[Any] = WeakSet()
        """It holds leases weakly, so that none is kept alive that its program has dropped."""
        self._is_watching = False
        self._beaten = (-inf, -1)
        """When the leases were last confirmed, and on which connection."""
        client.add_listener(self.on_state)
        self.link += client.client_state == KeeperState.CONNECTED

    # --- called by kazoo, in its threads ---

    def on_state(self, state: str) -> None:
        """Note a change of the connection or the session, and wake all who wait for one."""
        with self.changed:
            if state == KazooState.LOST:
                self.era, self.seconds = self.era + 1, None
            elif self.is_connected:
                self.link += 1
            self.changed.notify_all()

    def on_event(self, event: WatchedEvent) -> None:
        """Wake the attempts that watch a node."""
        with self.changed:
            for attempt in self._watchers.get(event.path, ()):
                attempt.is_called = True
            self.changed.notify_all()

    # --- the state ---

    @property
    def is_connected(self) -> bool:
        """Return whether a request can be sent now, to a server that knows whether the session is alive."""
        return bool(self.client.client_state == KeeperState.CONNECTED)

    @property
    def is_closed(self) -> bool:
        """Return whether the client was closed: the server has deleted the session's nodes, or will soon."""
        return self.client.client_state in {KeeperState.CLOSED, KeeperState.AUTH_FAILED}

    def trusted_until(self, seen: Seen) -> float:
        """Return the local time until which a lease may be trusted whose node was seen so."""
        if not self.is_connected or (seen.era, seen.link) != (self.era, self.link) or self.seconds is None:
            return -inf
        return seen.asked_at + self.seconds * TRUST_RATE

    def is_over(self, seen: Seen) -> bool:
        """Return whether the session of a lease is over, as far as is known or by our own clock."""
        return self.clock.now() >= self._over_at(seen)

    def _over_at(self, seen: Seen) -> float:
        if seen.era != self.era or self.seconds is None:
            return -inf
        return seen.asked_at + self.seconds * (1 - DRIFT_RATE) - DRIFT_SECONDS

    # --- requests, in the thread of an attempt ---

    def wait(self, is_so: Callable[[], bool], deadline: float) -> bool:
        """Sleep until a change makes it so; return False if the deadline passes first."""
        with self.changed:
            return self.changed.wait_for(is_so, _seconds(deadline - self.clock.now()))

    def require_usable(self) -> None:
        """Raise InvalidInput in a forked child, and StoreRefused for a client that is closed or was never started."""
        if THIS.process_id != self._process_id:
            raise InvalidInput(f"the ZooKeeper client belongs to process {self._process_id}; start one in this process")
        if self.client.client_state == KeeperState.CLOSED:
            raise StoreRefused(f"the ZooKeeper client for {self.where} is closed: start it with client.start()")
        if self.client.client_state == KeeperState.AUTH_FAILED:
            raise StoreRefused(f"ZooKeeper at {self.where} refused the client's credentials")

    def require(self, era: int) -> None:
        """Raise StoreUnavailable if `era` is over."""
        if era != self.era:
            message = f"the session with ZooKeeper at {self.where} has ended, and all operations begun in it with it"
            raise StoreUnavailable(message)

    def ask(self, request: Callable[[], Any], era: int, deadline: float) -> Any:  # noqa: ANN401  # kazoo's, untyped
        """Send a request of `era` and return its answer. Raises Unanswered, StoreRefused, or NoNodeError."""
        self.require(era)
        if not self.is_connected:
            raise Unanswered(f"there is no connection to ZooKeeper at {self.where}")
        value = self.answer(request(), deadline)
        self.require(era)
        return value

    def answer(self, result: Any, deadline: float) -> Any:  # noqa: ANN401  # kazoo's, untyped
        """Wait for the answer to a request; translate the driver's errors into ours."""
        result.wait(_seconds(deadline - self.clock.now()))
        if not result.ready():
            raise Unanswered(f"ZooKeeper at {self.where} did not answer in time; whether the operation ran is unknown")
        error = result.exception
        if error is None:
            return result.value
        if isinstance(error, CONNECTION_ERRORS):
            raise Unanswered(f"the connection to ZooKeeper at {self.where} was lost") from error
        if isinstance(error, KazooException) and not isinstance(error, NoNodeError):
            message = f"ZooKeeper at {self.where} refused the operation: {str(error) or type(error).__name__}"
            raise StoreRefused(message) from error
        raise error

    def line(self, parent: str, era: int, deadline: float) -> tuple[Contender, ...]:
        """Return the queue as the leader knows it, in order; it is empty if the parent is missing."""
        self.client.sync_async("/")  # so that the read behind it is no older than our last request
        try:
            nodes = self.ask(partial(self.client.get_children_async, parent), era, deadline)
        except NoNodeError:
            return ()
        return in_order(one for node in nodes if (one := contender(parent, node)) is not None)

    def learn_time(self, era: int, deadline: float) -> None:
        """Read the session time that the server grants, once per session."""
        if self.seconds is None:
            seconds = granted_seconds(self.client, max(0.0, min(ONE_TRY_SECONDS, deadline - self.clock.now())))
            with self.changed:
                self.require(era)
                self.seconds = seconds

    def watch(self, path: str, attempt: Attempt) -> None:
        """Wake an attempt at the next change of a node; it then sets the watch on the server."""
        with self.changed:
            attempt.is_called = False
            self._watchers.setdefault(path, set()).add(attempt)

    def unwatch(self, path: str, attempt: Attempt) -> None:
        """Wake the attempt no more."""
        with self.changed:
            watchers = self._watchers.get(path, set())
            watchers.discard(attempt)
            if not watchers:
                self._watchers.pop(path, None)

    def remove(self, parent: str, holder_id: str, era: int, until: float) -> bool:
        """Delete a holder's nodes as soon as the servers are reachable; return False if that is not done in time."""
        while era == self.era and not self.is_closed:  # else the server deletes the nodes together with the session
            is_due = self.wait(lambda: self.is_connected or self.is_closed or era != self.era, until)
            if not is_due or self.clock.now() >= until:
                return False
            try:
                for one in self.line(parent, era, until):
                    if one.holder_id == holder_id:
                        with suppress(NoNodeError):
                            self.ask(partial(self.client.delete_async, one.path), era, until)
            except Unanswered:
                continue
            except StoreRefused as error:
                _log.error("contender.undeletable", extra={"parent": parent, "error": repr(error)})  # its text says all
            except StoreUnavailable:  # the session is over
                break
            return True
        return True

    def abandon(self, parent: str, holder_id: str, era: int) -> None:
        """Delete a holder's nodes in the background, or here within half a second if no thread can be started."""
        if era != self.era or self.is_closed:
            return
        try:
            in_thread(partial(self.remove, parent, holder_id, era, inf))
        except RuntimeError:
            self.remove(parent, holder_id, era, self.clock.now() + WITHDRAW_SECONDS)

    # --- what a lock asks for ---

    def attempt(self, name: str, parent: str, timeout: float | None) -> Attempt:
        """Create an acquire that has not begun."""
        return Attempt(self, name, parent, timeout)

    def release(self, path: str, era: int, *, was_tried: bool) -> Future[bool]:
        """Delete a lease's node; the answer is False if it was already gone, but not by an earlier try of ours."""
        return in_thread(partial(self._released, path, era, was_tried=was_tried))

    def _released(self, path: str, era: int, *, was_tried: bool) -> bool:
        deadline = self.clock.now() + ONE_TRY_SECONDS
        while True:
            self.wait(lambda: self.is_connected or era != self.era, deadline)
            try:
                self.ask(partial(self.client.delete_async, path), era, deadline)
            except NoNodeError:
                return was_tried
            except Unanswered:
                if self.clock.now() >= deadline:
                    raise
                was_tried = True
            else:
                return True

    def contenders(self, name: str, parent: str) -> Future[tuple[Contender, ...]]:
        """Read the queue of a lock."""
        return in_thread(partial(self._contenders, name, parent))

    def _contenders(self, name: str, parent: str) -> tuple[Contender, ...]:
        deadline = self.clock.now() + ONE_TRY_SECONDS
        while True:
            self.require_usable()
            is_due = self.wait(lambda: self.is_connected or self.is_closed, deadline)
            self.require_usable()
            if not is_due:
                raise unanswered(name, ONE_TRY_SECONDS)
            with suppress(Unanswered):
                return self.line(parent, self.era, deadline)

    # --- the leases: one thread watches over all of them ---

    def look_after(self, lease: Held) -> None:
        """Confirm a lease eight times a session until it is over, and notify its holder once of its loss."""
        with self.changed:
            if not self._is_watching:
                threading.Thread(target=self._watch_over, name="segmented-zookeeper", daemon=True).start()
                self._is_watching = True  # only now: if no thread can be started, the next lease tries it again
            self._leases.add(lease)
            self.changed.notify_all()

    def _watch_over(self) -> None:
        while self._rested():
            self._look()

    def _rested(self) -> bool:
        """Sleep until a lease needs care; return False if there are none."""
        with self.changed:
            if not (leases := self._living()):
                self._is_watching = False
                return False
            over_at = min(self._over_at(lease.seen) for lease in leases)
            del leases  # one that is dropped meanwhile is not kept
            beat_at, link = self._beaten
            beat_at += 0 if self.seconds is None else self.seconds / BEATS_PER_SESSION
            if link == self.link or not self.is_connected:
                due = min(over_at, beat_at if self.is_connected else inf)
                self.changed.wait(_seconds(due - self.clock.now()))
            return True

    def _living(self) -> list[Held]:
        return [lease for lease in self._leases if not lease.is_over()]

    def _look(self) -> None:
        """Look whether each lease's node is still there; notify those who have lost theirs."""
        with self.changed:
            leases, era, link, asked_at = self._living(), self.era, self.link, self.clock.now()
            beat_at, beat_link = self._beaten
            beat_seconds = inf if self.seconds is None else self.seconds / BEATS_PER_SESSION
            is_due = self.is_connected and (link != beat_link or asked_at >= beat_at + beat_seconds)
        if is_due:
            self._beaten = (asked_at, link)
            self.client.sync_async("/")  # through the leader
            asked = [(lease, self.client.get_async(lease.path)) for lease in leases]
            for lease, result in asked:
                deadline = max(asked_at, min(asked_at + beat_seconds, self._over_at(lease.seen)))
                try:
                    _, stat = self.answer(result, deadline)
                    if stat.czxid == lease.fencing_token and era == self.era:
                        lease.seen = Seen(era, link, asked_at)
                        continue
                except Unanswered:
                    continue  # looked at again on the next connection, or at the next beat
                except StoreRefused as error:
                    _log.error("lease.unreadable", extra={"path": lease.path, "error": repr(error)})
                    continue
                except NoNodeError:
                    pass
                lease.note_gone()
        for lease in leases:
            if lease.is_lost_untold():
                with self.changed:
                    self._leases.discard(lease)  # a blocked or closed event loop never runs `tell`: call it once
                try:  # in a thread: the user's code may block, and the others must be confirmed
                    threading.Thread(target=lease.tell, name="segmented-zookeeper-lost", daemon=True).start()
                except RuntimeError:  # no thread can be started
                    lease.tell()


def _seconds(seconds: float) -> float | None:
    return None if seconds == inf else min(max(0.0, seconds), threading.TIMEOUT_MAX)


class Attempt:
    """One acquire: it enters the queue, waits until it is first, and leaves no node behind if that fails.

    The recipe is that of the ZooKeeper documentation ("Recipes and Solutions", Locks): create an ephemeral, sequential
    node; the lowest sequence holds the lock; every other client watches the one just ahead, so a release wakes one.
    Added are rules for cases that the page leaves open:

    1. a create whose reply was lost may have succeeded: the queue is searched for the holder id before another is sent;
    2. a connection that is lost and comes back within the session costs only time;
    3. an attempt belongs to one session: when that ends, the attempt fails, and no node in the queue counts as its own;
    4. one deadline covers everything, however many waiters are ahead;
    5. an attempt that ends without a lease deletes its node, in the background if that takes long.
    """

    contender: Contender
    fencing_token: int
    """The zxid that created the node."""
    seen: Seen

    def __init__(self, session: Session, name: str, parent: str, timeout: float | None) -> None:
        """Create an attempt that waits up to `timeout` seconds (None: forever; 0: one try)."""
        self.session = session
        self.name = name
        self.parent = parent
        self.holder_id = uuid4().hex
        self.outcome: Future[Attempt] = Future()
        """This attempt, once it is first in the queue."""
        self.is_called = False
        """Whether the node that it watches has changed."""
        self._timeout = inf if timeout is None else timeout
        self._deadline = session.clock.now() + (self._timeout or ONE_TRY_SECONDS)
        self._era = -1
        self._has_asked = False
        """Whether a create was sent."""
        self._is_given_up = False

    def start(self) -> Future[Attempt]:
        """Begin, in a thread of its own."""
        self.outcome.set_running_or_notify_cancel()
        threading.Thread(target=self._run, name="segmented-zookeeper", daemon=True).start()
        return self.outcome

    def give_up(self) -> None:
        """Leave the queue in the background: the caller was interrupted or cancelled."""
        with self.session.changed:
            self._is_given_up = True
            self.session.changed.notify_all()
            has_turn = self.outcome.done() and self.outcome.exception() is None
        if has_turn:
            self.session.abandon(self.parent, self.holder_id, self._era)

    def _run(self) -> None:
        error: BaseException
        try:
            self._wait_for_turn()
            with self.session.changed:
                if not self._is_given_up:
                    self.outcome.set_result(self)
                    return
            error = GivenUp()
        except BaseException as failure:  # noqa: BLE001  # the caller raises it
            error = failure
        is_left = not self._has_asked or self._withdraw(self.session.clock.now() + WITHDRAW_SECONDS)
        self.outcome.set_exception(error)
        if not is_left:
            self._withdraw(inf)

    def _withdraw(self, until: float) -> bool:
        return self.session.remove(self.parent, self.holder_id, self._era, until)

    def _wait_for_turn(self) -> None:
        session = self.session
        session.require_usable()
        self._connect()
        session.learn_time(self._era, self._deadline)
        self._enter()
        while True:
            self.seen, line = self._look()
            if self.contender not in line:
                raise LeaseLost(self.name, self.holder_id)
            index = line.index(self.contender)
            if index == 0 and session.clock.now() < session.trusted_until(self.seen):
                return
            if index and self._timeout == 0:
                raise AcquireTimeout(self.name, 0.0)
            if index:
                self._wait_for(line[index - 1])

    def _look(self) -> tuple[Seen, tuple[Contender, ...]]:
        while True:
            self._connect()
            seen = Seen(self._era, self.session.link, self.session.clock.now())
            with suppress(Unanswered):
                return seen, self.session.line(self.parent, self._era, self._deadline)

    def _enter(self) -> None:
        """Enter the queue at its end, only once even if the connection is lost meanwhile."""
        client = self.session.client
        prefix = f"{self.parent}/{self.holder_id}-"
        creation = partial(client.create_async, prefix, ephemeral=True, sequence=True, include_data=True)
        while True:
            self._connect()
            try:
                if self._has_asked and (found := self._own()):
                    path, stat = found
                else:
                    self._has_asked = True
                    path, stat = self._ask(creation)
            except NoNodeError:
                with suppress(Unanswered):
                    self._ask(partial(client.ensure_path_async, self.parent))
            except Unanswered:
                continue
            else:
                sequence = int(path.removeprefix(prefix))
                self.contender, self.fencing_token = Contender(self.holder_id, sequence, path), stat.czxid
                return

    def _own(self) -> tuple[str, Any] | None:
        """Return the node that a create of ours has made whose reply was lost, and its state."""
        for one in self.session.line(self.parent, self._era, self._deadline):
            if one.holder_id == self.holder_id:
                with suppress(NoNodeError):
                    _, stat = self._ask(partial(self.session.client.get_async, one.path))
                    return one.path, stat
        return None

    def _wait_for(self, ahead: Contender) -> None:
        """Sleep until the one ahead has left, or the connection has changed; either may be so already."""
        session, link = self.session, self.session.link
        session.watch(ahead.path, self)
        try:
            # read it instead of calling `exists`, which would leave a watch behind on a deleted node
            self._ask(partial(session.client.get_async, ahead.path, watch=session.on_event))
            session.wait(
                lambda: self.is_called or link != session.link or not session.is_connected or self._is_over(),
                self._deadline,
            )
        except (NoNodeError, Unanswered):
            pass
        finally:
            session.unwatch(ahead.path, self)

    def _is_over(self) -> bool:
        return self._is_given_up or self._era != self.session.era

    def _connect(self) -> None:
        """Wait for the connection. Raises StoreUnavailable if the session is over or the deadline has passed."""
        session = self.session
        with session.changed:
            session.wait(
                lambda: session.is_connected or session.is_closed or (self._era >= 0 and self._is_over()),
                self._deadline,
            )
            if self._is_given_up:
                raise GivenUp
            if self._era < 0:
                session.require_usable()
                self._era = session.era
            session.require(self._era)
            is_late = session.clock.now() >= self._deadline
        if is_late and session.is_connected and self._timeout:
            raise AcquireTimeout(self.name, self._timeout)
        if is_late:
            raise unanswered(self.name, self._timeout or ONE_TRY_SECONDS)

    def _ask(self, request: Callable[[], Any]) -> Any:  # noqa: ANN401  # kazoo's, untyped
        return self.session.ask(request, self._era, self._deadline)


def unanswered(name: str, seconds: float) -> StoreUnavailable:
    """Return the error of a deadline that passed without a connection."""
    return StoreUnavailable(f"ZooKeeper did not answer within {seconds:g} s about lock {name!r}")


# --- the session time: kazoo receives the granted time but does not expose it, so it is requested once more ---

_LENGTH = struct.Struct("!i")
_HEADER = struct.Struct("!ii")


def granted_seconds(client: KazooClient, timeout: float) -> float:
    """Ask the client's servers for a session of the same time, one after the other, within `timeout` seconds in all."""
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
    _send(line, bytes(Connect(0, 0, session_ms, 0, bytes(16), False).serialize()))  # noqa: FBT003  # kazoo's own
    granted, _ = Connect.deserialize(_received(line), 0)
    _send(line, _HEADER.pack(1, CloseInstance.type))
    _received(line)  # the session ends before the connection
    return float(granted.time_out) / 1000


def _send(line: Any, message: bytes) -> None:  # noqa: ANN401  # a socket, by kazoo
    line.sendall(_LENGTH.pack(len(message)) + message)


def _received(line: Any) -> bytes:  # noqa: ANN401  # a socket, by kazoo
    (length,) = _LENGTH.unpack(_exactly(line, _LENGTH.size))
    return _exactly(line, length)


def _exactly(line: Any, length: int) -> bytes:  # noqa: ANN401  # a socket, by kazoo
    parts = b""
    while len(parts) < length:
        part = line.recv(length - len(parts))
        if not part:
            raise ConnectionError("the connection was closed before the answer")
        parts += part
    return parts


_sessions: WeakKeyDictionary[Any, ref[Session]] = WeakKeyDictionary()
"""Client -> session. The client's listener keeps the session alive; both can be garbage-collected together."""
_guard = Guard()


def session_of(client: object) -> Session:
    """Return the client's session; raises InvalidInput for anything that is not a KazooClient."""
    if not isinstance(client, KazooClient):
        raise InvalidInput(f"client is a kazoo.client.KazooClient, not {type(client).__name__}: {client!r}")
    with _guard.lock:
        found = _sessions.get(client)
        session = found() if found is not None else None
        if session is None:
            session = Session(client, SystemClock())
            _sessions[client] = ref(session)
        return session
