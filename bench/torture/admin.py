"""Queries of a server on behalf of the supervisor: the run's locks, connections and keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from segmented.keys import lock_keys

if TYPE_CHECKING:
    from collections.abc import Iterable

    import redis

SCAN_COUNT: Final = 1_000


@dataclass(frozen=True, slots=True)
class RunNames:
    """The names of one run's locks and connections."""

    names: tuple[str, ...]
    prefix: str
    """Prefix of all lock names, and the client name of the contenders' connections."""


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


def connections_of(client: redis.Redis, run_names: RunNames) -> list[int]:
    """Return the ids of the run's connections to a server."""
    listed = client.client_list()
    return [int(one["id"]) for one in listed if one["name"] == run_names.prefix]


def cut(client: redis.Redis, connections: Iterable[int]) -> None:
    """Close connections from the server's side."""
    for connection in connections:
        client.client_kill_filter(_id=str(connection), skipme=True)


def keys_of(client: redis.Redis, run_names: RunNames) -> list[bytes]:
    """Return the run's keys at a server."""
    return list(cast("Any", client.scan_iter(match=f"*{run_names.prefix}*", count=SCAN_COUNT)))


def immortal_keys(client: redis.Redis, run_names: RunNames) -> list[bytes]:
    """Return the run's keys that never expire."""
    return [key for key in keys_of(client, run_names) if client.pttl(key) == -1]


def held_names(client: redis.Redis, run_names: RunNames) -> int:
    """Count the names that are held."""
    return client.exists(*(lock_keys(name).lock for name in run_names.names))


def channels_of(client: redis.Redis, run_names: RunNames) -> list[bytes]:
    """Return the run's channels that have subscribers."""
    return cast("list[bytes]", client.pubsub_channels(f"*{run_names.prefix}*"))
