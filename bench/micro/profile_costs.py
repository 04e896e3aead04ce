"""The cost of a pool's profile: `python -m bench.micro.profile_costs [--io-threads] [--orders N] [--json FILE]`.

Buyers sell units one by one (grant, then confirm) on private servers: one thread, then sixteen threads at once. All
rows take turns in each round, so that a slow moment affects all of them; the figures are medians over the rounds. Next
to each profile is the same server with the profile `memory`: the rest of the difference is the server's own.

`--io-threads` measures other rows instead: servers with `io-threads` 1, which is the default, and 2, where another
thread of the server may read and write its connections. The CPU time of a server is that of all its threads.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from bench.clusters import LOOPBACK, StockServer
from bench.conditions import server_conditions
from bench.results import check_writable
from segmented.cli.console import console_beside
from segmented.errors import SegmentedError
from segmented.files import write_whole
from segmented.models import Order, Settled
from segmented.orders import Gate, connect, open_gated, take_order
from segmented.stock import Grant, Pool
from segmented.stores.redis import RedisStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

ORDERS: Final = 2_000
ROUNDS: Final = 5
THREADS: Final = 16
STOCK: Final = 10**9
SEGMENTS: Final = 16
SYNC_SECONDS: Final = 20.0
SELL_SECONDS: Final = 20.0


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: a pool's profile, and its server."""

    profile: str
    server: str
    fsync: str | None = None
    has_replica: bool = False
    io_threads: int | None = None
    """Threads of the server that read and write connections, its main one included; None: its default, 1."""

    @property
    def name(self) -> str:
        """How results and page call it."""
        return f"{self.profile}, {self.server}"


ROWS: Final = (
    Row("memory", "nothing on disk"),
    Row("memory", "with a replica", has_replica=True),
    Row("replicated:1", "with a replica", has_replica=True),
    Row("memory", "appendfsync always", fsync="always"),
    Row("fsync", "appendfsync always", fsync="always"),
    Row("database", "nothing on disk, SQLite"),
)
IO_ROWS: Final = (
    Row("memory", "nothing on disk"),
    Row("memory", "nothing on disk, io-threads 1", io_threads=1),
    Row("memory", "nothing on disk, io-threads 2", io_threads=2),
)
"""The first two have the same server: their difference is noise."""


@dataclass(frozen=True, slots=True)
class Shop:
    """A pool of a row on its server."""

    server: StockServer
    sell: Callable[[str], None]
    """Sells a unit for an order id."""

    def cpu_seconds(self) -> float:
        """Return the CPU time of all threads of the server."""
        found = self.server.ask("INFO", "cpu")
        return float(found["used_cpu_user"]) + float(found["used_cpu_sys"])

    def threaded_reads(self) -> int:
        """Return how many reads of connections other threads than the main one have done."""
        return int(self.server.ask("INFO", "stats")["io_threaded_reads_processed"])


def shops(stack: ExitStack, folder: Path, rows: Sequence[Row]) -> dict[Row, Shop]:
    """Start the servers and open a pool for each row."""
    found = {}
    for number, row in enumerate(rows):
        directives = {} if row.io_threads is None else {"io-threads": str(row.io_threads)}
        start = partial(StockServer.start, fsync=row.fsync, has_port=row.has_replica, directives=directives)
        server = stack.enter_context(start(folder / f"{number}"))
        if row.has_replica:
            replica = stack.enter_context(StockServer.start(folder / f"{number}r", fsync=None, has_port=True))
            replica.ask("REPLICAOF", LOOPBACK, server.port)
            _wait_online(server)
        store = stack.enter_context(RedisStore.from_url(server.url))
        pool = Pool(store, "mug")
        if row.profile == "database":
            gate = stack.enter_context(Gate(connect(f"sqlite:///{folder / 'orders.sqlite'}")))
            gate.create()
            open_gated(pool, gate, stock=STOCK, segments=SEGMENTS)
            found[row] = Shop(server, _gated_seller(pool, gate))
        else:
            pool.open(stock=STOCK, segments=SEGMENTS, profile=row.profile)
            found[row] = Shop(server, _seller(pool))
    return found


def _wait_online(server: StockServer) -> None:
    until = time.monotonic() + SYNC_SECONDS
    while "state=online" not in str(server.ask("INFO", "replication").get("slave0", "")).replace("': '", "="):
        if time.monotonic() > until:
            message = f"the replica did not follow within {SYNC_SECONDS:g} s"
            raise SegmentedError(message)
        time.sleep(0.01)


def _seller(pool: Pool) -> Callable[[str], None]:
    def sell(order_id: str) -> None:
        grant = pool.grant(order_id, timeout=SELL_SECONDS)
        if not isinstance(grant, Grant):
            message = f"order {order_id!r} was not granted: {grant}"
            raise SegmentedError(message)
        grant.confirm()

    return sell


def _gated_seller(pool: Pool, gate: Gate) -> Callable[[str], None]:
    def sell(order_id: str) -> None:
        settled = take_order(pool, gate, Order(order_id), timeout=SELL_SECONDS)
        if not isinstance(settled, Settled):
            message = f"order {order_id!r} was not sold: {settled}"
            raise SegmentedError(message)

    return sell


def timed(sell: Callable[[str], None], ids: Iterator[int], orders: int, threads: int) -> float:
    """Return the microseconds an order took, from the first to the end of the last."""
    names = [f"o-{next(ids)}" for _ in range(orders)]
    with ThreadPoolExecutor(threads) as buyers:
        list(buyers.map(sell, [f"warm-{next(ids)}" for _ in range(2 * threads)]))
        began = time.perf_counter()
        list(buyers.map(sell, names))
        return (time.perf_counter() - began) / orders * 1e6


def measure(orders: int, rounds: int = ROUNDS, *, rows: Sequence[Row] = ROWS) -> dict[str, Any]:
    """Measure these rows. Returns the results as JSON."""
    taken: dict[tuple[str, int], list[float]] = {}
    used: dict[tuple[str, int], list[float]] = {}
    ids = count()
    with tempfile.TemporaryDirectory(prefix="segmented-profiles-") as name, ExitStack() as stack:
        selling = shops(stack, Path(name), rows)
        for _ in range(rounds):
            for row, shop in selling.items():
                for threads in (1, THREADS):
                    before = shop.cpu_seconds()
                    taken.setdefault((row.name, threads), []).append(timed(shop.sell, ids, orders, threads))
                    cpu = (shop.cpu_seconds() - before) / (orders + 2 * threads) * 1e6
                    used.setdefault((row.name, threads), []).append(cpu)
        reads = {row.name: shop.threaded_reads() for row, shop in selling.items()}
        with StockServer.start(Path(name) / "conditions", fsync=None, has_port=False) as server:
            conditions = server_conditions(server.url)
    found = [
        {
            "profile": row.profile,
            "server": row.server,
            "us_one_thread": round(median(taken[row.name, 1])),
            "us_many_threads": round(median(taken[row.name, THREADS])),
            "server_cpu_us_many_threads": round(median(used[row.name, THREADS])),
            "reads_of_other_threads": reads[row.name],
        }
        for row in rows
    ]
    return {"orders": orders, "rounds": rounds, "threads": THREADS, "rows": found, "conditions": conditions}


def table(results: Mapping[str, Any]) -> list[str]:
    """Return the table as the page has it."""
    lines = [
        "| profile | server | one thread, µs an order | sixteen threads, µs an order |",
        "| --- | --- | ---: | ---: |",
    ]
    return lines + [
        f"| `{row['profile']}` | {row['server']} | {row['us_one_thread']:,} | {row['us_many_threads']:,} |"
        for row in results["rows"]
    ]


def io_table(results: Mapping[str, Any]) -> list[str]:
    """Return the table of the servers with io-threads as the page has it."""
    lines = [
        "| server | one thread, µs an order | sixteen threads, µs an order | server CPU, µs | reads of others |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    return lines + [
        f"| {row['server']} | {row['us_one_thread']:,} | {row['us_many_threads']:,} "
        f"| {row['server_cpu_us_many_threads']:,} | {row['reads_of_other_threads']:,} |"
        for row in results["rows"]
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--io-threads", action="store_true", help="measure servers with io-threads 1 and 2 instead")
    parser.add_argument("--orders", type=int, default=ORDERS, help="orders of each row and round")
    parser.add_argument("--json", type=Path, help="write the results to this file; - is standard output")
    options = parser.parse_args()
    check_writable(options.json)
    found = measure(options.orders, rows=IO_ROWS if options.io_threads else ROWS)
    shown = io_table(found) if options.io_threads else table(found)
    console_beside(options.json).print("\n".join(shown), markup=False)
    if options.json is not None:
        write_whole(options.json, json.dumps(found, indent=1) + "\n")
