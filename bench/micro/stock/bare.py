"""The bare conditional decrement: a script of one read and one write, run by the server's benchmark program or ours.

`redis-benchmark` and `valkey-benchmark` are in no wheel; if neither is installed, our own client is used. It is written
in Python and slower, so ratios to it are too good; the figures say which program it was.
"""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from bench.micro.stock.context import Counter
from segmented.errors import SegmentedError

if TYPE_CHECKING:
    import redis

SCRIPT: Final = (
    "local n = tonumber(redis.call('GET', KEYS[1])) "
    "if n >= tonumber(ARGV[1]) then redis.call('DECRBY', KEYS[1], ARGV[1]) return 1 end return 0"
)
KEY: Final = "bench-bare"
CONNECTIONS: Final = 50
PROGRAMS: Final = ("valkey-benchmark", "redis-benchmark")
OWN: Final = "own client"
SECONDS_MAX: Final = 300
RATE: Final = re.compile(r"([0-9.]+) requests per second")
RECEIVED: Final = 65_536


@dataclass(frozen=True, slots=True)
class Bare:
    """The throughput of the bare decrement."""

    per_second: float
    server_us: float
    """The server's time for a call."""


def program() -> str:
    """Return the name of the program that drives the bare decrement."""
    return next((name for name in PROGRAMS if shutil.which(name)), OWN)


def measure_bare(url: str, client: redis.Redis, calls: int, *, depth: int, by_digest: bool, driver: str) -> Bare:
    """Run `calls` decrements over 50 connections with `depth` requests under way on each."""
    client.set(KEY, 10**12)
    command = ("EVALSHA", str(client.script_load(SCRIPT))) if by_digest else ("EVAL", SCRIPT)
    counter = Counter(client)
    whole = (*command, "1", KEY, "1")
    rate = _own(url, whole, calls, depth) if driver == OWN else _theirs(driver, url, whole, calls, depth)
    count, used = counter.of("evalsha" if by_digest else "eval")
    client.delete(KEY)
    return Bare(rate, used / max(1, count))


def _theirs(driver: str, url: str, command: tuple[str, ...], calls: int, depth: int) -> float:
    parts = urlsplit(url)
    where = (
        ["-s", parts.path] if parts.scheme == "unix" else ["-h", parts.hostname or "", "-p", str(parts.port or 6379)]
    )
    options = ["-n", str(calls), "-P", str(depth), "-c", str(CONNECTIONS), "-q"]
    said = subprocess.run(  # noqa: S603  # the server's benchmark program, found on the path
        [shutil.which(driver) or driver, *where, *options, *command],
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS_MAX,
    )
    found = RATE.findall(said.stdout)
    if said.returncode or not found:
        message = f"{driver} did not measure anything: {(said.stderr or said.stdout).strip()[-200:]}"
        raise SegmentedError(message)
    return float(found[-1])


def _own(url: str, command: tuple[str, ...], calls: int, depth: int) -> float:
    pieces = [f"*{len(command)}\r\n", *(f"${len(argument)}\r\n{argument}\r\n" for argument in command)]
    request = "".join(pieces).encode() * depth
    lines = [_connected(url) for _ in range(CONNECTIONS)]
    try:
        rounds = max(1, calls // (depth * CONNECTIONS))
        began = time.perf_counter()
        for _ in range(rounds):
            for line in lines:
                line.sendall(request)
            for line in lines:
                missing = depth
                while missing:
                    missing -= line.recv(RECEIVED).count(b"\n")
        return rounds * depth * CONNECTIONS / (time.perf_counter() - began)
    finally:
        for line in lines:
            line.close()


def _connected(url: str) -> socket.socket:
    parts = urlsplit(url)
    if parts.scheme == "unix":
        line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        line.connect(parts.path)
        return line
    return socket.create_connection((parts.hostname or "", parts.port or 6379))
