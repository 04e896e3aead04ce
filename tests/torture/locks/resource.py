"""The resource that the locks protect, its server, and the log of every access.

The resource checks fencing tokens: its fence is a `FenceGuard`, which refuses a token lower than the highest it has
accepted for the name. So a holder whose lease has ended can enter and write until a successor comes, and is refused
from then on. The resource never refuses a holder without a token (`QuorumLock`), nor one whose tokens have no order
(`Semaphore`): the log shows the consequences.

The server listens at a Unix socket, with a connection for each contender. A contender identifies itself, then asks to
`enter`, `write` and `leave`, or notes an event of its own; each request has one answer. When a connection ends, its
open accesses end too: a killed holder has left.

The log has one event a line, in the order in which the resource saw them. All times are seconds of the machine's
monotonic clock, which its processes share.
"""

from __future__ import annotations

import json
import selectors
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import count
from multiprocessing.connection import Client, Connection
from pathlib import Path
from typing import Any, Final, Self, get_args

from segmented.clock import Clock, SystemClock
from segmented.errors import StaleToken
from segmented.locks.fencing import FenceGuard

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

EVENTS: Final[dict[str, type[Event]]] = {event.__name__.lower(): event for event in get_args(Event)}


def line_of(event: Event) -> str:
    """Return the event's line in the log."""
    return json.dumps({"event": type(event).__name__.lower(), **asdict(event)}) + "\n"


def read_events(lines: Iterable[str]) -> Iterator[Event]:
    """Return the events of a log."""
    for line in lines:
        found = json.loads(line)
        yield EVENTS[found.pop("event")](**found)


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


class ResourceServer:
    """A resource that one holder per name may change at a time, served in one thread: the log is totally ordered."""

    def __init__(self, path: Path, note: Callable[[Event], None], clock: Clock, *, is_fenced: bool) -> None:
        """Listen at `path`; pass every event to `note`, and refuse old tokens if `is_fenced`."""
        self._note = note
        self._clock = clock
        self._is_fenced = is_fenced
        self._fence = FenceGuard()
        self._inside: dict[int, tuple[AccessRequest, Connection]] = {}
        self._ids = count(1)
        self._processes: dict[Connection, int] = {}
        """The process of each contender that has identified itself."""
        self._selector = selectors.DefaultSelector()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen(BACKLOG)
        self._selector.register(self._listener, selectors.EVENT_READ)

    def __enter__(self) -> Self:
        """Return the server."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close all connections."""
        for key in list(self._selector.get_map().values()):
            self._selector.unregister(key.fileobj)
            key.fileobj.close()  # type: ignore[union-attr]  # the listener, or a connection
        self._selector.close()

    def serve(self, seconds: float) -> None:
        """Wait up to `seconds` for requests, and answer those that are ready."""
        for key, _ in self._selector.select(max(0.0, seconds)):
            if isinstance(key.fileobj, Connection):
                self._serve(key.fileobj)
            else:
                accepted, _ = self._listener.accept()
                self._selector.register(Connection(accepted.detach()), selectors.EVENT_READ)

    def client_counts(self) -> dict[int, int]:
        """Return how many contenders of each process are connected and have identified themselves."""
        found: dict[int, int] = {}
        for process in self._processes.values():
            found[process] = found.get(process, 0) + 1
        return found

    def processes_inside(self) -> set[int]:
        """Return the processes whose holders are inside now."""
        return {self._processes[connection] for _, connection in self._inside.values()}

    def _serve(self, connection: Connection) -> None:
        try:
            do, said = connection.recv()
            connection.send(self._answer(connection, do, said))
        except (EOFError, OSError):  # it has ended, or was killed between request and answer
            self._selector.unregister(connection)
            connection.close()
            for access in sorted(number for number, (_, owner) in self._inside.items() if owner is connection):
                del self._inside[access]
                self._note(Died(self._clock.now(), access))
            self._processes.pop(connection, None)

    def _answer(self, connection: Connection, do: str, said: Any) -> int | None:  # noqa: ANN401  # what each request has
        now = self._clock.now()
        match do:
            case "hello":
                self._processes[connection] = said
            case "enter":
                return self._enter(connection, said, now)
            case "write" | "leave":
                access, trusted_until = said
                is_accepted = self._is_let_through(self._inside[access][0])
                self._note((Wrote if do == "write" else Left)(now, access, trusted_until, is_accepted))
                if do == "leave":
                    del self._inside[access]
            case "note":
                self._note(said)
        return None

    def _enter(self, connection: Connection, asked: AccessRequest, now: float) -> int | None:
        """Return the number of the access, or None when it is refused."""
        access, is_accepted, process = next(self._ids), self._is_let_through(asked), self._processes[connection]
        self._note(Entered(at=now, access=access, process=process, is_accepted=is_accepted, **asdict(asked)))
        if not is_accepted:
            return None
        self._inside[access] = asked, connection
        return access

    def _is_let_through(self, asked: AccessRequest) -> bool:
        if not self._is_fenced or asked.token is None:
            return True
        try:
            self._fence.check(asked.name, token=asked.token)
        except StaleToken:
            return False
        return True


class ResourceClient:
    """A contender's connection to the resource. Its calls raise ServerGone."""

    def __init__(self, path: str, process: int) -> None:
        """Connect, and identify the process."""
        self._connection = Client(path)
        self._process = process
        self._clock = SystemClock()
        self._ask("hello", process)

    def enter(self, asked: Sequence[AccessRequest]) -> list[int]:
        """Ask for access to each name; return the numbers of the accesses that were accepted."""
        return [access for one in asked if (access := self._ask("enter", one)) is not None]

    def tell(self, do: str, accesses: Sequence[int], lease: Any) -> None:  # noqa: ANN401  # leases of several kinds
        """Write or leave."""
        for access in accesses:
            self._ask(do, (access, lease.trusted_until))

    def miss(self, name: str, reason: str, waited: float) -> None:
        """Note that the lock was not acquired."""
        self._ask("note", Missed(self._clock.now(), name, reason, waited))

    def cancelled(self, moment: str, *, is_heeded: bool) -> None:
        """Note a cancelled task."""
        self._ask("note", Cancelled(self._clock.now(), moment, self._process, is_heeded))

    def finished(self, *, tasks: int, connections: int) -> None:
        """Note what is left of the process."""
        self._ask("note", Finished(self._clock.now(), self._process, tasks, connections))

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _ask(self, do: str, said: object) -> int | None:
        try:
            self._connection.send((do, said))
            answer: int | None = self._connection.recv()
        except (EOFError, OSError) as error:
            raise ServerGone from error
        return answer
