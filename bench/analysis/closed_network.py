"""The throughput of N clients over K lanes: three models of a closed loop. Calls per second; a batch of B is one call.

- The ceiling, min(K, N) / S: no scheme that holds a lane for S per call is faster.
- A random lane, where a caller waits for the lane it drew: K equal queues and a thinking time Z, a network with a
  product form (W. Gordon, G. Newell, 1967), by exact mean value analysis (M. Reiser, S. Lavenberg, JACM 27, 1980). With
  Z = 0 it is (K / S) x N / (N + K - 1): N = K gives half of the ceiling. The form assumes exponential holds; constant
  ones sell 5 to 10 points more.
- Any free lane: one station of K servers and a thinking time Z, solved exactly as a birth-death process (the machine
  repair problem with K repairers: C. Palm 1947; L. Kleinrock, "Queueing Systems" 1, 1975, 3.8). It also assumes
  exponential holds; constant ones sell more, up to the bound min(K / S, N / (S + Z)), and if Z is small compared with S
  the two are equal.

S and Z are arguments here. `calibration` derives them, never from the throughput they predict.
"""

from __future__ import annotations

import math


def ceiling(clients: int, lanes: int, *, service: float) -> float:
    """Return min(K, N) / S."""
    return min(lanes, clients) / service


def balanced_bound(clients: int, lanes: int, *, service: float, thinking: float) -> float:
    """Return min(K / S, N / (S + Z)), which constant holds approach (P. Denning, J. Buzen, 1978)."""
    return min(lanes / service, clients / (service + thinking))


def random_lane(clients: int, lanes: int, *, service: float, thinking: float = 0.0) -> float:
    """Return the throughput if every call waits for a random lane, even if others are free."""
    queued = 0.0
    rate = 0.0
    for number in range(1, clients + 1):
        visit = service * (1 + queued / lanes)
        """By the arrival theorem, a caller finds on its lane the mean queue of N - 1 clients."""
        rate = number / (thinking + visit)
        queued = rate * visit
    return rate


def any_free_lane(clients: int, lanes: int, *, service: float, thinking: float = 0.0) -> float:
    """Return the throughput if a call takes any free lane, and otherwise waits in one queue for the first."""
    if thinking <= 0:
        return ceiling(clients, lanes, service=service)
    logs = [0.0]
    for busy in range(1, clients + 1):
        birth = math.log(clients - busy + 1) - math.log(thinking)
        death = math.log(min(busy, lanes)) - math.log(service)
        logs.append(logs[-1] + birth - death)
    highest = max(logs)
    weights = [math.exp(one - highest) for one in logs]
    working = sum(min(busy, lanes) * weight for busy, weight in enumerate(weights))
    return working / sum(weights) / service
