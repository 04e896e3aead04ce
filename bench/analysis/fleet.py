"""Throughput of a pool in shards: W workers, S masters, K segments a shard, and the cores of masters and clients.

A closed queueing network, solved in two levels that share one unknown: how many orders do not wait for a segment. This
is the method of surrogate delays (P. A. Jacobson, E. D. Lazowska, "Analyzing queueing networks with simultaneous
resource possession", CACM 25(2), 1982). An order keeps its segment while its confirm waits for a core, so no single
network has the answer.

- **Cores**: orders that do not wait for a segment visit a client's core and a master's core, one of several equal ones
  at random, and otherwise take time on no core: the hold and the network. Exact mean value analysis with exponential
  service (M. Reiser, S. S. Lavenberg, "Mean-value analysis of closed multichain queuing networks", JACM 27(2), 1980).
- **Segments**: an order waits in the line of a random shard for any of its K segments, keeps it for the hold and the
  time that the upper level found for its commands, and spends the rest outside. Mean value analysis again, with the
  probability that all K are busy from the normalising constants (J. P. Buzen, "Computational algorithms for closed
  queueing networks with exponential servers", CACM 16(9), 1973), because the marginal probabilities of mean value
  analysis lose their digits. Constant holds are not of that form: the last arrival waits for the rest of a hold that
  is half as long (as in M. Reiser, "A queueing network analysis of computer communication networks with window flow
  control", IEEE Trans. Comm. 27(8), 1979).

Times are in seconds, rates in orders per second.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log, sqrt
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from scipy import special

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]

STEPS: Final = 24
"""Halvings of the interval in which the number of orders that do not wait lies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """The parts of an order beside its hold, each measured apart."""

    locked: float
    """Time that its segment is kept beside the hold: the last part of a grant, the confirm, the next waiter's turn."""
    outside: float
    """Time of a lone worker's order in which no segment is kept."""
    client: float
    """CPU time of the client, which is part of the two above."""
    server: float
    """CPU time of the order's master, also part of them."""
    beside: float = 0.0
    """CPU time of the other masters, for which the order does not wait, but other orders do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """Masters with a shard each, their workers, and the cores that they run on."""

    masters: int
    segments: int
    """Per shard."""
    workers: int
    hold: float
    server_cores: int
    client_cores: int
    hold_cv: float = 0.0
    """Standard deviation of the holds divided by their mean: 0 if all are equal, 1 as an exponential distribution."""


def throughput(fleet: Fleet, costs: Costs) -> float:
    """Return the orders per second of workers that order again at once."""
    whole, work = costs.locked + costs.outside, costs.client + costs.server
    kept = costs.locked / whole if whole else 0.0
    spent = residences(fleet, costs, thinking=fleet.hold + max(0.0, whole - work))
    counts = np.arange(1, fleet.workers + 1)
    least, most, rate = 1.0, float(fleet.workers), 0.0
    for _ in range(STEPS):  # until as many orders as were assumed do not wait for a segment
        active = (least + most) / 2
        slower = max(0.0, float(np.interp(active, counts, spent)) - work)
        service = fleet.hold + costs.locked + kept * slower
        thinking = costs.outside + (1 - kept) * slower
        rate = lines(
            fleet.workers,
            shards=fleet.masters,
            lanes=fleet.segments,
            service=service,
            thinking=thinking,
            cv=fleet.hold_cv,
        )
        least, most = (active, most) if rate * (service + thinking) > active else (least, active)
    return rate


def residences(fleet: Fleet, costs: Costs, *, thinking: float) -> list[float]:
    """Return the time that an order spends at its two cores, waiting included, with 1, 2, ... orders of all workers.

    The work beside takes its share of the masters' cores at the rate of the orders, so that these cores are slower for
    what orders wait for (shadow servers: K. C. Sevcik, "Priority scheduling disciplines in queuing network models of
    computer systems", IFIP Congress 1977). That makes the rate the smaller root of a quadratic equation.
    """
    shadow = costs.beside / fleet.server_cores
    at_client = at_server = 0.0
    found: list[float] = []
    for number in range(1, fleet.workers + 1):
        client = costs.client * (1 + at_client / fleet.client_cores)
        server = costs.server * (1 + at_server / fleet.server_cores)
        apart, half = thinking + client, (thinking + client + server + number * shadow) / 2
        rate = number / (half + sqrt(max(0.0, half**2 - apart * shadow * number)))
        server = number / rate - apart
        at_client, at_server = rate * client, rate * server
        found.append(client + server)
    return found


def lines(clients: int, *, shards: int, lanes: int, service: float, thinking: float, cv: float = 1.0) -> float:
    """Return the throughput if every call waits in the line of a random shard for any of its lanes."""
    most = shards * lanes / service
    busy = _all_busy(clients, shards, lanes, service, thinking) if lanes > 1 else None
    rest = service * ((1 - cv**2) / (lanes + 1) + cv**2 / lanes)
    """Mean rest of the hold that ends first, when a call arrives: of `lanes` equal holds, or of exponential ones."""
    waiting = rate = blocked = 0.0
    for number in range(1, clients + 1):
        blocked = rate * service / shards if busy is None else busy[number - 1]
        behind = service / lanes * waiting
        visit = service + behind + blocked * (service / lanes if number < clients else rest)
        rate = min(number / (thinking + visit), most)
        waiting = max(0.0, (number - rate * (thinking + service)) / shards)
    return rate


def _all_busy(clients: int, shards: int, lanes: int, service: float, thinking: float) -> Numbers:
    """Return the probability that a shard has no free lane, with 0, 1, ... `clients` calls in all."""
    scale = log(min(shards * lanes / service, clients / (thinking + service)))
    counts = np.arange(clients + 1)
    factorials = special.gammaln(counts + 1)
    full = np.where(counts <= lanes, factorials, factorials[min(lanes, clients)] + (counts - lanes) * log(lanes))
    shard = _scaled(counts * (scale + log(service / shards)) - full)
    away = _scaled(counts * (scale + log(thinking)) - factorials) if thinking > 0 else (counts == 0).astype(float)
    others, power, left = away, shard, shards - 1
    while left:  # all shards but one, by squaring
        if left % 2:
            others = _folded(others, power)
        left //= 2
        if left:
            power = _folded(power, power)
    whole = np.convolve(others, shard)[: clients + 1]
    free = np.zeros(clients + 1)
    for count in range(min(lanes, clients + 1)):
        free[count:] += shard[count] * others[: clients + 1 - count]
    known = whole > 0  # what is too unlikely to be a number has no part in the result
    return np.where(known, 1 - free / np.where(known, whole, 1.0), 1.0)


def _scaled(logarithms: NDArray[Any]) -> Numbers:
    return np.asarray(np.exp(logarithms - logarithms.max()))


def _folded(one: Numbers, other: Numbers) -> Numbers:
    found = np.convolve(one, other)[: len(one)]
    return np.asarray(found / found.max())
