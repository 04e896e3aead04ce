"""What is read beside a sale: the server's own counts, cores used, and units left by segment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import psutil

from bench.cpu import CpuMeter, machine_core_count
from bench.granularity.record import Cpu, Work

if TYPE_CHECKING:
    import redis
    from sqlalchemy import Engine

    from bench.cpu import CpuReading

GENERATOR_FULL: Final = 0.8
"""Cores from which the generator may be what limits: above it, greenlets wait for their turn."""
SERVER_FULL: Final = 0.9
MACHINE_FULL: Final = 0.95
"""Share of all cores."""
MICROSECONDS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class ServerReading:
    """The server's counts so far."""

    commands: int
    reads: int
    bytes: int
    cpu_us: float

    def since(self, before: ServerReading, *, orders: int, attempts: int) -> Work:
        """Return what an order cost between two readings; `orders` of them were sold."""
        each = max(1, orders)
        return Work(
            commands=round((self.commands - before.commands) / each, 3),
            round_trips=round((self.reads - before.reads) / each, 3),
            attempts=round(attempts / each, 3),
            server_us=round((self.cpu_us - before.cpu_us) / each, 2),
            bytes=round((self.bytes - before.bytes) / each, 1),
        )


def read_server(client: redis.Redis) -> ServerReading:
    """Ask the server; the asking itself is one command of the next reading."""
    found = client.info("everything")
    return ServerReading(
        commands=int(found["total_commands_processed"]),
        reads=int(found["total_reads_processed"]),
        bytes=int(found["total_net_input_bytes"]) + int(found["total_net_output_bytes"]),
        cpu_us=(float(found["used_cpu_user"]) + float(found["used_cpu_sys"])) * MICROSECONDS,
    )


class Meter:
    """Cores used, the hypervisor's part among them."""

    def __init__(self, client: redis.Redis, engine: Engine | None) -> None:
        """Find the processes once."""
        self._cpu = CpuMeter(client, engine)

    def read(self) -> tuple[CpuReading, float]:
        """Read now: CPU seconds, and seconds stolen."""
        return self._cpu.read(), float(getattr(psutil.cpu_times(), "steal", 0.0))


def cores_between(before: tuple[CpuReading, float], after: tuple[CpuReading, float]) -> Cpu:
    """Return cores used between two readings."""
    used = after[0].since(before[0])
    return Cpu(
        generator=round(used.generator, 3),
        redis=round(used.redis, 3),
        database=None if used.database is None else round(used.database, 3),
        machine=round(used.machine, 3),
        others=round(used.others, 3),
        steal=round((after[1] - before[1]) / used.at, 3),
    )


def saturated(cpu: Cpu) -> tuple[str, ...]:
    """Name what was used up."""
    limits = {
        "generator": cpu.generator >= GENERATOR_FULL,
        "redis": cpu.redis >= SERVER_FULL,
        "machine": cpu.machine + cpu.steal >= MACHINE_FULL * machine_core_count(),
    }
    return tuple(name for name, is_full in limits.items() if is_full)
