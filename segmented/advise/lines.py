"""Orders in line for segments, played with random numbers: for what the formulas do not know.

A pool on several servers has a line for each: an order's id decides its shard, so one shard's segments may be free
while orders wait for another's. Holds may be spread (log-normal). A sale may begin with a burst. The random numbers
begin with the same seed, so the same workload gets the same answer.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass
from heapq import heappop, heappush
from math import log, sqrt
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from segmented.advise.workload import Workload

SEED: Final = 20_261_127
BATCHES: Final = 40_000
"""Batches that arrive and are counted."""
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


def play(workload: Workload, *, lanes: list[int], fixed: float) -> Played:
    """Play a sale in which each shard has so many lanes, each kept for the hold and `fixed` seconds beside it.

    Saturated workers come back a round trip after each batch. Otherwise batches arrive at random: for a burst, those of
    the burst are counted, the first `BATCHES` of them.
    """
    dice = random.Random(SEED)  # noqa: S311  # not a secret
    durations = _durations(dice, mean=workload.hold, spread=workload.hold_spread, fixed=fixed)
    if workload.rush is None:
        return _saturated(workload, dice, lanes, durations)
    burst = workload.burst
    count, warm = (BATCHES, WARM) if burst is None else (max(1, min(BATCHES, int(burst))), 0)
    return _arriving(workload.rush / workload.batch, dice, lanes, durations, count=count, warm=warm)


def _durations(dice: random.Random, *, mean: float, spread: float | None, fixed: float) -> Callable[[], float]:
    """Return a source of holds; of an unknown spread, they vary like an exponential distribution."""
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
    """Let batches arrive at random moments, each for a random shard, which serves them in their order."""
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


def _saturated(workload: Workload, dice: random.Random, lanes: list[int], durations: Callable[[], float]) -> Played:
    """Let the workers go round: each asks a random shard, waits in its line, and comes back after its hold."""
    coming = [(dice.random() * workload.cycle, worker, -1) for worker in range(workload.busy)]
    coming.sort()
    lines: list[deque[tuple[float, int]]] = [deque() for _ in lanes]
    free = list(lanes)
    waits: list[float] = []
    begin = end = 0.0
    for now, worker, shard in _events(coming):
        if shard < 0:
            asked = dice.randrange(len(lanes))
            lines[asked].append((now, worker))
        else:
            free[shard] += 1
            heappush(coming, (now + workload.round_trip, worker, -1))
            asked = shard
        while free[asked] and lines[asked]:
            since, next_worker = lines[asked].popleft()
            free[asked] -= 1
            waits.append(now - since)
            heappush(coming, (now + durations(), next_worker, asked))
        if len(waits) >= WARM + ROUNDS:
            end = now
            break
        if len(waits) <= WARM:
            begin = now
    counted = waits[WARM : WARM + ROUNDS]
    return Played(len(counted) / (end - begin), tuple(sorted(counted)))


def _events(coming: list[tuple[float, int, int]]) -> Iterator[tuple[float, int, int]]:
    while coming:
        yield heappop(coming)
