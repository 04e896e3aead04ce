"""Orders in queues for cores and segments, played with random numbers: the judge of the model of a fleet of masters."""

import random
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """Queues and cores that an order passes. Times are in seconds; work on a core varies exponentially."""

    lanes: tuple[int, ...]
    """Segments of each shard."""
    hold: Callable[[], float]
    """Draws how long a segment is kept while nobody's core works: the slow work and the way of the messages."""
    outside: float
    """The rest of an order's time on no core."""
    clients: int = 0
    """Processes with a core each; 0: their work is no limit."""
    client: tuple[float, float] = (0.0, 0.0)
    """Work of an order's process before it has a segment, and while it keeps one."""
    servers: int = 0
    """Cores of the masters; 0: their work is no limit."""
    server: tuple[float, float] = (0.0, 0.0)
    """Work of an order's master before it has a segment, and while it keeps one."""
    beside: float = 0.0
    """Work of all other masters together, for which the order does not wait."""


class Simulation:
    """Workers that order again and again, event by event. A freed segment goes to the first in its shard's queue."""

    def __init__(self, network: Network, dice: random.Random) -> None:
        """Create a network without orders."""
        self._network, self._dice = network, dice
        self._events: list[tuple[float, int, Iterator[float]]] = []
        self._now, self._number, self._asking = 0.0, 0, 0
        self._clients = [0.0] * network.clients  # when each core will have done its work
        self._servers = [0.0] * network.servers
        self._free = list(network.lanes)
        self._queues: list[deque[Iterator[float]]] = [deque() for _ in network.lanes]
        self._granted = 0

    def saturate(self, workers: int, *, within: float) -> None:
        """Let workers begin at random moments `within` a time; each begins an order when its last one has ended."""
        for worker in range(workers):
            self._at(self._dice.random() * within, self._worker(worker % max(1, self._network.clients)))

    def per_second(self, *, count: int, warm: int) -> float:
        """Return the rate of `count` orders that got their segments, after the first `warm`, which are not counted."""
        began = self._now
        while self._granted < warm + count:
            self._now, _, order = heappop(self._events)
            self._continue(order)
            if self._granted <= warm:
                began = self._now
        return count / (self._now - began)

    def _at(self, time: float, order: Iterator[float]) -> None:
        self._number += 1
        heappush(self._events, (time, self._number, order))

    def _continue(self, order: Iterator[float]) -> None:
        """Let an order go on until it has to wait: to a time, or for a segment of the shard that it asks."""
        time = next(order)
        if time == inf:
            self._queues[self._asking].append(order)
        else:
            self._at(time, order)

    def _worker(self, process: int) -> Iterator[float]:
        """Yield the times until which a worker's order waits; infinity while it is in a shard's queue."""
        network = self._network
        while True:
            shard = self._dice.randrange(len(self._free))
            yield from self._call(process, shard, 0)
            if self._free[shard]:
                self._free[shard] -= 1
            else:
                self._asking = shard
                yield inf
            self._granted += 1
            yield self._now + network.hold()
            yield from self._call(process, shard, 1)
            if self._queues[shard]:
                self._continue(self._queues[shard].popleft())
            else:
                self._free[shard] += 1
            others = [core for core in range(network.servers) if core != shard % network.servers]
            if network.beside:
                for core in others:
                    self._done(self._servers, core, network.beside / len(others))
            yield self._now + network.outside

    def _call(self, process: int, shard: int, place: int) -> Iterator[float]:
        """Yield when the core of the process has done its work, then that of the shard's master."""
        network = self._network
        if network.client[place]:
            yield self._done(self._clients, process, network.client[place])
        if network.server[place]:
            yield self._done(self._servers, shard % network.servers, network.server[place])

    def _done(self, cores: list[float], core: int, work: float) -> float:
        """Give a core more work, and return when it is done: a core does its work in order."""
        cores[core] = max(self._now, cores[core]) + self._dice.expovariate(1 / work)
        return cores[core]
