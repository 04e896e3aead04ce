"""Contended cost: ten waiters behind one holder. Their commands while parked, and how fast they are served."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Final

import redis

from bench.locks.figures import Figure
from segmented import Lock, RedisStore

if TYPE_CHECKING:
    from collections.abc import Callable

WAITERS: Final = 10
PARKED_SECONDS: Final = 10.0
HOLD_SECONDS: Final = 0.005
ROUNDS: Final = 15
PARKED_PER_S_MAX: Final = 0.2
"""The first waiter of the process asks every 0.8 s whether the lock is gone, and its listener pings every 3 s."""
DELAY_MS_MAX: Final = 5.0
COMMANDS_MAX: Final = 3.0
RELEASE_COMMANDS: Final = 2
"""Commands of the first holder, which is not one of the ten: compare-and-delete, and the message."""
NAME: Final = "contended"
OWN: Final = {"cmdstat_info", "cmdstat_config|resetstat", "cmdstat_hello", "cmdstat_client|setinfo"}
"""Commands of the measurement itself and of connecting, which do not count."""


def measure_contended(url: str, progress: Callable[[str, int, int], None]) -> list[Figure]:
    """Park ten waiters, count, release, and time until the last of them was served."""
    with RedisStore.from_url(url) as store, redis.Redis.from_url(url) as server:
        progress("ten waiters parked", 0, ROUNDS + 1)
        delays: list[float] = []
        commands: list[float] = []
        parked = 0.0
        for number in range(ROUNDS + 1):
            is_first = number == 0
            progress("ten waiters served", number, ROUNDS + 1)
            found = _round(store, server, park_seconds=PARKED_SECONDS if is_first else 0.1)
            if is_first:
                parked = found["parked"] / WAITERS / PARKED_SECONDS
                continue
            delays.append(found["delay_ms"])
            commands.append(found["commands"] / WAITERS)
    delays.sort()
    middle = delays[len(delays) // 2]
    return [
        Figure("parked waiter: commands/s", parked, "", at_most=PARKED_PER_S_MAX, is_promise=True),
        Figure(
            "ten waiters: last served after release and the holds",
            middle,
            "ms",
            delays[0],
            delays[-1],
            at_most=DELAY_MS_MAX,
            detail={"interval": "least and most of the rounds", "hold_ms": HOLD_SECONDS * 1_000},
        ),
        Figure("commands an acquisition", max(commands), "", at_most=COMMANDS_MAX, is_promise=True),
    ]


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
    time.sleep(0.3)  # until all are parked
    server.config_resetstat()
    time.sleep(park_seconds)
    parked = _commands(server)
    began = time.perf_counter()
    held.release()
    for waiter in waiters:
        waiter.join()
    took = time.perf_counter() - began
    commands = _commands(server) - parked - RELEASE_COMMANDS
    return {"parked": parked, "delay_ms": (took - sum(holds)) * 1_000, "commands": commands}


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
