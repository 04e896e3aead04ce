"""Counts what a run has left at the servers and on the machine."""

from __future__ import annotations

from dataclasses import dataclass
from time import sleep
from typing import TYPE_CHECKING, Final

from bench.torture.admin import channels_of, connections_of, held_names, immortal_keys

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import redis

    from bench.torture.admin import RunNames
    from segmented.clock import Clock

LOOK_SECONDS: Final = 0.05
GONE_SECONDS: Final = 5.0
"""Seconds beyond a lease for the server to notice closed connections and to expire what dead holders held."""


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

    return Leftovers(
        held_names=settled(lambda client: held_names(client, run_names)),
        channels=settled(lambda client: len(channels_of(client, run_names))),
        connections=settled(lambda client: len(connections_of(client, run_names))),
        immortal_keys=sum(len(immortal_keys(client, run_names)) for client in clients),
        processes=processes,
    )
