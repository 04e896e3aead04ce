"""Meters beside a sale: the server's own counts, and cores used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from bench.engine.record import Cpu, Work

if TYPE_CHECKING:
    import redis

    from bench.conditions import CpuReading
    from bench.engine.sale import Recorder

GENERATOR_FULL: Final = 0.8
"""Cores above which the generator may be the bottleneck: greenlets wait for their turn."""
SERVER_FULL: Final = 0.9
MACHINE_FULL: Final = 0.95
"""Share of all cores above which the machine is saturated."""
MICROSECONDS: Final = 1_000_000
PLACES: Final = {"commands": 3, "round_trips": 3, "server_us": 2, "bytes": 1}
"""Decimals of what the server counts of an order."""


class WorkMeter:
    """The cost of sold orders by the server's own counts, between two readings, minus the cost of a reading.

    Counts the whole sale, or the part between `begin` and `end`. The part matters: after the stock is gone, buyers are
    refused as fast as they can ask, and a small sale would be charged for thousands of refusals.
    """

    def __init__(self, client: redis.Redis, recorder: Recorder) -> None:
        """Measure the cost of a reading. No other client may use the server yet."""
        self._client, self._recorder = client, recorder
        first = read_server(client)
        second = read_server(client)
        self._asking = {name: count - first[name] for name, count in second.items()}
        self._readings = [(second, 0)]
        self._from = 0
        self.has_ended = False

    def begin(self) -> None:
        """Start counting."""
        self._read()
        self._from = len(self._readings) - 1

    def end(self) -> None:
        """Stop counting."""
        self._read()
        self.has_ended = True

    def work(self) -> Work:
        """Return the cost of a sold order; over the whole sale if none was sold in between."""
        if not self.has_ended:
            self.end()
        (before, since), (after, until) = self._readings[self._from], self._readings[-1]
        orders = sum(self._recorder.sold[since:until])
        if not orders and self._from:
            self._from = 0
            return self.work()
        asking, each = len(self._readings) - 1 - self._from, max(1, orders)
        costs = {
            name: round((after[name] - before[name] - asking * self._asking[name]) / each, places)
            for name, places in PLACES.items()
        }
        return Work(attempts=round(sum(self._recorder.attempts[since:until]) / each, 3), **costs)

    def _read(self) -> None:
        self._readings.append((read_server(self._client), len(self._recorder.sold)))


def read_server(client: redis.Redis) -> dict[str, float]:
    """Read the server's counts so far; this request is part of the next reading."""
    found = client.info("everything")
    return {
        "commands": int(found["total_commands_processed"]),
        "round_trips": int(found["total_reads_processed"]),
        "bytes": int(found["total_net_input_bytes"]) + int(found["total_net_output_bytes"]),
        "server_us": (float(found["used_cpu_user"]) + float(found["used_cpu_sys"])) * MICROSECONDS,
    }


def cores_between(before: CpuReading, after: CpuReading) -> Cpu:
    """Return the cores used between two readings."""
    used = after.since(before)
    rounded: dict[str, Any] = {
        name: None if (cores := getattr(used, name)) is None else round(cores, 3) for name in Cpu.model_fields
    }
    return Cpu(**rounded)


def saturated(cpu: Cpu, *, cores: int, server_cores: int | None = None, is_delayed: bool = False) -> tuple[str, ...]:
    """Return what was saturated. `cores`: all of the machine; `server_cores`: those that all servers share, if pinned.

    A database and the proxy of a network delay share the cores with Redis, so together they can be the bottleneck
    although none of them fills a core. The proxy counts among the others.
    """
    shared = cpu.redis + (cpu.database or 0.0) + (cpu.others if is_delayed else 0.0)
    is_shared = server_cores is not None and (cpu.database is not None or is_delayed)
    limits = {
        "generator": cpu.generator >= GENERATOR_FULL,
        "redis": cpu.redis >= SERVER_FULL,
        "servers": is_shared and shared >= SERVER_FULL * (server_cores or 1),
        "machine": cpu.machine + cpu.steal >= MACHINE_FULL * cores,
    }
    return tuple(name for name, is_full in limits.items() if is_full)
