"""Orders in line for segments, played with random numbers: for what the formulas do not know.

A pool on several servers has a line for each: an order's id decides its shard, so one shard's segments may be free
while orders wait for another's. Holds may be spread (log-normal). A sale may begin with a burst. The random numbers
begin with the same seed, so the same workload gets the same answer.

With `hosts`, orders also wait for cores (`Network`). Each process has a core, and so has each master; the database is
one more server. A waiter takes a freed segment by one more attempt. If the segment was freed by its own process, that
attempt is in the same round trip, up to the limits of `segmented.plans.line`; otherwise it is a round trip of its own.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf, log, sqrt
from typing import TYPE_CHECKING, Final

from segmented.plans.line import HAND_OFFS_MAX, HANDING_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from segmented.advise.workload import Workload

SEED: Final = 20_261_127
BATCHES: Final = 40_000
"""Batches that arrive and are counted."""
HOSTED: Final = 20_000
"""The same with hosts, which take longer to play."""
ROUNDS: Final = 8_000
"""Batches of saturated workers that are counted; their waits vary less."""
WARM: Final = 800
"""Batches before them that are not counted, if the sale has no beginning that matters."""
WORKERS_MAX: Final = 2_000
"""Workers above which the lines of a saturated pool are even, so that the formulas are right."""


@dataclass(frozen=True, slots=True)
class Played:
    """The waits of the batches that were counted, in ascending order, and their rate."""

    batches_per_second: float
    waits: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The mean wait."""
        return sum(self.waits) / len(self.waits)

    def quantile(self, share: float) -> float:
        """Return the wait that this share of the batches does not exceed."""
        return self.waits[min(len(self.waits) - 1, int(share * len(self.waits)))]


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """Lines and cores that an order passes. Times are in seconds; work on a core varies exponentially."""

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
    commit: float = 0.0
    """Work of the order database while a segment is kept."""
    turn: float | None = None
    """Time on no core of the attempt by which a waiter takes a segment that another process freed.

    None: a waiter takes a freed segment at once, without an attempt.
    """


class Simulation:
    """Orders on their way through a network, event by event."""

    def __init__(self, network: Network, dice: random.Random) -> None:
        """Begin with an empty network."""
        self._network, self._dice = network, dice
        self._events: list[tuple[float, int, Iterator[float]]] = []
        self._now, self._number = 0.0, 0
        self._clients = [0.0] * network.clients  # when each core will have done its work
        self._servers = [0.0] * network.servers
        self._database = [0.0]
        self._free = list(network.lanes)
        self._lines: list[dict[int, deque[Iterator[float]]]] = [{} for _ in network.lanes]
        """Of each shard: the waiters of each process, and the processes in the order of their line."""
        self._rows: dict[tuple[int, int], tuple[int, float]] = {}
        """Hand-offs in a row, and the time of the first one, by shard and process."""
        self._asking = (0, 0)
        self._is_handed = False
        self._waits: list[float] = []

    def saturate(self, workers: int, *, within: float) -> None:
        """Let workers begin at random moments `within` a time; each begins an order when its last one has ended."""
        for worker in range(workers):
            self._at(self._dice.random() * within, self._worker(worker % max(1, self._network.clients)))

    def arrive(self, rate: float, *, count: int) -> None:
        """Let so many orders arrive at random moments."""
        self._at(0.0, self._arrivals(rate, count))

    def run(self, *, count: int, warm: int) -> Played:
        """Play until `count` orders have got their segments, after the first `warm`, which are not counted."""
        began = self._now
        while len(self._waits) < warm + count:
            self._now, _, order = heappop(self._events)
            self._continue(order)
            if len(self._waits) <= warm:
                began = self._now
        return Played(count / (self._now - began), tuple(sorted(self._waits[warm : warm + count])))

    def _at(self, time: float, order: Iterator[float]) -> None:
        self._number += 1
        heappush(self._events, (time, self._number, order))

    def _continue(self, order: Iterator[float]) -> None:
        """Let an order go on until it has to wait: to a time, or in line for a segment, or forever after its end."""
        time = next(order, None)
        if time == inf:
            shard, process = self._asking
            self._lines[shard].setdefault(process, deque()).append(order)
        elif time is not None:
            self._at(time, order)

    def _worker(self, process: int) -> Iterator[float]:
        while True:
            yield from self._order(process)
            yield self._now + self._network.outside

    def _arrivals(self, rate: float, count: int) -> Iterator[float]:
        for _ in range(count):
            yield self._now + self._dice.expovariate(rate)
            self._continue(self._order(self._dice.randrange(max(1, self._network.clients))))

    def _order(self, process: int) -> Iterator[float]:
        """Yield the times until which the order waits; infinity while it is in line for a segment."""
        network, shard = self._network, self._dice.randrange(len(self._free))
        yield from self._call(process, shard, 0)
        since = self._now
        if self._free[shard]:
            self._free[shard] -= 1
        else:
            self._asking = shard, process
            yield inf
            if network.turn is not None:
                yield self._now + (0.0 if self._is_handed else network.turn)
                yield from self._call(process, shard, 0)
        self._waits.append(self._now - since)
        yield self._now + network.hold()
        if network.commit:
            yield self._done(self._database, 0, network.commit)
        yield from self._call(process, shard, 1)
        self._release(shard, process)
        others = len(self._servers) - 1
        if network.beside and others > 0:
            for core in range(others + 1):
                if core != shard % len(self._servers):
                    self._done(self._servers, core, network.beside / others)

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

    def _release(self, shard: int, process: int) -> None:
        """Free a segment, for the first waiter of the same process or of the process that is first in line."""
        line = self._lines[shard]
        if not line:
            self._free[shard] += 1
            return
        self._is_handed = process in line and self._hands_on(shard, process)
        chosen = process if self._is_handed else next(iter(line))
        order = line[chosen].popleft()
        if not self._is_handed or not line[chosen]:
            rest = line.pop(chosen)
            if rest:  # it asks again, and is the last in line then
                line[chosen] = rest
        self._continue(order)

    def _hands_on(self, shard: int, process: int) -> bool:
        """Return whether a process gives a segment to its own waiter once more, as `Line.lets_others` decides."""
        count, since = self._rows.get((shard, process), (0, 0.0))
        since = since if count else self._now
        is_one_more = count < HAND_OFFS_MAX and self._now < since + HANDING_SECONDS
        self._rows[shard, process] = (count + 1, since) if is_one_more else (0, 0.0)
        return is_one_more


def counted(workload: Workload) -> int:
    """Return how many batches are counted if they arrive at random."""
    return BATCHES if workload.hosts is None else HOSTED


def play(workload: Workload, *, lanes: list[int], fixed: float, most: float) -> Played:
    """Play a sale in which each shard has so many lanes, each kept for the hold and `fixed` seconds beside it.

    Saturated workers come back a round trip after each batch. Otherwise batches arrive at random: for a burst, those of
    the burst are counted, or the first `counted` of them. If more orders arrive than `most`, which can be served in a
    second, the line grows until the stock is sold, so no more batches are counted than the stock has.
    """
    dice = random.Random(SEED)  # noqa: S311  # not a secret
    count, warm = counted(workload), WARM
    if workload.burst is not None:
        count, warm = max(1, min(count, int(workload.burst))), 0
    elif workload.rush is not None and workload.rush >= most and workload.batches < count:
        count, warm = max(1, int(workload.batches)), 0
    if workload.rush is not None and workload.hosts is None:
        durations = _durations(workload, dice, fixed)
        return _arriving(workload.rush / workload.batch, dice, lanes, durations, count=count, warm=warm)
    simulation = Simulation(_network(workload, dice, lanes, fixed), dice)
    if workload.rush is None:
        simulation.saturate(workload.busy, within=workload.cycle)
        return simulation.run(count=ROUNDS, warm=WARM)
    simulation.arrive(workload.rush / workload.batch, count=warm + count)
    return simulation.run(count=count, warm=warm)


def _network(workload: Workload, dice: random.Random, lanes: list[int], fixed: float) -> Network:
    """Return what a batch passes. A round trip includes the work of client and server for one call."""
    if workload.processes_in_all is None or workload.hosts is None:
        return Network(lanes=tuple(lanes), hold=_durations(workload, dice, fixed), outside=workload.round_trip)
    client, server = (_work(workload, time) for time in (workload.client_time, workload.server_time))
    commit = 0.0 if workload.database_rate is None else workload.batch / workload.database_rate
    way = max(0.0, workload.round_trip - client[0] - server[0])
    beside = max(0.0, fixed - client[1] - server[1])
    durations = _durations(workload, dice, beside - commit)  # the hold includes the commit of a database at rest
    return Network(
        lanes=tuple(lanes),
        hold=lambda: max(0.0, durations()),
        outside=way,
        clients=workload.processes_in_all,
        client=client,
        servers=len(lanes),
        server=server,
        commit=commit,
        turn=way,
    )


def _work(workload: Workload, time: float) -> tuple[float, float]:
    """Return a batch's work before it has a segment, which is half of a single order's, and the rest."""
    return time / 2, time * (workload.share * workload.batch - 1 / 2)


def _durations(workload: Workload, dice: random.Random, fixed: float) -> Callable[[], float]:
    """Return a source of holds; of an unknown spread, they vary like an exponential distribution."""
    mean, spread = workload.hold, workload.hold_spread
    if spread == 0 or not mean:
        return lambda: mean + fixed
    if spread is None:
        return lambda: dice.expovariate(1 / mean) + fixed
    sigma = sqrt(log(1 + spread**2))
    median = mean / sqrt(1 + spread**2)
    return lambda: median * dice.lognormvariate(0, sigma) + fixed


def _arriving(
    rate: float, dice: random.Random, lanes: list[int], durations: Callable[[], float], *, count: int, warm: int
) -> Played:
    """Let batches arrive at random moments, each for a random shard, which serves them in their order.

    Without cores there is nothing else to wait for, so this is the same as a simulation, and faster.
    """
    free = [[0.0] * each for each in lanes]
    waits: list[float] = []
    now = 0.0
    for _ in range(warm + count):
        now += dice.expovariate(rate)
        shard = free[dice.randrange(len(lanes))]
        begin = max(now, heappop(shard))
        waits.append(begin - now)
        heappush(shard, begin + durations())
    return Played(rate, tuple(sorted(waits[warm:])))
