"""Cores used between two readings: by the generator (this process), Redis, PostgreSQL and the whole machine.

The main process of the PostgreSQL server of an engine is found if it runs on this machine.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psutil
from sqlalchemy import text

if TYPE_CHECKING:
    import redis
    from sqlalchemy import Engine

NANOSECONDS: Final = 1_000_000_000
LOCAL_HOSTS: Final = {"", "localhost", "127.0.0.1", "::1"}


@dataclass(frozen=True, slots=True)
class CpuReading:
    """CPU seconds used so far, at a local time."""

    at: float
    generator: float
    redis: float
    database: float | None
    machine: float

    @property
    def others(self) -> float:
        """Cores used by the system and other programs. A server on another machine makes it too small."""
        return max(0.0, self.machine - self.generator - self.redis - (self.database or 0.0))

    def since(self, before: CpuReading) -> CpuReading:
        """Return the cores used between two readings; `at` becomes the seconds between them."""
        seconds = self.at - before.at
        database = None
        if self.database is not None and before.database is not None:
            database = (self.database - before.database) / seconds
        return CpuReading(
            at=seconds,
            generator=(self.generator - before.generator) / seconds,
            redis=(self.redis - before.redis) / seconds,
            database=database,
            machine=(self.machine - before.machine) / seconds,
        )


UNUSED: Final = ("idle", "iowait", "steal", "guest", "guest_nice")
"""The system's times that this machine did not use; guests' times are in `user` and `nice` already."""


class CpuMeter:
    """Reads CPU times. Redis reports its own, even remotely; PostgreSQL is measured only on this machine."""

    def __init__(self, client: redis.Redis, engine: Engine | None) -> None:
        """Find the processes of the database."""
        self._client = client
        self._postmaster = None if engine is None else find_postgresql_process(engine)

    def read(self) -> CpuReading:
        """Read all of them now."""
        server = self._client.info("cpu")
        return CpuReading(
            at=time.monotonic(),
            generator=time.process_time(),
            redis=float(server["used_cpu_user"]) + float(server["used_cpu_sys"]),
            database=None if self._postmaster is None else _tree_seconds(self._postmaster),
            machine=busy_seconds(),
        )


def _tree_seconds(root: psutil.Process) -> float:
    """Sum the live processes, and the times that the root inherited from ended ones."""
    times = root.cpu_times()
    seconds = getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0) + own_seconds(root)
    for child in root.children(recursive=True):
        with suppress(psutil.Error):  # it ended in between: the root has its time
            seconds += own_seconds(child)
    return float(seconds)


def own_seconds(process: psutil.Process) -> float:
    """Return the CPU seconds of a single-threaded process.

    Linux also reports nanoseconds. The usual figure is in hundredths of a second, which a backend uses only after many
    orders: for 200 backends in a short sale it would be 0.
    """
    try:
        nanoseconds = int(Path(f"/proc/{process.pid}/schedstat").read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        nanoseconds = 0
    if nanoseconds:
        return nanoseconds / NANOSECONDS
    times = process.cpu_times()
    return float(times.user + times.system)


def busy_seconds() -> float:
    """Return the CPU seconds of everything on this machine, without those that its hypervisor gave to others."""
    times = psutil.cpu_times()
    return float(sum(times) - sum(getattr(times, name, 0.0) for name in UNUSED))


class OtherLoad:
    """Cores that other programs used: neither this process, nor its children, which the embedded servers are."""

    def __init__(self) -> None:
        """Start counting."""
        self._at, self._used = time.monotonic(), busy_seconds() - _family_seconds()

    def cores(self) -> float:
        """Return the mean number of cores used so far."""
        used = busy_seconds() - _family_seconds() - self._used
        return max(0.0, used / (time.monotonic() - self._at))


def _family_seconds() -> float:
    """Return the CPU seconds of this process and its children, ended ones included."""
    me, total = psutil.Process(), 0.0
    for process in (me, *me.children(recursive=True)):
        with suppress(psutil.Error):  # it ended in between: its parent has its time
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def machine_core_count() -> int:
    """Count all cores of the machine, whatever this process is pinned to: `busy_seconds` covers all of them."""
    return os.cpu_count() or 1


def core_count() -> int:
    """Count the cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def find_postgresql_process(engine: Engine) -> psutil.Process | None:
    """Return the parent of the answering backend; None for SQLite and for a remote server."""
    if engine.dialect.name != "postgresql":
        return None
    hosts = {engine.url.host or "", *([engine.url.query["host"]] if "host" in engine.url.query else [])}
    if not all(isinstance(host, str) and (host in LOCAL_HOSTS or host.startswith("/")) for host in hosts):
        return None
    with engine.connect() as connection:
        pid = connection.execute(text("SELECT pg_backend_pid()")).scalar_one()
        try:
            backend = psutil.Process(pid)
            parent = backend.parent()
        except psutil.Error:
            return None
    if parent is None or "postgres" not in backend.name() or "postgres" not in parent.name():
        return None  # the same id by chance: the server runs in a container or behind a tunnel
    return parent
