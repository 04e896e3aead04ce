"""Which node of a cluster serves a key, and the way a request takes until it has its reply. Pure: nothing is sent here.

The map comes from CLUSTER SLOTS and from the redirections themselves. The way is a generator of steps that a link of
either colour takes (visit a node, look at the map again, pause); it is bounded in redirections here and in time there:

1. MOVED: the slot has another owner; note it and go there at once;
2. ASK: the slot is on its way, and this key has gone already; go there once, with ASKING, and note nothing;
3. TRYAGAIN: the keys of one request are on both sides of a slot on its way; pause until they are together;
4. CLUSTERDOWN, MASTERDOWN, LOADING, READONLY, no connection, no reply: the owner is away, or no owner any more; look at
   the map again, which a replica that took over changes, and pause.

Everything sent is safe to run twice, so a lost reply is a reason to ask again. (Source: the Redis Cluster
specification, "Redirection and resharding".)
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

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

from segmented.protocol.wire import Reply, text
from segmented.stores.redis.addresses import Host

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

REDIRECTIONS_MAX: Final = 16
"""In a row, without a pause: two nodes that point at each other would otherwise keep us for ever."""
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
    """Send the request to this node; the reply or the driver's error comes back."""

    host: Host
    is_asking: bool = False
    """With ASKING right before it, on the same connection."""


@dataclass(frozen=True, slots=True)
class Look:
    """Ask a node, rather another one than `apart_from`, for the map, unless it has changed since `version`."""

    version: int
    apart_from: Host | None = None


@dataclass(frozen=True, slots=True)
class Rest:
    """Pause for these seconds, or raise `error` if there is no time left for it."""

    seconds: float
    error: Exception


Step = Visit | Look | Rest
Way = Generator[Step, Reply, Reply]


class SlotUncovered(RedisConnectionError):
    """No node is known to serve the slot."""


class ClusterMap:
    """What the nodes said last. Replaced as a whole, so that threads may read it at any time."""

    def __init__(self, seeds: Iterable[Host], *, remap: Callable[[Host], Host] = lambda host: host) -> None:
        """Know the `seeds` only; `remap` translates the addresses by which nodes name each other."""
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
        """Return every node that was ever heard of, masters first; `last`, which just failed, at the end."""
        found = dict.fromkeys([*self.masters(), *self._known, *self._seeds])
        return sorted(found, key=lambda host: host == last)

    def move(self, slot: int, host: Host) -> None:
        """Note that a node said: this slot is served there."""
        self._moved = {**self._moved, slot: host}
        self.version += 1

    def replace(self, rows: Sequence[Reply], *, asked: Host) -> None:
        """Take over a reply to CLUSTER SLOTS: rows of first slot, last slot, master, replicas."""
        ranges = sorted((int(row[0]), int(row[1]), self._host(row[2], asked)) for row in rows)
        known = [self._host(node, asked) for row in rows for node in row[2:]]
        starts = [first for first, _, _ in ranges]
        # In this order: a reader in between finds a range too many at worst, and is sent on by the node itself.
        self._ranges = [(last, owner) for _, last, owner in ranges]
        self._starts = starts
        self._known = tuple(dict.fromkeys(known))
        self._moved = {}
        self.version += 1

    def redirected(self, error: AskError, *, asked: Host) -> Host:
        """Return where a MOVED or an ASK points; without a name, it is the same machine at another port."""
        return self._remap(Host(error.host or asked.name, error.port))

    def _host(self, node: Sequence[Reply], asked: Host) -> Host:
        name = "" if node[0] is None else text(node[0])
        return self._remap(Host(name if name not in {"", "?"} else asked.name, int(node[1])))


def slot_of(key: str) -> int:
    """Return the hash slot of a key."""
    return int(key_slot(key.encode()))


def way(known: ClusterMap, slot: int) -> Way:
    """Return the reply to a request on `slot`, by the steps it yields; an error that no step helps is raised."""
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
        if isinstance(error, AskError) and host is not None and may_go_on:  # MOVED is one, too
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
                has_failed = True  # a kept connection may have died unseen, and its node lives
                continue
        yield Rest(pause, error)
        pause, redirections = min(2 * pause, PAUSE_MAX), 0


def passes(error: Exception) -> bool:
    """May the error be gone after a while, so that the request is worth another try?"""
    cause = error.__cause__ if type(error) is RedisConnectionError else None
    is_refused = isinstance(error, AuthenticationError) or isinstance(cause, AuthenticationError | ResponseError)
    return isinstance(error, PASSING) and not is_refused
