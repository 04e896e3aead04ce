"""The supervisor's own view of a server: what it knows of the run's locks, connections and keys.

Once a torture is over it has left nothing at the servers and on the machine, or the leftovers are named.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import sleep
from typing import TYPE_CHECKING, Any, Final, cast

from segmented.keys import lock_keys

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import redis

    from segmented.clock import Clock

SCAN_COUNT: Final = 1_000
LOOK_SECONDS: Final = 0.05
GONE_SECONDS: Final = 5.0
"""For a server to notice the ends of connections, and for what a dead holder held to lapse, beyond its lease."""


@dataclass(frozen=True, slots=True)
class Traces:
    """What belongs to one run: its names, and how its connections are called."""

    names: tuple[str, ...]
    prefix: str
    """All names begin with it, and all connections of contenders have it as their name."""


def called(url: str, name: str) -> str:
    """Return the URL for connections that the server lists under `name`."""
    return f"{url}{'&' if '?' in url else '?'}client_name={name}"


def living_permits(client: redis.Redis, name: str) -> int:
    """Count a semaphore's permits whose end is still ahead, with the server's time read in the same step."""
    with client.pipeline(transaction=True) as pipe:
        pipe.time()
        pipe.zrange(lock_keys(name).lock, 0, -1, withscores=True)
        (seconds, microseconds), permits = pipe.execute()
    now_ms = seconds * 1_000 + microseconds // 1_000
    return sum(end > now_ms for _, end in permits)


def connections_of(client: redis.Redis, traces: Traces) -> list[int]:
    """Return the ids of the run's connections to a server."""
    listed = client.client_list()
    return [int(one["id"]) for one in listed if one["name"] == traces.prefix]


def cut(client: redis.Redis, connections: Iterable[int]) -> None:
    """End connections from the server's side."""
    for connection in connections:
        client.client_kill_filter(_id=str(connection), skipme=True)


def keys_of(client: redis.Redis, traces: Traces) -> list[bytes]:
    """Return the run's keys at a server."""
    return list(cast("Any", client.scan_iter(match=f"*{traces.prefix}*", count=SCAN_COUNT)))


def immortal_keys(client: redis.Redis, traces: Traces) -> list[bytes]:
    """Return those of them that never lapse."""
    return [key for key in keys_of(client, traces) if client.pttl(key) == -1]


def held_names(client: redis.Redis, traces: Traces) -> int:
    """Count the names that somebody holds."""
    return client.exists(*(lock_keys(name).lock for name in traces.names))


def channels_of(client: redis.Redis, traces: Traces) -> list[bytes]:
    """Return the run's channels that somebody is subscribed to."""
    return cast("list[bytes]", client.pubsub_channels(f"*{traces.prefix}*"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftovers:
    """Counts that must be 0."""

    immortal_keys: int = 0
    held_names: int = 0
    channels: int = 0
    connections: int = 0
    processes: int = 0


def leftovers(clients: Sequence[redis.Redis], traces: Traces, *, ttl: float, processes: int, clock: Clock) -> Leftovers:
    """Look until nothing is left, or for as long as it may take, and count what is there."""
    until = clock.now() + ttl + GONE_SECONDS

    def settled(count: Callable[[redis.Redis], int]) -> int:
        while (found := sum(map(count, clients))) and clock.now() < until:
            sleep(LOOK_SECONDS)
        return found

    return Leftovers(
        held_names=settled(lambda client: held_names(client, traces)),
        channels=settled(lambda client: len(channels_of(client, traces))),
        connections=settled(lambda client: len(connections_of(client, traces))),
        immortal_keys=sum(len(immortal_keys(client, traces)) for client in clients),
        processes=processes,
    )
