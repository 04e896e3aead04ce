"""Which node of a cluster serves a key, and the way of a request to its reply. Pure: this module sends nothing.

The map comes from CLUSTER SLOTS and from redirections. The way is a generator of steps that a sync or async link takes
(visit a node, read the map again, pause). This module limits the redirections, the link limits the time:

1. MOVED: the slot has another owner. Record it and go there immediately.
2. ASK: the slot is migrating, and this key has moved already. Go there once, with ASKING, and record nothing.
3. TRYAGAIN: the keys of one request are on both sides of a migrating slot. Pause until they are together.
4. CLUSTERDOWN, MASTERDOWN, LOADING, READONLY, no connection, no reply: the owner is unreachable or no longer the owner.
   Read the map again, which changes when a replica takes over, and pause.

Every request is safe to run twice, so a lost reply is retried. (Source: the Redis Cluster specification, "Redirection
and resharding".)

The last part has what a cluster adds to exchanges: attempts counted over nodes, ASKING, batches by node.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from redis.crc import key_slot
from redis.exceptions import (
    AskError,
    AuthenticationError,
    ClusterDownError,
    ConnectionError as RedisConnectionError,
    MovedError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TimeoutError as RedisTimeoutError,
    TryAgainError,
)

from segmented.errors import AcknowledgementUnknown, StoreUnavailable
from segmented.protocol.wire import Exchange, MakeExchange, Peer, Reply, Send, text
from segmented.stores.redis.addresses import Host
from segmented.stores.redis.exchange import Seen, perform_one

if TYPE_CHECKING:
    from segmented.protocol import Operation

REDIRECTIONS_MAX: Final = 16
"""Maximum in a row without a pause: two nodes that redirect to each other would otherwise never end."""
PAUSE_MIN: Final = 0.02
PAUSE_MAX: Final = 0.25
PASSING: Final = (
    RedisConnectionError,  # also LOADING
    RedisTimeoutError,
    OSError,
    ClusterDownError,  # also MASTERDOWN
    ReadOnlyError,
    TryAgainError,
    AskError,  # also MOVED
)


@dataclass(frozen=True, slots=True)
class Visit:
    """Send the request to this node; the link sends back the reply or throws the driver's error."""

    host: Host
    is_asking: bool = False
    """Whether to send ASKING right before it, on the same connection."""


@dataclass(frozen=True, slots=True)
class Look:
    """Ask a node, preferably not `apart_from`, for the map, unless it has changed since `version`."""

    version: int
    apart_from: Host | None = None


@dataclass(frozen=True, slots=True)
class Rest:
    """Pause for `seconds`, or raise `error` if there is not enough time left."""

    seconds: float
    error: Exception


Step = Visit | Look | Rest
Way = Generator[Step, Reply, Reply]


class SlotUncovered(RedisConnectionError):
    """No known node serves the slot."""


class ClusterMap:
    """The last known map. It is replaced as a whole, so that threads may read it at any time."""

    def __init__(self, seeds: Iterable[Host], *, remap: Callable[[Host], Host] = lambda host: host) -> None:
        """Create a map that knows only the `seeds`; `remap` translates the addresses that nodes report."""
        self._seeds = tuple(seeds)
        self._remap = remap
        self._starts: list[int] = []
        self._ranges: list[tuple[int, Host]] = []
        self._moved: dict[int, Host] = {}
        self._known: tuple[Host, ...] = ()
        self.version = 0

    def owner(self, slot: int) -> Host | None:
        """Return the node that serves a slot."""
        if moved := self._moved.get(slot):
            return moved
        starts, ranges = self._starts, self._ranges
        place = bisect_right(starts, slot) - 1
        if place < 0 or slot > ranges[place][0]:
            return None
        return ranges[place][1]

    def masters(self) -> list[Host]:
        """Return every node that serves a slot, once."""
        owners = [owner for _, owner in self._ranges] + list(self._moved.values())
        return list(dict.fromkeys(owners))

    def hosts(self, *, last: Host | None = None) -> list[Host]:
        """Return every known node, masters first; `last`, which just failed, comes at the end."""
        found = dict.fromkeys([*self.masters(), *self._known, *self._seeds])
        return sorted(found, key=lambda host: host == last)

    def move(self, slot: int, host: Host) -> None:
        """Record that a node redirected this slot to `host`."""
        self._moved = {**self._moved, slot: host}
        self.version += 1

    def replace(self, rows: Sequence[Reply], *, asked: Host) -> None:
        """Use a reply to CLUSTER SLOTS: rows of first slot, last slot, master, replicas."""
        ranges = sorted((int(row[0]), int(row[1]), self._host(row[2], asked)) for row in rows)
        known = [self._host(node, asked) for row in rows for node in row[2:]]
        starts = [first for first, _, _ in ranges]
        # In this order a concurrent reader finds at worst one range too many, and the node redirects it.
        self._ranges = [(last, owner) for _, last, owner in ranges]
        self._starts = starts
        self._known = tuple(dict.fromkeys(known))
        self._moved = {}
        self.version += 1

    def redirected(self, error: AskError, *, asked: Host) -> Host:
        """Return the target of a MOVED or ASK; without a host name it is the same machine at another port."""
        return self._remap(Host(error.host or asked.name, error.port))

    def _host(self, node: Sequence[Reply], asked: Host) -> Host:
        name = "" if node[0] is None else text(node[0])
        return self._remap(Host(name if name not in {"", "?"} else asked.name, int(node[1])))


def slot_of(key: str) -> int:
    """Return the hash slot of a key."""
    return int(key_slot(key.encode()))


def way(known: ClusterMap, slot: int) -> Way:
    """Yield the steps of a request on `slot` and return its reply; an error that no step can fix is raised."""
    pause, redirections, has_failed = PAUSE_MIN, 0, False
    asking: Host | None = None
    while True:
        version, host = known.version, asking or known.owner(slot)
        error: Exception = SlotUncovered(f"no node is known to serve slot {slot}")
        if host is not None:
            try:
                return (yield Visit(host, is_asking=asking is not None))
            except (RedisError, OSError) as raised:
                error = raised
        asking = None
        redirections += 1
        may_go_on = redirections <= REDIRECTIONS_MAX
        if isinstance(error, AskError) and host is not None and may_go_on:  # MovedError is a subclass
            target = known.redirected(error, asked=host)
            if isinstance(error, MovedError):
                known.move(slot, target)
            else:
                asking = target
            continue
        if not passes(error):
            raise error
        if not isinstance(error, TryAgainError):
            yield Look(version, apart_from=host)
            if may_go_on and known.owner(slot) not in {None, host}:
                continue
            if not has_failed and isinstance(error, RedisConnectionError | OSError):
                has_failed = True  # an idle connection may have broken while its node is alive
                continue
        yield Rest(pause, error)
        pause, redirections = min(2 * pause, PAUSE_MAX), 0


def passes(error: Exception) -> bool:
    """Return whether the error may pass, so that a retry makes sense."""
    cause = error.__cause__ if type(error) is RedisConnectionError else None
    is_refused = isinstance(error, AuthenticationError) or isinstance(cause, AuthenticationError | ResponseError)
    return isinstance(error, PASSING) and not is_refused


AnswerT = TypeVar("AnswerT")


def perform_again(
    operation: Operation[AnswerT], seen: Seen, number: int, peer: Peer, attempt: int
) -> Exchange[AnswerT]:
    """Perform an operation of a batch whose replies were lost."""
    return perform_one(operation, seen, number, peer, attempt + 1)


def may_have_moved(answer: object) -> bool:
    """Return whether another node may answer; a change whose acknowledgements are missing has been made."""
    return isinstance(answer, StoreUnavailable) and not isinstance(answer, AcknowledgementUnknown)


class Attempts(Generic[AnswerT]):
    """Creates the exchange of one request for each node that is asked, and counts the lost replies."""

    def __init__(self, make_exchange: MakeExchange[AnswerT]) -> None:
        self._make = make_exchange
        self._lost = 0
        self._tried = 0

    def direct(self, peer: Peer, attempt: int) -> Exchange[AnswerT]:
        """Create the exchange for a node."""
        self._tried = attempt
        return self._make(peer, self._lost + attempt)

    def asking(self, peer: Peer, attempt: int) -> Exchange[AnswerT]:
        """Create the exchange for a node to which the slot is migrating."""
        return asking(self.direct(peer, attempt))

    def failed(self, error: Exception) -> None:
        """Record how a node's attempts ended: with a lost reply or with a refusal."""
        self._lost += self._tried - 1 if isinstance(error, ResponseError) else self._tried
        self._tried = 0


def asking(exchange: Exchange[AnswerT]) -> Exchange[AnswerT]:
    """Send ASKING right before each command of an exchange."""
    try:
        send = next(exchange)
        while True:
            doubled = [command for one in send.commands for command in (("ASKING",), one)]
            replies = yield Send(doubled, send.patience)
            send = exchange.send(replies[1::2])
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]  # the exchange's return value has no type here


def reading_slots(_: Peer, __: int) -> Exchange[list[Reply]]:
    """Ask a node for the map."""
    (reply,) = yield Send((("CLUSTER", "SLOTS"),))
    if isinstance(reply, ResponseError):
        raise reply
    return list(reply)


def slot_for(operation: Operation[Any]) -> int:
    """Return the slot that decides which node is asked."""
    return slot_of(operation.call().key)


def shares(known: ClusterMap, operations: Sequence[Operation[Any]], *, size_max: int) -> list[tuple[int, list[int]]]:
    """Group operations by the owner of their slots; return a slot of each owner and the operations' indexes."""
    by_owner: dict[Host | int, tuple[int, list[int]]] = {}
    for place, operation in enumerate(operations):
        slot = slot_for(operation)
        by_owner.setdefault(known.owner(slot) or slot, (slot, []))[1].append(place)
    return [
        (slot, places[start : start + size_max])
        for slot, places in by_owner.values()
        for start in range(0, len(places), size_max)
    ]


def part_of(deadline: float, shares_left: int, *, now: float) -> float:
    """Return the deadline for one share of a batch, so that a node that does not answer leaves time for the others."""
    return now + (deadline - now) / shares_left


def seeds_of(client: Any) -> list[Host]:  # noqa: ANN401  # a RedisCluster, sync or async
    """Return the nodes that a client currently knows."""
    return [
        Host(node.host, int(node.port)) for node in [*client.get_nodes(), *client.nodes_manager.startup_nodes.values()]
    ]


def node_named(host: Host, where: str) -> str:
    """Return the name of a node for errors; `where` is the cluster's address, if it is known."""
    name = f"{host.name}:{host.port}"
    return f"{where} (node {name})" if where else f"{name} (a node of the cluster)"


def remapped(client: Any, host: Host) -> Host:  # noqa: ANN401  # a RedisCluster, sync or async
    """Translate an address that a node reported into a reachable one, if the client has an address mapping."""
    return Host(*client.nodes_manager.remap_host_port(*host))
