"""Contended cost: ten waiters behind one holder. Their commands while parked, and how fast they are served.

Beside the delay stands the machine's floor, measured in the same rounds: ten threads that only wake each other, each
after one round trip of a bare socket. A hand-over of a lock between processes cannot do with less.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Final

import redis

from bench.figures import Figure
from bench.micro.locks.cycles import BareSocket
from segmented import Lock, RedisStore

if TYPE_CHECKING:
    from bench.display import Progress

WAITERS: Final = 10
PARKED_SECONDS: Final = 10.0
HOLD_SECONDS: Final = 0.005
QUIET_SECONDS: Final = 0.3
PARK_SECONDS_MAX: Final = 60.0
ROUNDS: Final = 15
PARKED_PER_S_MAX: Final = 0.2
"""The first waiter of the process asks every 0.8 s whether the lock is gone, and its listener pings every 3 s."""
DELAY_MS_MAX: Final = 5.0
FLOORS_MAX: Final = 1.5
"""The delay may also be so many times the floor, where that is more."""
MEDIAN_LOW: Final = 3
"""Ranks of 15 sorted rounds, from each end, between which their median lies at 96 % (binomial order statistics)."""
COMMANDS_MAX: Final = 3.0
RELEASE_COMMANDS: Final = 2
"""Commands of the first holder, which is not one of the ten: compare-and-delete, and the message."""
NAME: Final = "contended"
OWN: Final = {"cmdstat_info", "cmdstat_config|resetstat", "cmdstat_hello", "cmdstat_client|setinfo"}
"""Commands of the measurement itself and of connecting, which do not count."""


def measure_contended(url: str, progress: Progress) -> list[Figure]:
    """Park ten waiters, count, release, and time until the last of them was served."""
    with RedisStore.from_url(url) as store, redis.Redis.from_url(url) as server:
        progress("ten waiters parked", 0, ROUNDS + 1)
        delays: list[float] = []
        floors: list[float] = []
        commands: list[float] = []
        parked = 0.0
        for number in range(ROUNDS + 1):
            is_first = number == 0
            progress("ten waiters served", number, ROUNDS + 1)
            found = _round(store, server, park_seconds=PARKED_SECONDS if is_first else 0.1)
            if is_first:
                parked = found["parked_per_s"] / WAITERS
                continue
            delays.append(found["delay_ms"])
            floors.append(_floor_ms(url))
            commands.append(found["commands"] / WAITERS)
    floor = sorted(floors)[len(floors) // 2]
    bound = max(DELAY_MS_MAX, FLOORS_MAX * floor)
    return [
        Figure("parked waiter: commands/s", parked, "", at_most=PARKED_PER_S_MAX, is_promise=True),
        _median("ten waiters: last served after release and the holds", delays, bound),
        _median("its floor: ten threads that wake each other after a round trip each", floors),
        Figure("commands an acquisition", max(commands), "", at_most=COMMANDS_MAX, is_promise=True),
    ]


def _median(name: str, rounds: list[float], at_most: float | None = None) -> Figure:
    """Return the median of the rounds with its interval; of few rounds that is the least and the most."""
    found = sorted(rounds)
    low = MEDIAN_LOW if len(found) > 4 * MEDIAN_LOW else 0
    detail = {"interval": "96 % of the median, by order statistics" if low else "least and most of the rounds"}
    return Figure(name, found[len(found) // 2], "ms", found[low], found[-1 - low], at_most=at_most, detail=detail)


def _floor_ms(url: str) -> float:
    """Return the milliseconds that ten threads need to wake each other, holds subtracted: see the module."""
    turns = [threading.Event() for _ in range(WAITERS + 1)]
    holds: list[float] = []
    with BareSocket(url) as line:

        def wait_and_hold(place: int) -> None:
            turns[place].wait(60)
            began = time.perf_counter()
            time.sleep(HOLD_SECONDS)
            holds.append(time.perf_counter() - began)
            line.ask("SET", f"{NAME}-floor", str(place), "PX", "60000")
            turns[place + 1].set()

        threads = [threading.Thread(target=wait_and_hold, args=(place,)) for place in range(WAITERS)]
        for thread in threads:
            thread.start()
        began = time.perf_counter()
        line.ask("SET", f"{NAME}-floor", "first", "PX", "60000")
        turns[0].set()
        turns[WAITERS].wait(60)
        took = time.perf_counter() - began
        for thread in threads:
            thread.join()
    return (took - sum(holds)) * 1_000


def _round(store: RedisStore, server: redis.Redis, *, park_seconds: float) -> dict[str, Any]:
    lock = Lock(store, NAME, ttl=60)
    held = lock.acquire(timeout=5)
    holds: list[float] = []

    def wait_and_hold() -> None:
        with lock.acquire(timeout=60):
            began = time.perf_counter()
            time.sleep(HOLD_SECONDS)
            holds.append(time.perf_counter() - began)

    waiters = [threading.Thread(target=wait_and_hold) for _ in range(WAITERS)]
    for waiter in waiters:
        waiter.start()
    _let_them_park(server)
    server.config_resetstat()
    began = time.perf_counter()
    time.sleep(park_seconds)
    parked, parked_seconds = _commands(server), time.perf_counter() - began
    began = time.perf_counter()
    held.release()
    for waiter in waiters:
        waiter.join()
    took = time.perf_counter() - began
    commands = _commands(server) - parked - RELEASE_COMMANDS
    return {"parked_per_s": parked / parked_seconds, "delay_ms": (took - sum(holds)) * 1_000, "commands": commands}


def _let_them_park(server: redis.Redis) -> None:
    """Wait until nobody has sent a command for a while; the first waiter sends one every 0.8 s."""
    until = time.monotonic() + PARK_SECONDS_MAX
    sent = -1
    while sent != (sent := _commands(server)) and time.monotonic() < until:
        time.sleep(QUIET_SECONDS)


def _commands(server: redis.Redis) -> int:
    """Count the commands that clients sent, without those inside scripts."""
    found = server.info("commandstats")
    return sum(stats["calls"] for name, stats in found.items() if name not in OWN and name in _SENT)


_SENT: Final = {
    "cmdstat_evalsha",
    "cmdstat_eval",
    "cmdstat_delifeq",
    "cmdstat_delex",
    "cmdstat_subscribe",
    "cmdstat_unsubscribe",
    "cmdstat_ping",
    "cmdstat_publish",
}
"""All commands that a store sends for a lock. A release by script also counts its PUBLISH, so the count is complete."""
