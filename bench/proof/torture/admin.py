"""Queries of a server on behalf of the supervisor: the run's locks, connections and keys, and what a run has left."""

from __future__ import annotations

import re
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
GONE_SECONDS: Final = 30.0
"""Seconds beyond a lease for the server to notice closed connections and to expire what dead holders held."""


@dataclass(frozen=True, slots=True)
class RunNames:
    """The names of one run's locks and connections."""

    names: tuple[str, ...]
    prefix: str
    """Prefix of all lock names, and of the client names of the contenders' connections."""

    def client_name(self, process: int) -> str:
        """Return the client name of one process's connections."""
        return f"{self.prefix}-{process}"


def called(url: str, name: str) -> str:
    """Return the URL for connections that the server lists under `name`."""
    return f"{url}{'&' if '?' in url else '?'}client_name={name}"


def plain(url: str) -> str:
    """Return a URL that `called` has made, without the name."""
    return re.sub(r"[?&]client_name=[^&]*$", "", url)


def living_permits(client: redis.Redis, name: str) -> int:
    """Count a semaphore's permits that have not expired, by the server's time read in the same transaction."""
    with client.pipeline(transaction=True) as pipe:
        pipe.time()
        pipe.zrange(lock_keys(name).lock, 0, -1, withscores=True)
        (seconds, microseconds), permits = pipe.execute()
    now_ms = seconds * 1_000 + microseconds // 1_000
    return sum(end > now_ms for _, end in permits)


def connections_of(client: redis.Redis, prefix: str) -> list[int]:
    """Return the ids of the connections to a server whose client names begin like this."""
    return [int(one["id"]) for one in client.client_list() if one["name"].startswith(prefix)]


def cut(client: redis.Redis, connections: Iterable[int]) -> None:
    """Close connections from the server's side."""
    for connection in connections:
        client.client_kill_filter(_id=str(connection), skipme=True)


def keys_of(client: redis.Redis, run_names: RunNames) -> list[bytes]:
    """Return the run's keys at a server."""
    return list(cast("Any", client.scan_iter(match=f"*{run_names.prefix}*", count=SCAN_COUNT)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftovers:
    """Counts that must be 0."""

    immortal_keys: int = 0
    held_names: int = 0
    channels: int = 0
    connections: int = 0
    processes: int = 0


def leftovers(
    clients: Sequence[redis.Redis], run_names: RunNames, *, ttl: float, processes: int, clock: Clock
) -> Leftovers:
    """Poll until nothing is left or the time is up, and count what is left."""
    until = clock.now() + ttl + GONE_SECONDS

    def settled(count: Callable[[redis.Redis], int]) -> int:
        while (found := sum(map(count, clients))) and clock.now() < until:
            sleep(LOOK_SECONDS)
        return found

    locks = [lock_keys(name).lock for name in run_names.names]
    return Leftovers(
        held_names=settled(lambda client: client.exists(*locks)),
        channels=settled(lambda client: len(cast("Any", client.pubsub_channels(f"*{run_names.prefix}*")))),
        connections=settled(lambda client: len(connections_of(client, run_names.prefix))),
        immortal_keys=sum(client.pttl(key) == -1 for client in clients for key in keys_of(client, run_names)),
        processes=processes,
    )
