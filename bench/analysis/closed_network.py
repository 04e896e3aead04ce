"""What N clients can sell over K lanes: three models of a closed loop. Calls a second; a batch of B is one call.

- The ceiling, min(K, N) / S: no scheme that holds a lane for S each call does better.
- A random lane, where a caller waits for the lane it drew: K equal queues and a thinking time Z, a network with a
  product form (W. Gordon, G. Newell, 1967), by exact mean value analysis (M. Reiser, S. Lavenberg, JACM 27, 1980). With
  Z = 0 it is (K / S) x N / (N + K - 1): N = K gives half of the ceiling. The form asks for exponential holds; with even
  ones more is sold, by 5 to 10 points.
- Any free lane: one station of K servers and a thinking time Z, solved exactly as a birth-death process (the machine
  repair problem with K repairers: C. Palm 1947; L. Kleinrock, "Queueing Systems" 1, 1975, 3.8). It asks for exponential
  holds as well; with even ones more is sold, up to the bound min(K / S, N / (S + Z)), and where Z is small beside S the
  two are one.

S and Z are arguments here. Where they come from, never from the throughput they are to predict, is `calibration`.
"""

from __future__ import annotations

import math


def ceiling(clients: int, lanes: int, *, service: float) -> float:
    """Return min(K, N) / S."""
    return min(lanes, clients) / service


def balanced_bound(clients: int, lanes: int, *, service: float, thinking: float) -> float:
    """Return min(K / S, N / (S + Z)), which even holds come near to (P. Denning, J. Buzen, 1978)."""
    return min(lanes / service, clients / (service + thinking))


def random_lane(clients: int, lanes: int, *, service: float, thinking: float = 0.0) -> float:
    """Return what is sold where every call waits for a lane drawn at random, whatever others are free."""
    queued = 0.0
    rate = 0.0
    for number in range(1, clients + 1):
        visit = service * (1 + queued / lanes)
        """A caller finds on its lane, on average, what N - 1 clients leave there: the arrival theorem."""
        rate = number / (thinking + visit)
        queued = rate * visit
    return rate


def any_free_lane(clients: int, lanes: int, *, service: float, thinking: float = 0.0) -> float:
    """Return what is sold where a call takes whatever lane is free, and waits in one line for the first otherwise."""
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
