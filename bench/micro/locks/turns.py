"""Measures turns between processes: N processes take one lock in turn, or the segments of a pool.

    python -m bench.micro.locks.turns --processes 16 --seconds 8 lock fair grant fair-grant

Each process acquires, holds for 2 ms, releases, and begins again. A line per subject: acquisitions of each process,
Jain's index of them, the wait in milliseconds (p50, p99, longest), the scripts an acquisition on the server, and how
many waits ended without one. Scripts include the one that confirms an order; a release of a lock is none. `--json FILE`
also writes them to a file; that of the table in docs/explanation/waiting.md is bench/micro/locks/turns.json.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import threading
import time
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import uuid4

from bench.conditions import server_conditions
from segmented import FairLock, Lock, Pool, RedisStore
from segmented.errors import AcquireTimeout, NotGranted
from segmented.files import STDOUT, write_whole
from segmented.locks import MultiLock, ReadWriteLock
from segmented.servers import ValkeyServer

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.queues import Queue
    from multiprocessing.synchronize import Barrier

HOLD_SECONDS: Final = 0.002
PATIENCE: Final = 120.0
STOCK: Final = 1_000_000
WAITS: Final = (("p50", 0.5), ("p99", 0.99), ("max", 1.0))
SUBJECTS: Final = {
    "lock": "`Lock`",
    "write": "`ReadWriteLock.write`",
    "multi": "`MultiLock` (2 names)",
    "fair": "`FairLock`",
    "grant": "`grant`",
    "fair-grant": "`grant(fair=True)`",
}
LOCKS: Final[dict[str, Callable[[RedisStore], Any]]] = {
    "lock": lambda store: Lock(store, "door"),
    "write": lambda store: ReadWriteLock(store, "door").write,
    "multi": lambda store: MultiLock(store, ["door", "door-2"]),
    "fair": lambda store: FairLock(store, "door"),
}
"""Makes the lock of a subject that is no grant."""
SCRIPTS: Final = ("cmdstat_evalsha", "cmdstat_eval")


@dataclass(frozen=True, slots=True)
class Task:
    """The work of each process."""

    subject: str
    url: str
    seconds: float
    threads: int
    segments: int = 1
    timeout: float = PATIENCE


@dataclass(frozen=True, slots=True)
class Turns:
    """The result of one run."""

    counts: list[int]
    """Acquisitions of each process, the most first."""
    waits: list[float]
    """Seconds of every wait, ascending."""
    scripts: int
    """Scripts that the server ran."""
    refused: int
    """Waits that ended without a turn."""

    @property
    def jain(self) -> float:
        """Return Jain's index of the acquisitions: 1.0 if all processes had as many, 1/N if one had all."""
        squares = sum(count * count for count in self.counts)
        return sum(self.counts) ** 2 / (len(self.counts) * squares) if squares else 0.0

    def wait_ms(self, share: float) -> float:
        """Return the milliseconds within which that share of the waits ended."""
        return 1000 * self.waits[min(len(self.waits) - 1, int(share * len(self.waits)))]

    def as_json(self) -> dict[str, float]:
        """Return the figures, each rounded as the page shows it."""
        total = sum(self.counts)
        return {
            "acquisitions": total,
            "jain": round(self.jain, 2),
            **{f"{name}_ms": round(self.wait_ms(share)) for name, share in WAITS},
            "scripts": round(self.scripts / max(1, total), 1),
            "refused": self.refused,
        }

    def described(self) -> str:
        """Return one line."""
        figures = ", ".join(f"{name.replace('_', ' ')} {value:g}" for name, value in self.as_json().items())
        return f"{figures}; of each process {self.counts}"


def turn_of(task: Task, store: RedisStore) -> Callable[[], AbstractContextManager[Any]]:
    """Return a function that waits for a turn and returns it, for `with`."""
    if task.subject in LOCKS:
        lock = LOCKS[task.subject](store)
        return lambda: cast("AbstractContextManager[Any]", lock.acquire(timeout=task.timeout))
    pool, is_fair = Pool(store, "ticket"), task.subject == "fair-grant"
    return lambda: cast("AbstractContextManager[Any]", pool.grant(uuid4().hex, fair=is_fair, timeout=task.timeout))


def take_turns(task: Task, start: Barrier, found: Queue[tuple[list[float], int]]) -> None:
    """Take turns for some seconds, in a process of its own; put the seconds of each wait, and how many got none."""
    waits: list[float] = []
    refused: list[Exception] = []
    with RedisStore.from_url(task.url) as store:
        acquire = turn_of(task, store)

        def take() -> None:
            while (asked_at := time.monotonic()) < ends_at:
                try:
                    with acquire():
                        waits.append(time.monotonic() - asked_at)
                        time.sleep(HOLD_SECONDS)
                except (AcquireTimeout, NotGranted) as error:
                    refused.append(error)

        start.wait(PATIENCE)
        ends_at = time.monotonic() + task.seconds
        threads = [threading.Thread(target=take) for _ in range(task.threads)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        start.wait(PATIENCE)
        found.put((waits, len(refused)))


def scripts_run(store: RedisStore) -> int:
    """Return how many scripts the server has run."""
    found: Any = store.client.info("commandstats")
    return sum(int(found[name]["calls"]) for name in SCRIPTS if name in found)


def measure(task: Task, processes: int) -> Turns:
    """Run the processes against an empty server."""
    spawn = multiprocessing.get_context("spawn")
    start: Any = spawn.Barrier(processes + 1)
    found: Any = spawn.Queue()
    with RedisStore.from_url(task.url) as store, ExitStack() as stack:
        store.client.flushall()
        Pool(store, "ticket").open(stock=STOCK, segments=task.segments)
        for _ in range(processes):
            child = spawn.Process(target=take_turns, args=(task, start, found), daemon=True)
            child.start()
            stack.callback(child.join, PATIENCE)
        start.wait(PATIENCE)
        before = scripts_run(store)
        start.wait(task.seconds + PATIENCE)
        scripts = scripts_run(store) - before
        results: list[tuple[list[float], int]] = [found.get(timeout=PATIENCE) for _ in range(processes)]
    counts = sorted((len(waits) for waits, _ in results), reverse=True)
    refused = sum(count for _, count in results)
    return Turns(counts, sorted(wait for waits, _ in results for wait in waits), scripts, refused)


def main() -> None:
    """Measure the named subjects, each on an empty server."""
    parser = argparse.ArgumentParser(description="Turns between processes.")
    parser.add_argument("subjects", nargs="+", choices=tuple(SUBJECTS))
    parser.add_argument("--processes", type=int, default=16, help="processes  [default: 16]")
    parser.add_argument("--threads", type=int, default=1, help="waiters in each process  [default: 1]")
    parser.add_argument("--seconds", type=float, default=8.0, help="seconds per subject  [default: 8]")
    parser.add_argument("--segments", type=int, default=1, help="segments of the pool  [default: 1]")
    parser.add_argument("--timeout", type=float, default=PATIENCE, help=f"seconds to wait  [default: {PATIENCE:g}]")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write the figures to this file; - is standard output"
    )
    chosen = parser.parse_args()
    figures: dict[str, dict[str, float]] = {}
    with ValkeyServer.start() as server:
        found = server_conditions(server.url)
        for subject in chosen.subjects:
            limits = (chosen.seconds, chosen.threads, chosen.segments, chosen.timeout)
            turns = measure(Task(subject, server.url, *limits), chosen.processes)
            figures[subject] = turns.as_json()
            shown = sys.stderr if chosen.json == STDOUT else sys.stdout
            shown.write(f"{subject}: {turns.described()}\n")
            shown.flush()
    if chosen.json is not None:
        options = {name: getattr(chosen, name) for name in ("processes", "threads", "seconds", "segments")}
        results = {"options": options, "figures": figures, "conditions": found}
        write_whole(chosen.json, json.dumps(results, indent=1) + "\n")


def table(results: dict[str, Any]) -> str:
    """Return the figures as a table of Markdown."""
    head = "| 16 processes, 2 ms inside | Jain's index | p50 ms | p99 ms | longest ms | scripts each |"
    rows = [
        f"| {SUBJECTS[subject]} | {one['jain']:.2f} | "
        f"{one['p50_ms']} | {one['p99_ms']} | {one['max_ms']} | {one['scripts']:.1f} |"
        for subject, one in results["figures"].items()
    ]
    return "\n".join((head, "| --- | --: | --: | --: | --: | --: |", *rows)) + "\n"


if __name__ == "__main__":
    main()
