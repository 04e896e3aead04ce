"""`segmented bench counts` and `python -m bench.micro.counts`.

Counts all sequences on a fresh embedded server.
"""

from __future__ import annotations

import random
from itertools import chain
from typing import TYPE_CHECKING, Final

import redis

from bench.micro.counts.sequences import MANY, Steps, operations, strategies
from bench.micro.counts.tally import BASELINE, GATED, Counter, Tally, differences, read_baseline, write_baseline
from bench.results import say, show_rows
from segmented.locks.claim import HERE
from segmented.models import Order
from segmented.servers import ValkeyServer
from segmented.stores.redis import RedisStore

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from rich.console import Console

SEED: Final = 1
ROUNDS: Final = (1_000, 2_000)
"""Number of the first order of each round: the first round connects and loads scripts, the second is counted."""


def count(console: Console, *, writes: bool = False, file: Path = BASELINE) -> int:
    """Count everything, and compare with the baseline or write it; return the exit code.

    0: everything equals the baseline, or it was written. 1: there are differences, which are printed. Raises
    InvalidInput for an invalid baseline file.
    """
    before = {} if writes else read_baseline(file)
    counts = measure()
    show(counts, console)
    if writes:
        write_baseline(file, counts)
        say(console, f"{len(counts)} operations written to {file}")
        return 0
    found = differences(counts, before)
    say(console, *(found or [f"all counts of {len(counts)} operations are as in the baseline"]))
    return 1 if found else 0


def show(counts: Mapping[str, Tally], console: Console) -> None:
    """Print the cost of an order; the server's microseconds are shown but not compared."""
    heads = {field: field.replace("_", " ") for field in (*GATED, "server_us")}
    rows = [(name, *(tally.each(field) for field in heads)) for name, tally in counts.items()]
    line = "{}: " + ", ".join(f"{head} {{}}" for head in heads.values())
    show_rows(console, ("an order of", *heads.values()), rows, line.format)


def measure() -> dict[str, Tally]:
    """Start a server, count everything, and stop it. Raises InvalidInput if no server can be started."""
    was, HERE.process = HERE.process, "host:12345"  # so that bytes are the same on every machine
    try:
        with (
            ValkeyServer.start() as server,
            RedisStore.from_url(server.url) as store,
            redis.Redis.from_url(server.url) as client,
        ):
            return dict(_counted(store, client, server.url))
    finally:
        HERE.process = was


def _counted(store: RedisStore, client: redis.Redis, url: str) -> Iterator[tuple[str, Tally]]:
    counter = Counter(client)
    for name, steps in chain(strategies(url), operations(store)):
        yield name, _tally(counter, steps)


def _tally(counter: Counter, steps: Steps) -> Tally:
    random.seed(SEED)
    attempts = 0
    try:
        for first in ROUNDS:
            orders = [Order(f"{first + number}", 1) for number in range(MANY)]
            steps.prepare(orders)
            counter.begin()
            attempts = steps.perform(orders)
        return counter.tally(MANY, attempts)
    finally:
        steps.close()
