"""What a torture has left at the servers and on the machine once it is over: nothing, or it says so."""

from __future__ import annotations

from dataclasses import dataclass
from time import sleep
from typing import TYPE_CHECKING, Final

from bench.torture.admin import channels_of, connections_of, held_names, immortal_keys

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import redis

    from bench.torture.admin import Traces
    from segmented.clock import Clock

LOOK_SECONDS: Final = 0.05
GONE_SECONDS: Final = 5.0
"""For a server to notice the ends of connections, and for what a dead holder held to lapse, beyond its lease."""


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
