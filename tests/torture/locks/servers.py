"""The servers of a run: what the supervisor asks them, what a run has left on them, and their restarts.

A server that may be restarted appends every write to a file and syncs it before it answers (`DURABLE`), so that no lock
is lost that was acknowledged. One server is away at a time.
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from random import Random
from time import monotonic, sleep
from typing import Any, Final, Self, cast

import redis

from segmented.clock import Clock
from segmented.keys import lock_keys
from segmented.servers import ValkeyServer

SCAN_COUNT: Final = 1_000
LOOK_SECONDS: Final = 0.05
GONE_SECONDS: Final = 30.0
"""Seconds beyond a lease for the server to notice closed connections and to expire what dead holders held."""


def called(url: str, name: str) -> str:
    """Return the URL for connections that the server lists under `name`."""
    return f"{url}{'&' if '?' in url else '?'}client_name={name}"


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


def keys_of(client: redis.Redis, prefix: str) -> list[bytes]:
    """Return the run's keys at a server."""
    return list(cast("Any", client.scan_iter(match=f"*{prefix}*", count=SCAN_COUNT)))


def leftovers(
    clients: Sequence[redis.Redis], names: Sequence[str], prefix: str, *, ttl: float, clock: Clock
) -> dict[str, int]:
    """Poll until nothing is left or the time is up, and return the counts of what is left, which must be 0."""
    until = clock.now() + ttl + GONE_SECONDS

    def settled(count: Callable[[redis.Redis], int]) -> int:
        while (found := sum(map(count, clients))) and clock.now() < until:
            sleep(LOOK_SECONDS)
        return found

    locks = [lock_keys(name).lock for name in names]
    return {
        "held_names": settled(lambda client: client.exists(*locks)),
        "channels": settled(lambda client: len(cast("Any", client.pubsub_channels(f"*{prefix}*")))),
        "connections": settled(lambda client: len(connections_of(client, prefix))),
        "immortal_keys": sum(client.pttl(key) == -1 for client in clients for key in keys_of(client, prefix)),
    }


DURABLE: Final = {"appendfsync": "always"}
"""Directive of a server that may be restarted; it has a data folder, too."""
GAP: Final = 3.0
"""Mean seconds from the end of a restart to the next kill."""
AWAY: Final = 1.5
"""Maximum seconds from a kill to the start, in times of the lease's time to live."""


class ServerRestarts:
    """Kills servers and starts them again, in a thread of its own. As a context manager, it leaves none away."""

    def __init__(self, servers: Sequence[ValkeyServer], seed: int, *, ttl: float, now: float) -> None:
        """Plan the first kill soon after `now`, unless there are no servers to be restarted."""
        self._servers = servers
        self._random = Random(f"restarts/{seed}")
        self._ttl = ttl
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="restarts")
        self._under_way: Future[float] | None = None
        self._next_at = now + self._gap()

    def __enter__(self) -> Self:
        """Return the restarts."""
        return self

    def __exit__(self, *_: object) -> None:
        """Wait until no server is away."""
        self._threads.shutdown()

    @property
    def is_idle(self) -> bool:
        """Return whether no server is away."""
        return self._under_way is None

    def step(self, now: float, *, may_kill: bool) -> float | None:
        """Begin a restart if one is due; return for how many seconds a server was away that answers again.

        Raises SegmentedError if a server cannot be killed or started.
        """
        if self._under_way is not None:
            if not self._under_way.done():
                return None
            seconds = self._under_way.result()
            self._under_way = None
            self._next_at = now + self._gap()
            return seconds
        if may_kill and self._servers and now >= self._next_at:
            server = self._random.choice(self._servers)
            self._under_way = self._threads.submit(_restart, server, self._random.uniform(0.0, AWAY * self._ttl))
        return None

    def _gap(self) -> float:
        return self._random.uniform(0.2, 1.8) * GAP


def _restart(server: ValkeyServer, seconds: float) -> float:
    """Kill a server, and start it after `seconds`; return for how long it was away."""
    began = monotonic()
    server.kill()
    sleep(seconds)
    server.restart()
    return monotonic() - began
