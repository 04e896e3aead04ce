"""The resource that the locks protect, its server, and the log of every access.

The resource checks fencing tokens: its fence is a `FenceGuard`, which refuses a token lower than the highest it has
accepted for the name. So a holder whose lease has ended can enter and write until a successor comes, and is refused
from then on. The resource never refuses a holder without a token (`QuorumLock`), nor one whose tokens have no order
(`Semaphore`): the log shows the consequences. The resource is pure: the time is passed in.

The server listens at a Unix socket: one JSON object a line each way, one contender a connection. A contender identifies
itself (`hello`), then sends `enter`, `write`, `leave`, `miss`, `cancelled` and `finished`; the server answers each with
one object. When a connection ends, its open accesses end too: a killed holder has left.

The log has one event a line, in the order in which the resource saw them. All times are seconds of the machine's
monotonic clock, which its processes share.
"""

from __future__ import annotations

import json
import selectors
import socket
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import Any, Final, Self

from segmented.clock import Clock
from segmented.errors import StaleToken
from segmented.locks.checks import FenceGuard

EXCLUSIVE: Final = "exclusive"
SHARED: Final = "shared"
PERMIT: Final = "permit"


@dataclass(frozen=True, slots=True)
class Began:
    """All contenders have started: from now on there must be entries on every name."""

    at: float
    names: list[str]


@dataclass(frozen=True, slots=True)
class Entered:
    """A holder asked for access."""

    at: float
    access: int
    name: str
    token: int | None
    """None if its lock has no tokens."""
    holder: str
    mode: str
    """`exclusive`, `shared` with holders of the same token, or one `permit` of several."""
    process: int
    held_since: float
    """When the holder learned that it had the lease."""
    trusted_until: float
    """Until when the holder may trust the lease."""
    waited: float
    is_accepted: bool


@dataclass(frozen=True, slots=True)
class Wrote:
    """A holder with access wrote."""

    at: float
    access: int
    trusted_until: float
    is_accepted: bool


@dataclass(frozen=True, slots=True)
class Left:
    """A holder with access left; it releases its lease after the answer."""

    at: float
    access: int
    trusted_until: float
    is_accepted: bool


@dataclass(frozen=True, slots=True)
class Died:
    """The connection of a holder with access ended."""

    at: float
    access: int


@dataclass(frozen=True, slots=True)
class Missed:
    """A contender did not get the lock: `timeout`, `late`, or `unavailable` if the server could not be reached."""

    at: float
    name: str
    reason: str
    waited: float


@dataclass(frozen=True, slots=True)
class FaultInjected:
    """A process was `killed`, `paused` or `resumed`; or connections were `cut` (process 0)."""

    at: float
    deed: str
    process: int


@dataclass(frozen=True, slots=True)
class Cancelled:
    """A task was cancelled: `before` its first step, in the `acquire`, the `body` or the `release`, or by its `group`.

    The last means that another task of its group failed.
    """

    at: float
    moment: str
    process: int
    is_heeded: bool
    """Whether it ended by the cancellation, or by an error of the lock, and did not go on."""


@dataclass(frozen=True, slots=True)
class Restarted:
    """A server answers again after it was killed; it was away for so many seconds."""

    at: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Finished:
    """A process of contenders stopped as asked, and closed its stores. It counted what was left of them."""

    at: float
    process: int
    tasks: int
    connections: int


@dataclass(frozen=True, slots=True)
class PermitsSeen:
    """How many permits were live, by the server's clock."""

    at: float
    name: str
    living: int


@dataclass(frozen=True, slots=True)
class Ended:
    """The contenders were told to stop."""

    at: float


Event = (
    Began
    | Entered
    | Wrote
    | Left
    | Died
    | Missed
    | FaultInjected
    | Cancelled
    | Restarted
    | Finished
    | PermitsSeen
    | Ended
)

EVENTS: Final[dict[str, type[Event]]] = {
    event.__name__.lower(): event
    for event in (
        *(Began, Entered, Wrote, Left, Died, Missed, FaultInjected),
        *(Cancelled, Restarted, Finished, PermitsSeen, Ended),
    )
}


def line_of(event: Event) -> str:
    """Return the event's line in the log."""
    return json.dumps({"event": type(event).__name__.lower(), **asdict(event)}) + "\n"


def read_events(lines: Iterable[str]) -> Iterator[Event]:
    """Return the events of a log."""
    for line in lines:
        found = json.loads(line)
        yield EVENTS[found.pop("event")](**found)


CHUNK: Final = 65_536
BACKLOG: Final = 1_024


class ServerGone(Exception):
    """The resource server has closed the connection."""


@dataclass(frozen=True, slots=True)
class AccessRequest:
    """A holder's request for access."""

    name: str
    token: int | None
    holder: str
    mode: str
    held_since: float
    trusted_until: float
    waited: float


class Resource:
    """A resource that one holder per name may change at a time."""

    def __init__(self, note: Callable[[Event], None], *, is_fenced: bool) -> None:
        """Pass every event to `note`; refuse old tokens if `is_fenced`."""
        self._note = note
        self._is_fenced = is_fenced
        self._fence = FenceGuard()
        self._inside: dict[int, tuple[AccessRequest, int]] = {}
        self._ids = count(1)

    def enter(self, asked: AccessRequest, *, process: int, now: float) -> int | None:
        """Return the number of the access, or None when it is refused."""
        is_accepted = self._is_let_through(asked)
        access = next(self._ids)
        if is_accepted:
            self._inside[access] = asked, process
        self._note(Entered(at=now, access=access, process=process, is_accepted=is_accepted, **asdict(asked)))
        return access if is_accepted else None

    def write(self, access: int, *, trusted_until: float, now: float) -> bool:
        """Log a write, and return whether it is accepted."""
        is_accepted = self._is_let_through(self._inside[access][0])
        self._note(Wrote(now, access, trusted_until, is_accepted))
        return is_accepted

    def leave(self, access: int, *, trusted_until: float, now: float) -> bool:
        """End the access, and return whether it was still the newest."""
        is_accepted = self._is_let_through(self._inside.pop(access)[0])
        self._note(Left(now, access, trusted_until, is_accepted))
        return is_accepted

    def die(self, access: int, *, now: float) -> None:
        """End the access of a holder whose connection ended."""
        del self._inside[access]
        self._note(Died(now, access))

    def note(self, event: Event) -> None:
        """Log an event that changes no access."""
        self._note(event)

    def processes_inside(self) -> set[int]:
        """Return the processes whose holders are inside now."""
        return {process for _, process in self._inside.values()}

    def _is_let_through(self, asked: AccessRequest) -> bool:
        if not self._is_fenced or asked.token is None:
            return True
        try:
            self._fence.check(asked.name, token=asked.token)
        except StaleToken:
            return False
        return True


class ResourceServer:
    """Serves the resource in one thread, so that the log is totally ordered."""

    def __init__(self, path: Path, resource: Resource, clock: Clock) -> None:
        """Listen at `path`."""
        self._resource = resource
        self._clock = clock
        self._selector = selectors.DefaultSelector()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen(BACKLOG)
        self._listener.settimeout(0.0)
        self._selector.register(self._listener, selectors.EVENT_READ)

    def __enter__(self) -> Self:
        """Return the server."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close all connections."""
        for key in list(self._selector.get_map().values()):
            self._selector.unregister(key.fileobj)
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
        self._selector.close()

    def serve(self, seconds: float) -> None:
        """Wait up to `seconds` for requests, and answer those that are ready."""
        for key, _ in self._selector.select(max(0.0, seconds)):
            if key.data is None:
                self._accept()
            else:
                self._serve(key.data)

    def client_counts(self) -> dict[int, int]:
        """Return how many contenders of each process are connected and have identified themselves."""
        found: dict[int, int] = {}
        for key in self._selector.get_map().values():
            if key.data is not None and key.data.process:
                found[key.data.process] = found.get(key.data.process, 0) + 1
        return found

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        connection.settimeout(1.0)  # an answer is a few bytes: it always fits
        self._selector.register(
            connection, selectors.EVENT_READ, ClientConnection(connection, self._resource, self._clock)
        )

    def _serve(self, connection: ClientConnection) -> None:
        if not connection.serve():
            self._selector.unregister(connection.connection)
            connection.end()


class ClientConnection:
    """One contender's connection, and its open accesses."""

    def __init__(self, connection: socket.socket, resource: Resource, clock: Clock) -> None:
        """Serve `connection`."""
        self.connection = connection
        self.process = 0
        self._resource = resource
        self._clock = clock
        self._rest = b""
        self._open: set[int] = set()

    def serve(self) -> bool:
        """Answer the requests received, and return whether the connection is still open."""
        try:
            chunk = self.connection.recv(CHUNK)
            *lines, self._rest = (self._rest + chunk).split(b"\n")
            for line in lines:
                self.connection.sendall(json.dumps(self._answer(json.loads(line))).encode() + b"\n")
        except OSError:  # killed between request and answer
            return False
        return bool(chunk)

    def end(self) -> None:
        """Close the connection, and end its open accesses."""
        self.connection.close()
        now = self._clock.now()
        for access in sorted(self._open):
            self._resource.die(access, now=now)

    def _answer(self, said: dict[str, Any]) -> dict[str, Any]:
        now = self._clock.now()
        match said.pop("do"):
            case "hello":
                self.process = said["process"]
                return {}
            case "enter":
                access = self._resource.enter(AccessRequest(**said), process=self.process, now=now)
                if access is not None:
                    self._open.add(access)
                return {"access": access}
            case "write":
                return {"is_accepted": self._resource.write(**said, now=now)}
            case "leave":
                self._open.discard(said["access"])
                return {"is_accepted": self._resource.leave(**said, now=now)}
            case "miss":
                self._resource.note(Missed(now, **said))
            case "cancelled":
                self._resource.note(Cancelled(now, process=self.process, **said))
            case "finished":
                self._resource.note(Finished(now, self.process, **said))
        return {}
